r"""A model with tools, on OpenAI or on any server that is compatible with Chat Completions.

The SDK reads OPENAI_API_KEY and OPENAI_BASE_URL; point the latter at vLLM, Ollama, LM Studio, a gateway ...

    OPENAI_API_KEY=... python examples/14_openai_compatible_agent.py
    curl -N http://127.0.0.1:8000 -H 'content-type: application/json' \
        -d '{"threadId": "t1", "runId": "r1",
             "messages": [{"id": "m1", "role": "user", "content": "Is it warmer in Lisbon or in Oslo?"}],
             "context": [{"description": "The unit the user prefers", "value": "Celsius"}]}'

Both cities are asked for at once. Tools of a front end ("tools" in the request) are offered to the model as well, and
left for the client to answer.
"""

import os

import uvicorn
from openai import AsyncOpenAI

from aguila import App, ToolError
from aguila.providers import openai

TEMPERATURES = {"Lisbon": 24, "Oslo": 11}


async def temperature(city: str) -> dict[str, int]:
    """The temperature in a city.

    Args:
        city: its English name
    """
    if city not in TEMPERATURES:
        raise ToolError(f"I know nothing about {city}. Ask for one of: {', '.join(TEMPERATURES)}.")
    return {"celsius": TEMPERATURES[city]}


agent = openai.agent(
    AsyncOpenAI(),
    model=os.environ.get("OPENAI_MODEL", "gpt-5.4-mini"),
    tools=[temperature],
    instructions="Answer in one sentence.",
)
app = App(agent)

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
