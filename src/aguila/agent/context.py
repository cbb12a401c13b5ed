"""Layer: agent. What an execution is given and what it gives back: the seam between agents and whoever runs them.

Above: the server implements ``Sink`` and ``Services`` on a store lease; tests fake them. Below: the protocol types and
the event writer. Data and protocols only: nothing here runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from aguila.protocol import Event, Interrupt, ResumeEntry, RunAgentInput
from aguila.stream.writer import EventWriter

Outcome = Literal["success", "interrupt", "cancelled", "error"]
"""How a run ended."""


class Sink(Protocol):
    """Where a run's events go."""

    is_full: bool
    """Whether ``room`` has to be awaited before there is more to put. Asked after every event, so it is no call."""

    def put(self, events: Sequence[Event]) -> None:
        """Accept events, in order, all of them or none. Never blocks.

        Whatever it raises ends the run: ``EncodeError`` or ``DecodeError`` for an event that is not well-formed,
        ``StoreError`` if the run cannot be written any more.
        """
        ...

    async def room(self) -> None:
        """Return when the run is not too far ahead of what is durable; at once, without suspending, if it is not."""
        ...


class Services(Protocol):
    """What a run needs of the world besides a place for its events."""

    async def record(self, key: str, value: bytes) -> None:
        """Keep the result of a side effect; durable when it returns."""
        ...

    async def settle(self, interrupt_ids: Sequence[str]) -> None:
        """The answers to these interrupts were used and can never be given again; durable when it returns."""
        ...

    async def file(self, file_id: str) -> tuple[bytes, str, str | None] | None:
        """An uploaded file of the run's scope as bytes, media type and file name; None if there is no such file."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """The answers a resumed run has: all of its chain by interrupt id, and which of them it is to be heard after.

    Those are the ones that came with this run. Of these, ``settled`` were used by a run that failed, which this one
    takes the place of.
    """

    answers: Mapping[str, ResumeEntry]
    current: frozenset[str]
    settled: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContext:
    """Everything about one run.

    ``input`` is what the agent sees; for a replay that is the input of the root run, ``resume_input`` is the one that
    brought the answers, and ``client_state`` is the state that the client holds now. ``writer`` has been started: its
    RUN_STARTED is the caller's to send. ``recorded`` are the results of ``once`` under the root run, as JSON.
    ``new_id`` mints error references; the ids of messages and calls are derived from the root run, so that a replay
    continues what an earlier run of the chain opened. ``max_state`` is how many bytes of state a client may send.
    A run that is not stored can neither ask, nor record an effect, nor change the session.
    """

    input: RunAgentInput
    thread_id: str
    run_id: str
    writer: EventWriter
    new_id: Callable[[], str]
    root_run_id: str
    parent_run_id: str | None = None
    replay: Replay | None = None
    resume_input: RunAgentInput | None = None
    recorded: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    session: Any = None
    principal: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    client_state: Any = None
    max_state: int | None = None
    is_stored: bool = True
    debug: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a run ended.

    ``interrupts`` are the questions it left. ``session`` is the private value to keep: as the agent left it, but as it
    was before the run if the run failed, or stopped to ask with ``run.ask`` (the replay will change it again).
    ``error`` is what made the run fail and ``reference`` the id under which it was logged. ``is_written`` is False if
    the sink refused even the terminal event.
    """

    outcome: Outcome
    interrupts: list[Interrupt] = field(default_factory=list[Interrupt])
    session: Any = None
    reference: str | None = None
    error: BaseException | None = None
    is_written: bool = True
