"""The complete consumer pipeline, in the order that the protocol prescribes (PROC)::

    raw event -> compatibility boundary -> enforcement -> chunk expansion -> verification -> reduction

The client, the server's projections, the tests and the command line all read streams through it. Client middleware
works on raw events, before ``Consumer.feed`` (PROC-7).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final

import msgspec

from aguila.codec.compat import Level
from aguila.codec.json.decoder import EventDecoder
from aguila.codec.json.encoder import encode
from aguila.codec.json.text import MAX_SIZE
from aguila.codec.notices import Warn, log_notice
from aguila.codec.official import from_official, is_official
from aguila.errors import ProtocolError, StreamTruncated
from aguila.protocol import (
    ActivityDeltaEvent,
    Event,
    Message,
    ReasoningMessageContentEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StateDeltaEvent,
    TextMessageContentEvent,
)
from aguila.protocol.legacy import MetaEvent
from aguila.stream.chunks import CHUNK_KINDS, ChunkExpander
from aguila.stream.conversation import Conversation
from aguila.stream.reducer import HANDLERS, Reducer
from aguila.stream.type_errors import EVENT_CLASSES
from aguila.stream.verification.rules import RunState
from aguila.stream.verification.verifier import Verifier
from aguila.stream.version import producer_version_notice

_BOUNDARIES: Final = frozenset({RunStartedEvent, RunFinishedEvent, RunErrorEvent})
_DELTAS: Final = frozenset({TextMessageContentEvent, ReasoningMessageContentEvent})
_PATCHES: Final = frozenset({StateDeltaEvent, ActivityDeltaEvent})
_PLAIN: Final = EVENT_CLASSES - _BOUNDARIES - {kind.chunk for kind in CHUNK_KINDS}

Raw = bytes | str | dict[str, Any] | Event
"""One event as it may arrive: JSON text, a decoded JSON object, or a typed event."""


class Consumer:
    """Read one stream. ``feed`` returns the events for the application; ``conversation`` is the result so far.

    ``messages`` and ``state`` are those that the run started from. ``producer=True`` also checks the rules for
    producers. ``warn`` receives a ``Notice`` for every tolerated fault.
    """

    def __init__(
        self,
        *,
        messages: Sequence[Message] = (),
        state: Any = msgspec.UNSET,
        compat: Level = "standard",
        producer: bool = False,
        warn: Warn | None = None,
        new_id: Callable[[], str] | None = None,
        reducer: Reducer | None = None,
        max_size: int = MAX_SIZE,
    ) -> None:
        self._warn = warn or log_notice
        self._decoder = EventDecoder(compat=compat, warn=self._warn, new_id=new_id, max_size=max_size)
        self._expander = ChunkExpander()
        self._verifier = Verifier(producer=producer)
        self._is_lenient = not producer
        self._reducer = reducer or Reducer(messages=messages, state=state, warn=self._warn, max_size=max_size)
        self._index = 0
        self.on_run_started: Callable[[RunStartedEvent], None] | None = None
        """Callback, called before each RUN_STARTED is applied. If it raises, the consumer is unchanged."""

    @property
    def conversation(self) -> Conversation:
        """The conversation so far. Later events do not change the returned view."""
        return self._reducer.conversation

    @property
    def is_ended(self) -> bool:
        """Whether the last run has ended, so that the stream may end here."""
        return self._verifier.run_state in (RunState.FINISHED, RunState.FAILED)

    def feed(self, raw: Raw) -> list[Event]:
        """Process one raw event and return the resulting events, expanded and verified. Empty if it was dropped.

        META, a retired event, is RAW in a run. Outside a run it is returned as it is, and has no effect.

        Raises ``ProtocolError`` if a consumer must refuse the event. ``conversation`` keeps the events that were
        delivered before.
        """
        index = self._index
        self._index = index + 1
        try:
            if raw.__class__ in _PLAIN and not self._expander.lanes:  # the event expands to itself
                self._verifier.feed(raw)  # type: ignore[arg-type]
                self._reducer.feed(raw)  # type: ignore[arg-type]
                return [raw]  # type: ignore[list-item]
            delivered: list[Event] = []
            typed: Any = (raw,) if raw.__class__ in EVENT_CLASSES else self._decoder.feed(_to_decodable(raw))
            for event in typed:
                if event.__class__ is MetaEvent:  # outside a run
                    delivered.append(event)
                    continue
                if event.__class__ is RunStartedEvent:
                    if self.on_run_started is not None:
                        self.on_run_started(event)
                    self._check_version(event)
                if event.__class__ in _BOUNDARIES:
                    self._decoder.observe(event)
                for expanded in self._expander.feed(event):
                    self._verifier.feed(expanded)
                    self._reducer.feed(expanded)
                    delivered.append(expanded)
        except ProtocolError as error:
            error.index = index
            error.conversation = self.conversation
            raise
        return delivered

    def decode(self, raw: Raw) -> Sequence[Event]:
        """Decode one raw event, and compute its patch, without applying it. The next call must be ``apply``.

        For events so large that they are decoded in a thread. Raises ``ProtocolError`` as ``feed`` does.
        """
        try:
            typed: Any = (raw,) if raw.__class__ in EVENT_CLASSES else self._decoder.feed(_to_decodable(raw))
            for event in typed:
                if event.__class__ in _PATCHES:
                    self._reducer.prepare(event)
            return typed
        except ProtocolError as error:
            error.index = self._index
            error.conversation = self.conversation
            raise

    def apply(self, events: Sequence[Event]) -> list[Event]:
        """Apply the events that ``decode`` returned, and return the result that ``feed`` would."""
        index = self._index
        delivered = [each for event in events for each in self.feed(event)]
        self._index = index + 1
        return delivered

    def feed_all(
        self, texts: Sequence[bytes], is_last: Callable[[Event], bool] | None = None
    ) -> Generator[Event, None, None]:
        """Yield what ``feed`` returns for each raw event, several times faster for most events.

        Each event is applied just before it is yielded, so ``conversation`` is never ahead of the caller. ``is_last``
        is called for every event that starts or ends a run, after it was yielded. If it returns True, the rest is not
        read.
        """
        verifier, reducer, expander = self._verifier, self._reducer, self._expander
        kind, builder_id = None, ""
        at, count = 0, len(texts)
        while at < count:
            run: list[Any] = self._decoder.feed_exact(texts, at)
            at += len(run)
            is_free = not expander.has_open_items
            handlers, default_handler = verifier.handlers
            builder: Any = None
            for event in run:
                if (
                    builder is not None
                    and event.__class__ is kind
                    and event.message_id == builder_id
                    and event.subagent_run_id is event.metadata is None
                    and builder.is_dirty  # no view was taken since
                ):
                    # The next delta of the same message: the checks of the delta before still hold. Most events of most
                    # streams take this path, which saves a quarter of their cost.
                    builder.deltas.append(event.delta)
                    self._index += 1
                    yield event
                    continue
                builder = None
                if is_free and event.__class__ in _PLAIN:  # the event expands to itself
                    try:
                        handlers.get(event.__class__, default_handler)(verifier, event)
                        HANDLERS[event.__class__](reducer, event)
                    except ProtocolError as error:
                        error.index = self._index
                        error.conversation = self.conversation
                        raise
                    self._index += 1
                    if event.__class__ in _DELTAS and self._is_lenient:
                        kind, builder_id = event.__class__, event.message_id
                        builder = reducer.find_text_builder(builder_id)
                    yield event
                else:
                    for each in self.feed(event):
                        yield each
                        if is_last is not None and each.__class__ in _BOUNDARIES and is_last(each):
                            return
                    is_free = not expander.has_open_items
                    handlers, default_handler = verifier.handlers
            if at < count:
                for each in self.feed(texts[at]):
                    yield each
                    if is_last is not None and each.__class__ in _BOUNDARIES and is_last(each):
                        return
                at += 1

    def close(self) -> Conversation:
        """End the stream and return the conversation.

        Raises ``StreamTruncated`` if the last run has not ended (TRN-7), or ``ProtocolError`` with ``producer=True``.
        """
        try:
            end = self._verifier.close()
        except ProtocolError as error:
            error.index = self._index
            error.conversation = self.conversation
            raise
        if end == "truncated":
            truncated = StreamTruncated("the stream ended without RUN_FINISHED or RUN_ERROR: the run was cut off")
            truncated.conversation = self.conversation
            raise truncated
        return self.conversation

    def _check_version(self, event: RunStartedEvent) -> None:
        notice = producer_version_notice(event.protocol_version)
        if notice is not None:
            self._warn(notice)


def _to_decodable(raw: Any) -> Any:
    """Convert a raw event to a form that the decoder reads.

    Typed objects of retired events and of the official package become JSON.
    """
    if isinstance(raw, msgspec.Struct):
        return encode(raw)
    return encode(from_official(raw)) if is_official(raw) else raw


def consume(
    events: Iterable[Raw],
    *,
    messages: Sequence[Message] = (),
    state: Any = msgspec.UNSET,
    compat: Level = "standard",
    producer: bool = False,
    warn: Warn | None = None,
    new_id: Callable[[], str] | None = None,
) -> Conversation:
    """Read a whole stream, starting from ``messages`` and ``state`` (default ``{}``), and return the conversation.

    Raises ``ProtocolError`` for a fatal violation, and ``StreamTruncated`` if the stream ends before its run. Both have
    the conversation so far as ``conversation``. A RUN_ERROR does not raise: it is in ``run_error``.
    """
    consumer = Consumer(messages=messages, state=state, compat=compat, producer=producer, warn=warn, new_id=new_id)
    for raw in events:
        consumer.feed(raw)
    return consumer.close()
