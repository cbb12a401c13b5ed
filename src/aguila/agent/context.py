"""The interface between agents and the server: what an execution receives and returns.

The server implements ``Sink`` and ``Services`` on a store lease; tests fake them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from msgspec import UNSET, UnsetType

from aguila.protocol import (
    AssistantMessage,
    Event,
    Interrupt,
    Message,
    ResumeEntry,
    RunAgentInput,
    TokenUsage,
    ToolCall,
)
from aguila.stream.writer import EventWriter

Outcome = Literal["success", "interrupt", "cancelled", "error"]
"""How a run ended."""


def find_call_ids(messages: Sequence[Message]) -> frozenset[str]:
    """Return the ids of the tool calls in messages."""
    return frozenset(
        call.id
        for message in messages
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls or ()
        if isinstance(call, ToolCall)
    )


class Sink(Protocol):
    """Receives the events of a run."""

    is_full: bool
    """Whether ``room`` has to be awaited before the next ``put``. Read after every event, so it is an attribute."""

    def put(self, events: Sequence[Event]) -> None:
        """Accept events in order, all of them or none. Never blocks.

        An exception ends the run: ``EncodeError`` or ``DecodeError`` for a malformed event, ``StoreError`` if the run
        can no longer be written.
        """
        ...

    async def room(self) -> None:
        """Wait while the run is too far ahead of the store. Returns without suspending otherwise."""
        ...


class Services(Protocol):
    """Services of the server that a run uses, besides its sink."""

    async def record(self, key: str, value: bytes) -> None:
        """Store the result of a side effect; durable when it returns."""
        ...

    async def settle(self, interrupt_ids: Sequence[str]) -> None:
        """Mark the answers to these interrupts as used, so that they cannot be given again; durable when it returns."""
        ...

    async def file(self, file_id: str) -> tuple[bytes, str, str | None] | None:
        """Load an uploaded file of the run's scope: bytes, media type and file name. None if there is none."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """The answers of a resumed run.

    ``answers`` are all answers of the chain of runs, by interrupt id. ``current`` are those that came with this run.
    ``settled`` are those of ``current`` that a failed run used, which this run replaces. ``failed`` are the ids of such
    runs, whose output was retracted. ``sent`` are the messages of the thread before this run, to compare the replay
    with.
    """

    answers: Mapping[str, ResumeEntry]
    current: frozenset[str]
    settled: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    sent: Sequence[Message] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RunContext:
    """The data of one run.

    ``input`` is the input of the agent. In a replay it is that of the root run, ``resume_input`` is the one that
    brought the answers, and ``client_state`` is the current state of the client. ``writer`` has been started; the
    caller sends its RUN_STARTED. ``recorded`` are the results of ``once`` under the root run, as JSON. ``new_id`` makes
    error references. ``title`` is that of the thread when the run began. ``max_state`` is how many bytes of state a
    client may send. If ``is_stored`` is False, the run can neither ask, nor record an effect, nor change the session or
    the title. ``is_known`` returns whether the thread has a message. ``earlier_calls`` are the ids of calls that the
    thread has and the input may lack.
    ``find_lost_calls`` returns the ids of those that a process died in.
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
    title: str | None = None
    principal: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    client_state: Any = None
    max_state: int | None = None
    is_stored: bool = True
    debug: bool = False
    is_known: Callable[[Message], Awaitable[bool]] | None = None
    earlier_calls: frozenset[str] = frozenset()
    find_lost_calls: Callable[[], Awaitable[frozenset[str]]] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a run ended.

    ``interrupts`` are its open questions. ``asked`` are the ids of those that ``run.ask`` raised, whose answers replay
    the agent. ``session`` is the private value to store. It is as the agent left it. If the run failed or asked with
    ``run.ask``, it is as it was before the run: a replay changes it again. ``error`` is the exception that made the run
    fail, and ``reference`` the id in its log record. ``title`` is the new title of the thread, if the agent set one.
    ``usage`` is that of the terminal event. ``is_written`` is False if the sink refused that event.
    """

    outcome: Outcome
    interrupts: list[Interrupt] = field(default_factory=list[Interrupt])
    asked: frozenset[str] = frozenset()
    session: Any = None
    reference: str | None = None
    error: BaseException | None = None
    title: str | UnsetType | None = UNSET
    usage: Sequence[TokenUsage] = ()
    is_written: bool = True
