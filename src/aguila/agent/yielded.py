"""Turn the values other than text that an agent yields or returns into events.

An agent's own RUN_FINISHED or RUN_ERROR is kept for the end of the run, because a run ends when its agent has ended. So
are usage and questions in chat contents. From the first chat update on, everything that an agent yields goes through
the chat mapping, which knows the open items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from aguila.agent.chat_values import CHAT, is_delta, is_usage, with_parts
from aguila.agent.context import RunContext
from aguila.chat.from_chat.updates import UpdateWriter
from aguila.chat.hooks import NO_HOOKS, Hooks
from aguila.codec.compat.retired import RETIRED_CLASSES, RetiredEvents
from aguila.codec.official import from_official, is_official
from aguila.errors import EncodeError, IllegalStep
from aguila.offload import is_large
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    CustomEvent,
    Event,
    Interrupt,
    Message,
    RawEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    TokenUsage,
    replace,
)
from aguila.stream.writer import Events

if TYPE_CHECKING:
    from aguila.agent.output import Output

_EVENTS: frozenset[type[Any]] = frozenset(get_args(Event))
_STATE: frozenset[type[Any]] = frozenset({StateDeltaEvent, StateSnapshotEvent})
_BESIDE_TEXT = _STATE | {CustomEvent, RawEvent, ActivitySnapshotEvent, ActivityDeltaEvent}
"""Events that may be yielded in the middle of a text without ending its message."""


@dataclass(slots=True, eq=False)
class YieldedValues:
    """Makes the events of values other than text that an agent yields. ``output`` sends them."""

    _context: RunContext
    _output: Output
    ending: RunFinishedEvent | RunErrorEvent | None = None
    """The terminal event that the agent sent itself."""
    hooks: Hooks = NO_HOOKS
    """Called for chat contents before they are mapped."""
    chat: UpdateWriter | None = None
    """The mapping for yielded chat values, from the first of them on."""
    chats: list[UpdateWriter] = field(default_factory=list[UpdateWriter])
    """``chat``, and the mappings of chat handles."""
    _retired: RetiredEvents | None = None

    @property
    def usage(self) -> list[TokenUsage]:
        """The token usage in chat contents."""
        return [usage for chat in self.chats for usage in chat.usage]

    @property
    def interrupts(self) -> list[Interrupt]:
        """The questions in chat contents."""
        return [interrupt for chat in self.chats for interrupt in chat.interrupts]

    def is_large(self, value: Any) -> bool:
        """Return whether ``prepare`` should be called in a thread. Hooks get chat values as they are."""
        if value.__class__ in _STATE:
            return is_large(value)
        return isinstance(value, CHAT) and self.hooks is NO_HOOKS and not is_delta(value) and is_large(value)

    def prepare(self, value: Any) -> Any:
        """Do the slow part of sending a large value, for which no other output has to wait. Return it as it is then."""
        if value.__class__ in _STATE:
            self._output.agent_writer.prepare(value)
            return value
        return with_parts(value)

    def is_sent(self, value: Any) -> bool:
        """Return whether a returned value is sent. Any other is the result of the run, and so is a list."""
        is_event = value.__class__ in _EVENTS or value.__class__ in RETIRED_CLASSES
        return is_event or isinstance(value, (str, *CHAT)) or is_official(value)

    def events_of(self, value: Any) -> Events:
        """Return the events of a value that is not text.

        Raises ``EncodeError`` if it cannot be sent, ``IllegalStep`` if not now.
        """
        if value.__class__ in _EVENTS:
            return self._events_of_event(value)
        if isinstance(value, CHAT):
            return self._events_of_chat(value)
        event: Any = from_official(value) if is_official(value) else value
        if event.__class__ in RETIRED_CLASSES:
            event = self._retired_events().convert(event)
        if event.__class__ in _EVENTS:
            return self._events_of_event(event)
        if event is not value:
            raise EncodeError(f"the agent yielded ag_ui's {type(value).__name__}, which is not an event")
        allowed = "yield text, events, chat updates, chat messages or lists of these"
        raise EncodeError(f"the agent yielded {type(value).__name__}; {allowed}")

    def _events_of_event(self, event: Any) -> Events:
        cls = event.__class__
        if cls is RunErrorEvent:
            if not isinstance(self.ending, RunErrorEvent):
                self.ending = event  # also after RUN_FINISHED: a late failure is a failure (LIFE-15)
            return []
        if self.ending is not None:
            self.refuse_more(str(event.type))
        if cls not in _BESIDE_TEXT:
            self._output.end_text()
        if cls is RunFinishedEvent:
            self.ending = self._with_run_id(event)
            return []
        if cls is RunStartedEvent:
            return self._output.agent_writer.emit(self._with_run_id(event))  # refused, or already sent
        if self.chat is not None:
            return self._events_of_chat(event)
        if cls not in _STATE:
            return self._output.agent_writer.emit(event)
        self._output.settle_state()
        return self._adopt_state(self._output.agent_writer.emit(event))

    def _events_of_chat(self, value: Any) -> Events:
        if self.chat is None:
            self._output.end_text()
            self.chat = self.new_chat(self._context.input.messages)
            self.chat.retired = self._retired_events()  # they may continue reasoning that was started before
        return self.events_of_update(self.chat, value)

    def new_chat(self, messages: Sequence[Message] = ()) -> UpdateWriter:
        """Make a mapping for one stream of chat updates. It does not use the ids of ``messages`` again."""
        chat = UpdateWriter(
            self._output.agent_writer,
            messages=messages,
            hooks=self.hooks,
            new_id=lambda: self._output.branches.new_id("msg"),
        )
        self.chats.append(chat)
        return chat

    def events_of_update(self, chat: UpdateWriter, value: Any) -> Events:
        """Return the events of a value in a stream of chat updates. Raises as ``events_of``."""
        if self.ending is not None and not is_usage(value):
            self.refuse_more(type(value).__name__)
        if value.__class__ is not str and not is_delta(value):
            self._output.settle_state()
        chat.counts_usage = not self._output.is_muted
        try:
            events = self._adopt_state(chat.feed(value))
        except Exception:
            self._output.put(self._adopt_state(chat.take()))  # the events from before the failure
            raise
        if chat.ending is not None and self.ending is None:
            self.ending = chat.ending
        return events

    def _adopt_state(self, events: Events) -> Events:
        if any(event.__class__ in _STATE for event in events):
            self._output.state.adopt()
            return self._output.adopt_state(events)
        return events

    def _retired_events(self) -> RetiredEvents:
        if self._retired is None:
            self._retired = RetiredEvents(lambda: self._output.branches.new_id("rsn"))
        return self._retired

    def _with_run_id(self, event: Any) -> Any:
        """Replace the run id by the current one: a replayed agent reads that of the root run from its input."""
        if event.thread_id == self._context.thread_id and event.run_id == self._context.input.run_id:
            return replace(event, run_id=self._context.run_id)
        return event

    def refuse_more(self, what: str) -> NoReturn:
        """Raise ``IllegalStep`` for output after the agent's own terminal event."""
        assert self.ending is not None  # noqa: S101
        raise IllegalStep(f"{what} after the agent's own {self.ending.type}", rule="LIFE-15")
