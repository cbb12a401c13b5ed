r"""A chat client: call an AG-UI agent with chat messages. The options keep the thread.

aguila serve
python examples/13_chat_client.py
"""

import asyncio
import os

from aguila import ChatClient
from aguila.chat import ChatMessage, FunctionResultContent, InterruptRequestContent
from aguila.client import ChatOptions

URL = os.environ.get("AGUILA_URL", "http://127.0.0.1:8000")


def get_weather(city: str, unit: str = "celsius") -> dict:
    """The weather in a city, as this application knows it."""
    return {"city": city, "degrees": 24, "unit": unit}


async def main() -> None:
    async with ChatClient(URL) as client:
        options = ChatOptions(tools=[get_weather])  # used again, it continues the thread
        conversation = [ChatMessage("user", "Show me text")]
        stream = client.get_streaming_response(conversation, options)
        async for (
            update
        ) in stream:  # pieces of text, calls, results; the event behind each is update.raw_representation
            print(update.text, end="", flush=True)
        print()
        conversation += stream.response.messages  # pass the whole conversation each time

        # One response: the agent calls our function, gets the result and continues.
        conversation.append(ChatMessage("user", "Call my frontend tools"))
        response = await client.get_response(conversation, options)
        for message in response.messages:
            for content in message.contents:
                if isinstance(content, FunctionResultContent):
                    print("answered:", content.result)
        conversation += response.messages

        # Questions and answers are contents.
        conversation.append(ChatMessage("user", "Show me an interrupt"))
        response = await client.get_response(conversation, options)
        conversation += response.messages
        (question,) = response.requests
        if isinstance(question, InterruptRequestContent):
            print("asked:", question.message)
            conversation.append(ChatMessage("user", [question.answer({"colour": "green"})]))
            response = await client.get_response(conversation, options)
        print(response.text)
        print("one thread:", response.thread_id == options.thread_id)


asyncio.run(main())
