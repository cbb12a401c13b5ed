"""``ScriptedAgent``: an agent that plays a script, to test clients.

It writes through a ``Run`` like any other agent, and can be served, stored, resumed and cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from inspect import isawaitable
from typing import Any

import msgspec

from aguila.agent import InterruptCancelled
from aguila.protocol import RunAgentInput
from aguila.testing.plurals import counted


class Ask(msgspec.Struct, frozen=True):
    """A step that asks a question. The run ends, and the run with the answer continues after it.

    ``then`` converts the answer to the text that is sent next.
    """

    question: str
    schema: dict[str, Any] | None = None
    then: Callable[[Any], str] | None = None


class Approve(msgspec.Struct, frozen=True):
    """A step that asks for approval of a tool call. The result is ``result``, or ``refused``."""

    tool: str
    arguments: dict[str, Any] = {}
    result: Any = "done"
    refused: Any = "The user refused."


class Call(msgspec.Struct, frozen=True):
    """A step that calls a tool. Without a ``result`` the front end answers."""

    tool: str
    arguments: dict[str, Any] = {}
    result: Any = None


class Wait(msgspec.Struct, frozen=True):
    """A step that waits for an ``asyncio.Event``, or for a number of seconds."""

    until: asyncio.Event | float


Step = Any
"""A step: text, an event, one of the classes above, an exception to raise, or a function of the run."""


class ScriptedAgent:
    """An agent that plays a script. Each run of a thread plays the next turn; a run after the last turn fails.

    A turn is a step or a list of steps. Text is sent as a message, an event is sent unchanged, an exception is raised,
    and a function is called with the run. After an answer, the run continues the turn that asked. ``inputs`` has the
    input of each run.
    """

    def __init__(self, *turns: Step | Sequence[Step]) -> None:
        self.inputs: list[RunAgentInput] = []
        self._turns: list[Sequence[Step]] = [turn if isinstance(turn, list | tuple) else [turn] for turn in turns]
        self._played: dict[str, list[str]] = {}

    async def __call__(self, run: Any) -> Any:
        """Play the turn of this run."""
        input_: RunAgentInput = run.input
        self.inputs.append(input_)
        runs = self._played.setdefault(run.thread_id, [])
        if input_.run_id not in runs:  # a run with an answer has the input of the run that asked
            runs.append(input_.run_id)
        number = runs.index(input_.run_id)
        if number >= len(self._turns):
            raise AssertionError(
                f"the script has {counted(len(self._turns), 'turn')}, and this is run {number + 1} of the thread"
            )
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
            try:
                approval = await run.approve(step.tool, step.arguments)
            except InterruptCancelled as given_up:  # an approval that is given up is refused
                (approval,) = given_up.answers
            await approval.call.result(step.result if approval else step.refused)
        elif isinstance(step, Wait):
            await (asyncio.sleep(step.until) if isinstance(step.until, int | float) else step.until.wait())
        elif callable(step):
            produced = step(run)
            if isawaitable(produced):
                await produced
        else:
            await run.emit(step)
