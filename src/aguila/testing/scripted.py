"""Layer: testing. ``ScriptedAgent``: an agent that says what it is told, turn by turn; for tests of clients.

Below: ``aguila.agent``. It needs no model, and writes through a ``Run`` like any other agent, so that it can be served,
stored, resumed and cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from inspect import isawaitable
from typing import Any

import msgspec

from aguila.protocol import RunAgentInput


class Ask(msgspec.Struct, frozen=True):
    """A step that asks the user; the run ends with an interrupt, and goes on after it when it is answered.

    ``then`` makes the next words of the answer.
    """

    question: str
    schema: dict[str, Any] | None = None
    then: Callable[[Any], str] | None = None


class Approve(msgspec.Struct, frozen=True):
    """A step that asks for the approval of a tool call; the result is ``result``, or ``refused``."""

    tool: str
    arguments: dict[str, Any] = {}
    result: Any = "done"
    refused: Any = "The user refused."


class Call(msgspec.Struct, frozen=True):
    """A step that calls a tool. Without a ``result`` the call is left to the front end."""

    tool: str
    arguments: dict[str, Any] = {}
    result: Any = None


class Wait(msgspec.Struct, frozen=True):
    """A step that waits for an ``asyncio.Event``, or for so many seconds."""

    until: asyncio.Event | float


Step = Any
"""One thing that an agent does: text, an event, one of the above, an exception to raise, or a function of the run."""


class ScriptedAgent:
    """An agent that plays a script: the first run of a thread its first turn, the next run the next one.

    A turn is one step or a list of steps: text is said, an event is sent as it is, ``Call``, ``Ask``, ``Approve`` and
    ``Wait`` do what they say, an exception is raised, and a function is called with the run. A run that goes on after a
    question goes on with its turn. ``inputs`` has what each run was asked. A run too many fails.
    """

    def __init__(self, *turns: Step | Sequence[Step]) -> None:
        self.inputs: list[RunAgentInput] = []
        self._turns: list[Sequence[Step]] = [turn if isinstance(turn, list | tuple) else [turn] for turn in turns]
        self._played: dict[str, list[str]] = {}

    async def __call__(self, run: Any) -> Any:
        """Play the turn of this run."""
        asked: RunAgentInput = run.input
        self.inputs.append(asked)
        runs = self._played.setdefault(run.thread_id, [])
        if asked.run_id not in runs:  # a replay sees the input of the run that asked
            runs.append(asked.run_id)
        number = runs.index(asked.run_id)
        if number >= len(self._turns):
            raise AssertionError(f"the script has {len(self._turns)} turns, and this is run {number + 1} of the thread")
        for step in self._turns[number]:
            await self._play(step, run)

    async def _play(self, step: Step, run: Any) -> None:
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, str):
            await run.say(step)
        elif isinstance(step, Call):
            call = await run.tool_call(step.tool, step.arguments)
            if step.result is not None:
                await call.result(step.result)
        elif isinstance(step, Ask):
            answer = await run.ask(step.question, schema=step.schema)
            if step.then is not None:
                await run.say(step.then(answer))
        elif isinstance(step, Approve):
            approval = await run.approve(step.tool, step.arguments)
            await approval.call.result(step.result if approval else step.refused)
        elif isinstance(step, Wait):
            await (asyncio.sleep(step.until) if isinstance(step.until, int | float) else step.until.wait())
        elif callable(step):
            produced = step(run)
            if isawaitable(produced):
                await produced
        else:
            await run.emit(step)
