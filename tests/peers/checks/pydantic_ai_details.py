"""Check features of pydantic-ai that the script does not show. Runs in its environment, and fails at an assert."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, CallDeferred, DeferredToolRequests
from pydantic_ai.messages import ModelMessage, RetryPromptPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from aguila import App
from aguila.client import tool
from aguila.codec.notices import Notice
from aguila.frameworks import pydantic_ai
from aguila.protocol import ToolMessage
from aguila.testing import client_for

mails: list[str] = []
returned: list[str] = []
CALLS: dict[str, list[tuple[str, str, dict[str, str]]]] = {
    "mail both": [("send_mail", "call-Ada", {"to": "Ada"}), ("send_mail", "call-Bob", {"to": "Bob"})],
    "mail and ask": [("send_mail", "call-Ada", {"to": "Ada"}), ("colour", "call-colour", {"of": "Ada"})],
    "work": [("work", "call-work", {})],
}


async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    """Make the calls that the user names, then say what came back."""
    returned[:] = [str(part.content) for one in messages for part in one.parts if isinstance(part, ToolReturnPart)]
    last = messages[-1].parts
    results = [str(part.content) for part in last if isinstance(part, ToolReturnPart | RetryPromptPart)]
    prompts = [part.content for part in last if isinstance(part, UserPromptPart)]
    calls = CALLS.get(str(prompts[-1]), []) if prompts else []
    if results or not calls:
        yield f"Done: {', '.join(results)}."
        return
    for at, (name, call_id, arguments) in enumerate(calls):
        yield {at: DeltaToolCall(name=name, json_args=json.dumps(arguments), tool_call_id=call_id)}


agent = Agent(FunctionModel(stream_function=model), output_type=[str, DeferredToolRequests])


@agent.tool_plain(requires_approval=True)
def send_mail(to: str) -> str:
    """Send a mail."""
    mails.append(to)
    return f"sent to {to}"


@agent.tool_plain
def work() -> str:
    """Work elsewhere."""
    raise CallDeferred


@tool
def colour(of: str) -> str:
    """Somebody's favourite colour."""
    return "teal"


notices: list[Notice] = []


def client(store: Path) -> Any:
    """Return a client of a new app, which continues stored threads."""
    return client_for(App(pydantic_ai.agent(agent), store=str(store), warn=notices.append))


async def approvals(store: Path) -> None:
    """Approvals wait over a restart. One call is edited, the other refused, and the model learns of it again later."""
    async with client(store) as first:
        thread = first.thread()
        asked = await thread.run("mail both")
        assert [one.tool_call_id for one in asked.interrupts] == ["call-Ada", "call-Bob"], asked.interrupts
    async with client(store) as second:
        thread = second.thread(thread.id)
        await thread.refresh()
        yes, no = thread.interrupts
        edited = {"approved": True, "editedArgs": {"to": "Eve"}}
        result = await thread.resume({yes.id: edited, no.id: {"approved": False, "reason": "not him"}})
        for said in ("sent to Eve", "The user changed the arguments", "not him"):
            assert said in result.text, result
        assert mails == ["Eve"], mails
        assert (await thread.run("And now?")).text == "Done: ."
        assert any("sent to Eve" in one for one in returned), returned
        assert any("not him" in one for one in returned), returned
        assert notices == [], notices


async def front_end_tools_beside_approvals(store: Path) -> None:
    """A front-end tool works in one response with a tool that needs approval."""
    async with client(store) as one:
        thread = one.thread(tools=[colour])
        asked = await thread.run("mail and ask")
        result = await thread.resume({asked.interrupts[0].id: {"approved": True}})
        assert result.text == "Done: sent to Ada, teal.", result


async def deferred_tools(store: Path) -> None:
    """A tool that is executed elsewhere is left open, and whoever has its result brings it to the next run."""
    async with client(store) as one:
        thread = one.thread()
        result = await thread.run("work")
        assert [call.id for call in result.pending_tool_calls] == ["call-work"], result
        result = await thread.run([ToolMessage(tool_call_id="call-work", content="worked")])
        assert result.text == "Done: worked.", result


async def main() -> None:
    for check in (approvals, front_end_tools_beside_approvals, deferred_tools):
        with tempfile.TemporaryDirectory() as folder:
            await check(Path(folder) / "threads.db")
        print(check.__name__, "works")


if __name__ == "__main__":
    asyncio.run(main())
