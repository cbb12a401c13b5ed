"""Translate a stream of our events for a client of an older generation.

A translation changes no id and no order (VER-12). Data that the client cannot read is reported as a VER-16 notice. The
departures from the protocol, each because the published clients leave no other way, are listed in docs/dialects.md.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar, Final

from aguila.codec.compat.context import METADATA_KEY
from aguila.codec.dialects.content import Link, translate_content, translate_message, unless_unchanged
from aguila.codec.dialects.requests import strip_subagents
from aguila.codec.dialects.table import CURRENT, Dialect, parse_peer
from aguila.codec.json.values import is_object
from aguila.codec.notices import Notice, Warn, log_notice
from aguila.errors import PatchError
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    CustomEvent,
    Event,
    EventType,
    Message,
    MessagesSnapshotEvent,
    ReasoningEncryptedValueEvent,
    ReasoningEndEvent,
    ReasoningMessageChunkEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    TextMessageChunkEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallResultEvent,
    replace,
)
from aguila.protocol.legacy import (
    META_PREFIX,
    MetaEvent,
    ThinkingEndEvent,
    ThinkingStartEvent,
    ThinkingTextMessageContentEvent,
    ThinkingTextMessageEndEvent,
    ThinkingTextMessageStartEvent,
)

_UNKNOWN: Final[Any] = object()

ApplyPatch = Callable[[Any, Any], Any]
"""Returns a document with a JSON Patch applied. Raises ``PatchError``."""


class Translator:
    """Rewrites the events of one stream, in order.

    ``link`` returns the address of a file that the reader may download. ``apply_patch`` applies a JSON Patch and raises
    ``PatchError``; without it, deltas are never replaced by snapshots. ``warn`` receives the losses.
    """

    def __init__(
        self,
        dialect: Dialect,
        *,
        link: Link | None = None,
        apply_patch: ApplyPatch | None = None,
        warn: Warn = log_notice,
    ) -> None:
        self.dialect = dialect
        self.run_id: str | None = None
        """The run whose events are being translated; None until its RUN_STARTED, or ``supply_state``, named it."""
        self._link = link
        self._apply_patch = apply_patch
        self._warn = warn
        self._event_type: str | None = None
        self._has_state = False
        self._state: Any = _UNKNOWN
        self._state_run: str | None = None
        self._is_patched = False  # the client's state depends on a STATE_DELTA
        self._activities: dict[str, ActivitySnapshotEvent] = {}
        self._dropped_texts: set[str] = set()
        self._chunk_is_dropped = False
        self._thinking = _Thinking()

    @property
    def needs_state(self) -> bool:
        """Whether a STATE_DELTA that came now would need the state before it, from ``supply_state``."""
        return (
            self.dialect.state_baseline
            and not self._has_state
            and (self._state is _UNKNOWN or self._state_run != self.run_id)
        )

    def supply_state(self, run_id: str, state: Any) -> None:
        """Set the state that the client has when the next STATE_DELTA of this run arrives."""
        if self.run_id is None:
            self.run_id = run_id
        self._state_run, self._state = run_id, state

    def feed(self, event: Event) -> list[Any]:
        """Translate one event: into itself, another one, several, or none."""
        dialect = self.dialect
        if dialect is CURRENT:
            return [event]
        self._event_type = event.type
        if not dialect.subagents:
            stripped = self._without_subagents(event)
            if stripped is None:
                return []
            event = stripped
        rewrite = self._rewrites.get(event.__class__)
        return [event] if rewrite is None else rewrite(self, event)

    def _without_subagents(self, event: Event) -> Event | None:
        if isinstance(event, RunStartedEvent | MessagesSnapshotEvent):
            return event  # its messages are rewritten one by one
        return strip_subagents(event, self._warn)

    # Runs

    def start_run(self, run_id: str) -> None:
        """Forget the run before. ``feed`` does this for a RUN_STARTED."""
        self.run_id = run_id
        self._has_state = False
        self._is_patched = False
        if self._state_run != run_id:
            self._state = _UNKNOWN
        self._activities.clear()
        self._dropped_texts.clear()
        self._chunk_is_dropped = False
        self._thinking = _Thinking()

    def _run_started(self, event: RunStartedEvent) -> list[Any]:
        dialect = self.dialect
        self.start_run(event.run_id)
        changes: dict[str, Any] = {}
        version = event.protocol_version
        if version is not None and dialect.protocol_version != "own":
            # A translator declares the version that it emits (VER-9).
            if dialect.protocol_version == "none":
                changes["protocol_version"] = None
            elif (parse_peer(version) or (1, 1, 0)) > (1, 0, 0):
                changes["protocol_version"] = dialect.protocol_version
        given = event.input
        if given is not None:
            within: dict[str, Any] = {}
            messages = self._messages(given.messages, "/input/messages")
            if messages is not given.messages:
                within["messages"] = messages
            if dialect.protocol_version == "none" and given.protocol_version is not None:
                within["protocol_version"] = None
            if dialect.complete_inputs:
                # Empty values that an older schema requires (VER-13).
                within |= {name: [] for name in ("tools", "context") if getattr(given, name) is None}
            if within:
                changes["input"] = replace(given, **within)
        return [replace(event, **changes) if changes else event]

    def _run_finished(self, event: RunFinishedEvent) -> list[Any]:
        outcome, sent = event.outcome, self.dialect.outcomes
        if outcome is not None and sent is not None and outcome.type not in sent:
            if not isinstance(outcome, RunFinishedSuccessOutcome):
                self._report(f"the outcome {outcome.type!r}", "/outcome")
            event = replace(event, outcome=None)
        return [*self._last_state(), *self._thinking.close(), event]

    def _run_error(self, event: RunErrorEvent) -> list[Any]:
        return [*self._last_state(), *self._thinking.close(), event]

    def _last_state(self) -> list[Any]:
        if not self._is_patched or not self.dialect.final_state:
            return []
        self._is_patched = False
        return [StateSnapshotEvent(snapshot=self._state)]

    # State and messages

    def _state_snapshot(self, event: StateSnapshotEvent) -> list[Any]:
        self._has_state = True
        self._is_patched = False
        self._state = event.snapshot
        return [event]

    def _state_delta(self, event: StateDeltaEvent) -> list[Any]:
        dialect = self.dialect
        if not dialect.state_baseline or (not self._has_state and self._state is _UNKNOWN):
            return [event]
        before = self._state
        if self._apply_patch is not None:
            with suppress(PatchError):  # a failed patch changes nothing (SNAP-9)
                self._state = self._apply_patch(before, event.delta)
        if self._apply_patch is not None and not dialect.patches:
            self._has_state = True
            self._note("STATE_SNAPSHOT events are sent instead of STATE_DELTA: the client cannot patch in Node")
            return [StateSnapshotEvent(snapshot=self._state, subagent_run_id=event.subagent_run_id)]
        self._is_patched = self._apply_patch is not None
        if self._has_state:
            return [event]
        self._has_state = True
        self._note(
            "a STATE_SNAPSHOT is sent before the run's first STATE_DELTA: without one, such clients apply the delta to "
            "an empty state"
        )
        return [StateSnapshotEvent(snapshot=before), event]

    def _note(self, what: str) -> None:
        """Report something that is added for the client."""
        message = f"{what}; the client {self._peer}, and one that declares protocol 1.0 does not need it"
        self._warn(Notice(rule="VER-16", message=message, event_type=self._event_type, is_routine=True))

    def _messages_snapshot(self, event: MessagesSnapshotEvent) -> list[Any]:
        messages = self._messages(event.messages, "/messages")
        return [event if messages is event.messages else replace(event, messages=messages)]

    def _messages(self, messages: list[Message], path: str) -> list[Message]:
        """Return the same list if no message changes."""
        translated = unless_unchanged(
            [
                translate_message(message, self.dialect, self._link, self._report, f"{path}/{at}")
                for at, message in enumerate(messages)
            ],
            messages,
        )
        return messages if translated is messages else [message for message in translated if message is not None]

    def _tool_result(self, event: ToolCallResultEvent) -> list[Any]:
        if isinstance(event.content, str):
            return [event]
        content = translate_content(event.content, self.dialect, self._link, self._report, "/content", is_result=True)
        return [event if content is event.content else replace(event, content=content)]

    def _activity_snapshot(self, event: ActivitySnapshotEvent) -> list[Any]:
        if not self.dialect.activities:
            self._report(str(event.type), "")
            return []
        if not self.dialect.patches and (event.replace is not False or event.message_id not in self._activities):
            self._activities[event.message_id] = event
        return [event]

    def _activity_delta(self, event: ActivityDeltaEvent) -> list[Any]:
        if not self.dialect.activities:
            self._report(str(event.type), "")
            return []
        held = self._activities.get(event.message_id)
        if self.dialect.patches or held is None or self._apply_patch is None:
            return [event]
        with suppress(PatchError):
            held = replace(held, content=self._apply_patch(held.content, event.patch), replace=None)
        self._activities[event.message_id] = held
        self._note(
            "ACTIVITY_SNAPSHOT events are sent instead of ACTIVITY_DELTA: the client cannot apply patches in Node"
        )
        return [held]

    # Text

    def _text_start(self, event: TextMessageStartEvent) -> list[Any]:
        if not self.dialect.text_roles:
            if event.role not in (None, "assistant"):
                self._report(f"a streamed message with the role {event.role!r}", "/role")
                self._dropped_texts.add(event.message_id)
                return []
            self._dropped_texts.discard(event.message_id)
        if event.role is not None or self.dialect.implied_text_role:
            return [event]
        return [replace(event, role="assistant")]

    def _text_content(self, event: TextMessageContentEvent) -> list[Any]:
        if event.message_id in self._dropped_texts or (event.delta == "" and not self.dialect.empty_deltas):
            return []
        return [event]

    def _text_end(self, event: TextMessageEndEvent) -> list[Any]:
        return [] if event.message_id in self._dropped_texts else [event]

    def _text_chunk(self, event: TextMessageChunkEvent) -> list[Any]:
        if self.dialect.text_roles:
            return [event]
        if event.message_id is not None or event.role is not None:
            self._chunk_is_dropped = event.role not in (None, "assistant")
            if self._chunk_is_dropped:
                self._report(f"a streamed message with the role {event.role!r}", "/role")
        return [] if self._chunk_is_dropped else [event]

    def _custom(self, event: CustomEvent) -> list[Any]:
        if not self.dialect.meta_events or not event.name.startswith(META_PREFIX):
            return [event]
        meta_type = event.name.removeprefix(META_PREFIX)
        return [
            MetaEvent(
                meta_type=meta_type,
                payload=event.value,
                timestamp=event.timestamp,
                raw_event=event.raw_event,
                metadata=event.metadata,
            )
        ]

    # Reasoning

    def _reasoning(self, event: Any) -> list[Any]:
        kind = self.dialect.reasoning
        if kind == "reasoning":
            if isinstance(event, ReasoningMessageContentEvent) and event.delta == "" and not self.dialect.empty_deltas:
                return []
            return [event]
        if kind == "none":
            self._report("reasoning", "")
            return []
        return self._thinking.feed(event)

    def _encrypted_value(self, event: ReasoningEncryptedValueEvent) -> list[Any]:
        if self.dialect.reasoning != "reasoning":
            self._report("an encrypted value", "")
            return []
        if event.encrypted_value_type is None or self.dialect.encrypted_value_types:
            return [event]
        self._report("encryptedValueType", "/encryptedValueType")
        return [replace(event, encrypted_value_type=None)]

    @property
    def _peer(self) -> str:
        name = self.dialect.name
        return "declares no version" if name == "undeclared" else f"is {name}"

    def _report(self, what: str, path: str) -> None:
        message = f"{what} is lost: the client {self._peer} and cannot read it; one that declares a newer version can"
        self._warn(Notice(rule="VER-16", message=message, path=path, event_type=self._event_type))

    _rewrites: ClassVar[dict[type[Any], Callable[[Translator, Any], list[Any]]]] = {
        RunStartedEvent: _run_started,
        RunFinishedEvent: _run_finished,
        RunErrorEvent: _run_error,
        StateSnapshotEvent: _state_snapshot,
        StateDeltaEvent: _state_delta,
        MessagesSnapshotEvent: _messages_snapshot,
        ToolCallResultEvent: _tool_result,
        CustomEvent: _custom,
        ActivitySnapshotEvent: _activity_snapshot,
        ActivityDeltaEvent: _activity_delta,
        TextMessageStartEvent: _text_start,
        TextMessageContentEvent: _text_content,
        TextMessageEndEvent: _text_end,
        TextMessageChunkEvent: _text_chunk,
        ReasoningStartEvent: _reasoning,
        ReasoningMessageStartEvent: _reasoning,
        ReasoningMessageContentEvent: _reasoning,
        ReasoningMessageEndEvent: _reasoning,
        ReasoningMessageChunkEvent: _reasoning,
        ReasoningEndEvent: _reasoning,
        ReasoningEncryptedValueEvent: _encrypted_value,
    }


class _Thinking:
    """REASONING_* as the THINKING_* events of 0.0.40 to 0.0.44: one span and one message at a time, without ids.

    Spans that overlap become one, and so do messages. A message outside a span gets one.
    """

    def __init__(self) -> None:
        self._spans: set[str] = set()
        self._messages: set[str] = set()
        self._chunked: str | None = None
        self._is_open = False  # THINKING_START was sent

    def feed(self, event: Any) -> list[Any]:
        if isinstance(event, ReasoningMessageChunkEvent):
            message_id = event.message_id if event.message_id is not None else self._chunked
            opened = self._end_chunks() if message_id != self._chunked else []
            if message_id is None:
                return opened
            opened += self._start(message_id)
            self._chunked = message_id
            return [*opened, ThinkingTextMessageContentEvent(delta=event.delta)] if event.delta else opened
        ended = self._end_chunks()
        if isinstance(event, ReasoningStartEvent):
            self._spans.add(event.message_id)
            return ended + self._open(_title(event))
        if isinstance(event, ReasoningMessageStartEvent):
            return ended + self._start(event.message_id)
        if isinstance(event, ReasoningMessageContentEvent):
            if event.delta == "":
                return ended
            return [*ended, *self._start(event.message_id), ThinkingTextMessageContentEvent(delta=event.delta)]
        if isinstance(event, ReasoningMessageEndEvent):
            return ended + self._end(event.message_id)
        self._spans.discard(event.message_id)
        return ended + self._close_if_done()

    def close(self) -> list[Any]:
        """End all open items, because the run ends."""
        self._spans.clear()
        closed = [event for message_id in list(self._messages) for event in self._end(message_id)]
        return closed + self._close_if_done()

    def _open(self, title: str | None = None) -> list[Any]:
        if self._is_open:
            return []
        self._is_open = True
        return [ThinkingStartEvent(title=title)]

    def _start(self, message_id: str) -> list[Any]:
        if message_id in self._messages:
            return []
        opened = self._open()
        if not self._messages:
            opened.append(ThinkingTextMessageStartEvent())
        self._messages.add(message_id)
        return opened

    def _end(self, message_id: str) -> list[Any]:
        if message_id not in self._messages:
            return []
        self._messages.discard(message_id)
        if self._messages:
            return []
        return [ThinkingTextMessageEndEvent(), *self._close_if_done()]

    def _end_chunks(self) -> list[Any]:
        chunked, self._chunked = self._chunked, None
        return [] if chunked is None else self._end(chunked)

    def _close_if_done(self) -> list[Any]:
        if not self._is_open or self._spans or self._messages:
            return []
        self._is_open = False
        return [ThinkingEndEvent()]


def _title(event: ReasoningStartEvent) -> str | None:
    """Return the title that a THINKING_START had, which ``compat`` keeps in the metadata."""
    own: Any = (event.metadata or {}).get(METADATA_KEY)
    title = own.get("title") if is_object(own) else None
    return title if isinstance(title, str) else None


_REASONING: Final = frozenset(type_ for type_ in EventType if type_.startswith("REASONING_"))


def translated_types(dialect: Dialect) -> list[str]:
    """Return the event types that a dialect may change, drop or has to see, other than for their ``subagentRunId``."""
    types: set[str] = {
        EventType.RUN_STARTED,
        EventType.RUN_FINISHED,
        EventType.STATE_SNAPSHOT,
        EventType.STATE_DELTA,
        EventType.MESSAGES_SNAPSHOT,
        EventType.TOOL_CALL_RESULT,
        EventType.REASONING_ENCRYPTED_VALUE,
    }
    if not dialect.subagents:
        types |= {type_ for type_ in EventType if type_.startswith("SUBAGENT_")}
    if not dialect.activities or not dialect.patches:
        types |= {EventType.ACTIVITY_SNAPSHOT, EventType.ACTIVITY_DELTA}
    if not dialect.empty_deltas:
        types |= {EventType.TEXT_MESSAGE_CONTENT, EventType.REASONING_MESSAGE_CONTENT}
    if not dialect.implied_text_role:
        types |= {EventType.TEXT_MESSAGE_START}
    if not dialect.text_roles:
        types |= {type_ for type_ in EventType if type_.startswith("TEXT_MESSAGE_")}
    if dialect.final_state or dialect.reasoning != "reasoning":
        types |= {EventType.RUN_ERROR}
    if dialect.reasoning != "reasoning":
        types |= _REASONING
    if dialect.meta_events:
        types |= {EventType.CUSTOM}
    return sorted(str(type_) for type_ in types)
