"""Check features of the OpenAI Agents SDK that the script does not show.

Runs in its environment, and fails at an assert.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agents import Agent, Model, function_tool, set_tracing_disabled
from openai_agents_app import Answer

from aguila import App
from aguila.client import GIVE_UP, tool
from aguila.frameworks import openai_agents
from aguila.protocol import SubagentStartedEvent
from aguila.testing import client_for

set_tracing_disabled(True)
mails: list[str] = []
CALLS: dict[str, list[tuple[str, str, dict[str, str]]]] = {
    "mail both": [("send_mail", "call-Ada", {"to": "Ada"}), ("send_mail", "call-Bob", {"to": "Bob"})],
    "mail and ask": [("send_mail", "call-Ada", {"to": "Ada"}), ("colour", "call-colour", {"of": "Ada"})],
    "look and ask": [("look", "call-look", {}), ("colour", "call-colour", {"of": "Ada"})],
    "hand off": [("transfer_to_billing", "call-handoff", {})],
}


class ScriptedModel(Model):
    """Makes the calls that the user names, then says what came back. ``always`` are its calls after a handoff."""

    def __init__(self, always: list[tuple[str, str, dict[str, str]]] | None = None) -> None:
        self._always = always

    async def get_response(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError("the runner streams")

    async def stream_response(self, instructions: Any, input: Any, *args: Any, **options: Any) -> AsyncIterator[Any]:
        answer = Answer()
        outputs: list[str] = []
        for item in reversed(input):
            if item.get("type") != "function_call_output" or item["call_id"] == "call-handoff":
                break
            outputs.insert(0, item["output"])
        calls = CALLS.get(str(input[-1].get("content")), []) if self._always is None else self._always
        if outputs or not calls:
            async for event in answer.text([f"Done: {', '.join(outputs)}."]):
                yield event
        else:
            for name, call_id, arguments in calls:
                for event in answer.call(name, call_id, json.dumps(arguments)):
                    yield event
        yield answer.end()


@function_tool(needs_approval=True)
def send_mail(to: str) -> str:
    """Send a mail."""
    mails.append(to)
    return f"sent to {to}"


@function_tool
def look() -> str:
    """Look."""
    return "seen"


@tool
def colour(of: str) -> str:
    """Somebody's favourite colour."""
    return "teal"


billing = Agent(name="billing", model=ScriptedModel([("send_mail", "call-bill", {"to": "Bill"})]), tools=[send_mail])
assistant = Agent(name="assistant", model=ScriptedModel(), tools=[send_mail, look], handoffs=[billing])
billing.handoffs = [assistant]  # back again: a cycle


def client(store: Path) -> Any:
    """Return a client of a new app, which continues stored threads."""
    return client_for(App(openai_agents.agent(assistant), store=str(store)))


async def approvals(store: Path) -> None:
    """Approvals wait over a restart, one is refused, and giving up ends the run."""
    mails.clear()
    async with client(store) as first:
        thread = first.thread()
        asked = await thread.run("mail both")
        assert [one.tool_call_id for one in asked.interrupts] == ["call-Ada", "call-Bob"], asked.interrupts
    async with client(store) as second:
        thread = second.thread(thread.id)
        await thread.refresh()
        yes, no = thread.interrupts
        result = await thread.resume({yes.id: {"approved": True}, no.id: {"approved": False, "reason": "not him"}})
        assert (result.text, mails) == ("Done: sent to Ada, not him.", ["Ada"]), (result, mails)
        assert (await thread.run("And now?")).text == "Done: ."
        asked = await thread.run("mail both")
        given_up = await thread.resume({one.id: GIVE_UP for one in asked.interrupts})
        assert (given_up.outcome, mails) == ("cancelled", ["Ada"]), given_up


async def front_end_tools_beside_others(store: Path) -> None:
    """A front-end tool works in one response with a tool of the agent, and with one that needs approval."""
    mails.clear()
    async with client(store) as one:
        result = await one.thread(tools=[colour]).run("look and ask")
        assert result.text == "Done: seen, teal.", result
        thread = one.thread(tools=[colour])
        asked = await thread.run("mail and ask")
        assert [one.tool_call_id for one in asked.interrupts] == ["call-Ada"], asked.interrupts
        result = await thread.resume({asked.interrupts[0].id: {"approved": True}})
        assert (result.text, mails) == ("Done: sent to Ada, teal.", ["Ada"]), (result, mails)


async def approvals_after_a_handoff(store: Path) -> None:
    """The agent that was handed to continues after the answer, as one subagent."""
    async with client(store) as first:
        thread = first.thread(tools=[colour])
        await thread.run("hand off")
    async with client(store) as second:
        thread = second.thread(thread.id, tools=[colour])
        await thread.refresh()
        run = thread.resume({one.id: {"approved": True} for one in thread.interrupts})
        started = [event async for event in run if isinstance(event, SubagentStartedEvent)]
        assert [one.name for one in started] == ["billing"], started
        assert thread.messages[-1].content == "Done: sent to Bill.", thread.messages[-1]


async def main() -> None:
    for check in (approvals, front_end_tools_beside_others, approvals_after_a_handoff):
        with tempfile.TemporaryDirectory() as folder:
            await check(Path(folder) / "threads.db")
        print(check.__name__, "works")


if __name__ == "__main__":
    asyncio.run(main())
