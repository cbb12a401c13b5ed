"""Try Microsoft's ``AGUIChatClient`` on the demo agent behind ``App``: ``agui_chat_client.py URL``.

Prints a JSON object: for each feature its verdict and the reason of a loss. A feature is lost if nothing of it arrives.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from agent_framework import Agent, Content, Message, tool
from agent_framework_ag_ui import AGUIChatClient, state_carrier

SENTENCE = "An agent writes text through its run, piece by piece, and everybody who watches sees it grow."


class Lost(Exception):
    """Nothing of the feature arrives. The message says why."""


class Caller:
    """The client, on a thread of its own."""

    def __init__(self, url: str, feature: str) -> None:
        self.url = url
        self.thread_id = f"thread {feature}"
        self.client = AGUIChatClient(endpoint=url)

    async def ask(self, *messages: Any, **options: Any) -> Any:
        """Run the agent; return the response."""
        said = [one if isinstance(one, Message) else Message("user", [one]) for one in messages]
        return await self.client.get_response(said, options={"metadata": {"thread_id": self.thread_id}, **options})

    async def stored(self) -> Any:
        """Return what the server keeps of the thread."""
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.get(f"{self.url}threads/{self.thread_id}")).raise_for_status().json()


def contents(response: Any, kind: str) -> list[Any]:
    return [content for message in response.messages for content in message.contents if content.type == kind]


def expect(found: Any, wanted: Any) -> None:
    if found != wanted:
        raise AssertionError(f"expected {wanted!r}, got {found!r}")


async def text(caller: Caller) -> None:
    pieces = [
        update.text
        async for update in caller.client.get_response(
            [Message("user", ["text please"])], stream=True, options={"metadata": {"thread_id": caller.thread_id}}
        )
    ]
    expect("".join(pieces), SENTENCE)
    expect(len([piece for piece in pieces if piece]) > 1, True)


async def second_turn(caller: Caller) -> None:
    await caller.ask("text please")
    await caller.ask("text please")
    expect([message["role"] for message in (await caller.stored())["messages"]], ["user", "assistant"] * 2)


async def backend_tools(caller: Caller) -> None:
    response = await caller.ask("tools please")
    cities = sorted(json.loads(call.arguments)["city"] for call in contents(response, "function_call"))
    expect(cities, ["Lisbon", "Oslo"])
    results = sorted(json.loads(result.result)["degrees"] for result in contents(response, "function_result"))
    expect(results, [11, 24])
    expect(response.text.endswith("It is 24 degrees in Lisbon and 11 in Oslo."), True)


async def front_end_tool(caller: Caller) -> None:
    asked: list[str] = []

    @tool
    def confirm(what: str) -> str:
        """Ask the user to confirm something."""
        asked.append(what)
        return "yes"

    agent = Agent(client=caller.client, tools=[confirm])
    response = await agent.run("frontend please", options={"metadata": {"thread_id": caller.thread_id}})
    expect(asked, ["demo"])
    expect("Your front end answered" in response.text, True)


async def state(caller: Caller) -> None:
    await caller.ask("text please", Message("user", [state_carrier({"count": 1})]))
    expect((await caller.stored())["state"], {"count": 1})
    response = await caller.ask("state please")
    if "ingredients" not in json.dumps(response.additional_properties, default=str):
        raise Lost("it sends state, but skips STATE_SNAPSHOT and STATE_DELTA")


async def reasoning(caller: Caller) -> None:
    response = await caller.ask("reasoning please")
    expect(response.text, "The answer is 42.")
    if not contents(response, "text_reasoning"):
        raise Lost("it skips REASONING_*")


async def activity(caller: Caller) -> None:
    response = await caller.ask("activity please")
    expect(response.text, "The plan is done.")
    if not any(content.type != "text" for message in response.messages for content in message.contents):
        raise Lost("it skips ACTIVITY_*")


async def subagents(caller: Caller) -> None:
    response = await caller.ask("subagents please")
    said = [message.text for message in response.messages if message.text]
    expect(sorted(said[:2]), ["I found two papers about eagles.", "One of them is about golf."])
    expect(said[2:], ["My team has spoken."])


async def interrupt(caller: Caller) -> None:
    response = await caller.ask("interrupt please")
    (question,) = response.additional_properties["interrupts"]
    expect(question["message"], "Which colour shall it have?")
    answer = {"interruptId": question["id"], "status": "resolved", "payload": {"colour": "red"}}
    response = await caller.ask(resume=[answer])
    expect(response.text.endswith("It will be red."), True)


async def approval(caller: Caller) -> None:
    response = await caller.ask("approval please")
    (question,) = response.additional_properties["interrupts"]
    payload = {"approved": True, "editedArgs": {"to": "grace@example.com", "subject": "Owls"}}
    response = await caller.ask(resume=[{"interruptId": question["id"], "status": "resolved", "payload": payload}])
    expect(response.text.endswith("Sent to grace@example.com."), True)


async def image(caller: Caller) -> None:
    picture = Content.from_data(data=PNG, media_type="image/png")
    response = await caller.ask(Message("user", ["image please", picture]))
    expect("You sent a PNG image, 1 by 1" in response.text, True)


async def image_result(caller: Caller) -> None:
    response = await caller.ask("image please")
    (result,) = contents(response, "function_result")
    expect(response.text.endswith("I drew a blue square."), True)
    if "[image: image/png]" in str(result.result):
        raise Lost("the image of a tool result arrives as text")


async def error(caller: Caller) -> None:
    response = await caller.ask("error please")
    (found,) = contents(response, "error")
    expect(found.message.startswith("The agent failed."), True)
    expect((await caller.ask("text please")).text, SENTENCE)


async def cancel(caller: Caller) -> None:
    options: Any = {"metadata": {"thread_id": caller.thread_id}}
    async for update in caller.client.get_response([Message("user", ["slow please"])], stream=True, options=options):
        if update.text:
            break
    async with httpx.AsyncClient(trust_env=False) as client:
        (await client.post(f"{caller.url}threads/{caller.thread_id}/cancel")).raise_for_status()
    for _ in range(1000):
        if [run["status"] for run in (await caller.stored())["runs"]] == ["cancelled"]:
            break
    else:
        raise AssertionError("the run is not cancelled")
    raise Lost("it can only disconnect; `POST /threads/{id}/cancel` cancels the run")


PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c49444154789c6360606000000004000168"
    "26e8f10000000049454e44ae426082"
)

FEATURES: dict[str, Callable[[Caller], Awaitable[None]]] = {
    "text": text,
    "second turn": second_turn,
    "backend tools, in parallel": backend_tools,
    "frontend tool": front_end_tool,
    "state": state,
    "reasoning": reasoning,
    "activity": activity,
    "subagents, in parallel": subagents,
    "interrupt": interrupt,
    "approval with edited arguments": approval,
    "image attachment": image,
    "image result": image_result,
    "error": error,
    "cancel": cancel,
}


async def main(url: str) -> None:
    found: dict[str, tuple[str, str]] = {}
    for name, feature in FEATURES.items():
        caller = Caller(url, name)
        try:
            async with asyncio.timeout(120):
                await feature(caller)
            found[name] = ("works", "")
        except Lost as lost:
            found[name] = ("lost", str(lost))
        except Exception as problem:  # noqa: BLE001 - whatever fails is the verdict
            found[name] = ("fails", f"{type(problem).__name__}: {problem}"[:300])
        finally:
            await caller.client.close()
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
