"""Run agents in tests: a sink in memory that checks every run by the producer rules, and chains of resumed runs.

``Thread`` does the minimum of the server's work between runs: it keeps the events, the answers, the recorded effects
and the session, and resumes by replay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Any

from aguila.agent import Ending, Replay, RunContext, execute
from aguila.codec import decode_event, encode_event
from aguila.errors import EncodeError
from aguila.protocol import (
    Event,
    Message,
    ResumeEntry,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    TextMessageContentEvent,
    Tool,
)
from aguila.stream.consumer import consume
from aguila.stream.verification.verifier import Verifier
from aguila.stream.writer import EventWriter


class ListSink:
    """Collect events. Each must be well-formed, as in the server; ``room`` yields to other tasks now and then."""

    is_full = True  # so that ``room`` is awaited every time

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.refuse: Any = None
        """Called with each event; may raise."""
        self.ahead = 0
        self.most_ahead = 0

    def put(self, events: Sequence[Event]) -> None:
        for event in events:
            if self.refuse is not None:
                self.refuse(event)
            if decode_event(encode_event(event)) is None:
                raise EncodeError("no event of the protocol")
        self.events += events
        self.ahead += len(events)
        self.most_ahead = max(self.most_ahead, self.ahead)

    async def room(self) -> None:
        if self.ahead >= 64:
            await asyncio.sleep(0)
            self.ahead = 0


class Shelf:
    """The services of a run, in memory."""

    def __init__(self) -> None:
        self.records: dict[str, bytes] = {}
        self.settled: list[str] = []
        self.files: dict[str, tuple[bytes, str, str | None]] = {}

    async def record(self, key: str, value: bytes) -> None:
        await asyncio.sleep(0)
        self.records.setdefault(key, value)

    async def settle(self, interrupt_ids: Sequence[str]) -> None:
        await asyncio.sleep(0)
        self.settled += interrupt_ids

    async def file(self, file_id: str) -> tuple[bytes, str, str | None] | None:
        return self.files.get(file_id)


class Outcome:
    """The verified events and the ending of one run."""

    def __init__(self, events: list[Event], ending: Ending) -> None:
        self.events = events
        self.ending = ending

    @property
    def types(self) -> list[str]:
        return [str(event.type) for event in self.events]

    @property
    def last(self) -> Any:
        return self.events[-1]

    @property
    def text(self) -> str:
        return "".join(event.delta for event in self.events if isinstance(event, TextMessageContentEvent))

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def check(events: Sequence[Event]) -> None:
    """Verify a stream by the producer rules, with exactly one terminal event per run."""
    verifier = Verifier(producer=True)
    for event in events:
        verifier.feed(event)
    assert verifier.close() == "finished"


class Thread:
    """One thread: runs of an agent, one after another."""

    def __init__(
        self,
        *,
        state: Any = None,
        messages: Sequence[Message] = (),
        tools: Sequence[Tool] = (),
        debug: bool = False,
        **more: Any,
    ) -> None:
        self.log: list[Event] = []
        self.shelf = Shelf()
        self.session: Any = None
        self.grace = 5.0
        self.refuse: Any = None
        self.new_sink: Any = ListSink
        self._input = RunAgentInput(
            thread_id="t", run_id="", messages=list(messages), state=state, tools=list(tools) if tools else None
        )
        self._debug = debug
        self._more = more
        self._numbers = count(1)
        self._ids = count(1)
        self._root: RunAgentInput | None = None
        self._answers: dict[str, ResumeEntry] = {}
        self.outcome: Outcome | None = None
        self.failed: set[str] = set()
        """The ids of runs that used answers and failed."""

    @property
    def conversation(self) -> Any:
        """The conversation of a client that read every event so far."""
        return consume(self.log, state=self._state(), producer=False)

    def _state(self) -> Any:
        return {} if self._input.state is None else self._input.state

    def _new_id(self) -> str:
        return f"id-{next(self._ids)}"

    async def run(self, agent: Any, **changes: Any) -> Outcome:
        """Start a run."""
        state = self.conversation.state if self.log else self._input.state
        fields = {name: getattr(self._input, name) for name in self._input.__struct_fields__}
        fields |= {"run_id": f"run-{next(self._numbers)}", "state": state} | changes
        self._root = RunAgentInput(**fields)
        self._answers = {}
        return await self._execute(agent, self._root.run_id, None)

    async def resume(self, agent: Any, *answers: Any) -> Outcome:
        """Start the run that answers the questions of the last one, in order; an answer may be a ``ResumeEntry``."""
        assert self.outcome is not None
        assert self.outcome.ending.outcome == "interrupt"
        entries = [
            answer
            if isinstance(answer, ResumeEntry)
            else ResumeEntry(interrupt_id=asked.id, status="resolved", payload=answer)
            for asked, answer in zip(self.outcome.ending.interrupts, answers, strict=True)
        ]
        return await self.resume_some(agent, entries)

    async def resume_some(self, agent: Any, entries: Sequence[ResumeEntry]) -> Outcome:
        """Start the run that brings these answers; other questions stay open."""
        self._answers |= {entry.interrupt_id: entry for entry in entries}
        current = frozenset(entry.interrupt_id for entry in entries)
        replay = Replay(answers=dict(self._answers), current=current, failed=frozenset(self.failed))
        return await self._execute(agent, f"run-{next(self._numbers)}", replay)

    async def give_up(self, agent: Any) -> Outcome:
        """Start the run that cancels all questions of the last one."""
        assert self.outcome is not None
        asked = self.outcome.ending.interrupts
        return await self.resume(
            agent, *(ResumeEntry(interrupt_id=interrupt.id, status="cancelled") for interrupt in asked)
        )

    async def _execute(self, agent: Any, run_id: str, replay: Replay | None) -> Outcome:
        assert self._root is not None
        held = self.conversation.state if self.log else self._root.state
        writer = EventWriter("t", run_id, new_id=self._new_id, state=held)
        sink = self.new_sink()
        sink.refuse = self.refuse
        started = writer.start()
        context = RunContext(
            input=self._root,
            thread_id="t",
            run_id=run_id,
            root_run_id=self._root.run_id,
            writer=writer,
            new_id=self._new_id,
            replay=replay,
            recorded=dict(self.shelf.records),
            session=self.session,
            client_state=held,
            debug=self._debug,
            **self._more,
        )
        ending = await execute(agent, context, sink, self.shelf, cancel_grace=self.grace)
        events = [*started, *sink.events]
        if ending.is_written:
            check(events)
            assert _is_as_written(events[-1], ending)
            self.log += events
            assert consume(self.log, state=self._state()) is not None  # across runs too
        self.session = ending.session
        self.outcome = Outcome(events, ending)
        return self.outcome


def _is_as_written(last: Any, ending: Ending) -> bool:
    if ending.outcome == "error":
        return isinstance(last, RunErrorEvent)
    assert isinstance(last, RunFinishedEvent)
    if last.outcome is None:  # the agent's own, and a success (LIFE-3)
        return ending.outcome == "success"
    assert last.outcome.type == ending.outcome
    if isinstance(last.outcome, RunFinishedInterruptOutcome):
        return last.outcome.interrupts == ending.interrupts
    return ending.interrupts == []


async def run_agent(agent: Any, **options: Any) -> Outcome:
    """Run an agent once, in a thread of its own."""
    return await Thread(**options).run(agent)
