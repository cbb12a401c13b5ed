"""Layer: stream. The whole consumer: from what arrives to what it means, in the order the protocol fixes (PROC).

Below: every other module of this layer, and the codec. Above: the client, the server's projections, the tests and the
command line all read streams through this, so that nobody ever sees two answers::

    raw event -> compatibility boundary -> enforcement -> chunk expansion -> verification -> reduction

Middleware of the client works on raw events, before ``Consumer.feed`` (PROC-7).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final, get_args

import msgspec

from aguila.codec.compat import Level
from aguila.codec.json import EventDecoder, encode
from aguila.codec.notice import Warn, log_notice
from aguila.codec.official import from_official, is_official
from aguila.codec.text import MAX_SIZE
from aguila.errors import ProtocolError, StreamTruncated
from aguila.protocol import (
    Event,
    Message,
    ReasoningMessageContentEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    TextMessageContentEvent,
)
from aguila.stream.chunks import SHORTHANDS, ChunkExpander
from aguila.stream.conversation import Conversation
from aguila.stream.reduce import HANDLERS, Reducer
from aguila.stream.rules import RunState
from aguila.stream.verify import Verifier
from aguila.stream.version import version_notice

_TYPED: Final = frozenset(get_args(Event))
_BOUNDARIES: Final = frozenset({RunStartedEvent, RunFinishedEvent, RunErrorEvent})
_DELTAS: Final = frozenset({TextMessageContentEvent, ReasoningMessageContentEvent})
_PLAIN: Final = _TYPED - _BOUNDARIES - {kind.chunk for kind in SHORTHANDS}

Raw = bytes | str | dict[str, Any] | Event
"""One event as it may arrive: JSON, a plain object, or typed already."""


class Consumer:
    """Reads one stream. ``feed`` gives what an application may see of each event; ``conversation`` what it all means.

    ``messages`` and ``state`` are what the run started from. With ``producer`` the stream is held to the producer's
    duties as well. ``warn`` receives a ``Notice`` for everything tolerated.
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
        self._reducer = reducer or Reducer(messages=messages, state=state, warn=self._warn)
        self._index = 0
        self.before_run: Callable[[RunStartedEvent], None] | None = None
        """Told of every run that begins, before it is taken in; what it raises leaves everything as it was."""

    @property
    def conversation(self) -> Conversation:
        """What the stream means so far; a view that later events do not change."""
        return self._reducer.conversation

    @property
    def is_ended(self) -> bool:
        """Whether the last run is closed, so that the stream may end here."""
        return self._verifier.run_state in (RunState.FINISHED, RunState.FAILED)

    def feed(self, raw: Raw) -> list[Event]:
        """The events, expanded and verified, that one raw event stands for; none if it was dropped.

        Raises ``ProtocolError`` for what a consumer must refuse. What was delivered before stays in ``conversation``.
        """
        delivered: list[Event] = []
        index = self._index
        self._index = index + 1
        try:
            typed: Any = (raw,) if raw.__class__ in _TYPED else self._decoder.feed(_wire(raw))
            for event in typed:
                if event.__class__ is RunStartedEvent:
                    if self.before_run is not None:
                        self.before_run(event)
                    self._declare(event)
                for expanded in self._expander.feed(event):
                    self._verifier.feed(expanded)
                    self._reducer.feed(expanded)
                    delivered.append(expanded)
        except ProtocolError as error:
            error.index = index
            error.conversation = self.conversation
            raise
        return delivered

    def read(self, raw: Raw) -> Sequence[Event]:
        """The typed events that one raw event stands for, not taken in yet: that is for ``take``, which must be next.

        For one so large that it is read in a thread. Raises ``ProtocolError`` as ``feed`` does.
        """
        try:
            return (raw,) if raw.__class__ in _TYPED else self._decoder.feed(_wire(raw))  # type: ignore[return-value]
        except ProtocolError as error:
            error.index = self._index
            error.conversation = self.conversation
            raise

    def take(self, events: Sequence[Event]) -> list[Event]:
        """What ``feed`` gives for the raw event that ``read`` gave these for."""
        index = self._index
        delivered = [each for event in events for each in self.feed(event)]
        self._index = index + 1
        return delivered

    def feed_all(
        self, texts: Sequence[bytes], is_last: Callable[[Event], bool] | None = None
    ) -> Generator[Event, None, None]:
        """What ``feed`` gives for each of these in turn, several times faster where they are plain events.

        Each event is taken in just before it is given: ``conversation`` is never ahead of who iterates. ``is_last`` is
        asked about every event that begins or ends a run, after it was given, whether to leave the rest alone.
        """
        verifier, reducer, expander = self._verifier, self._reducer, self._expander
        kind, growing_id = None, ""
        at, count = 0, len(texts)
        while at < count:
            run: list[Any] = self._decoder.feed_run(texts, at)
            at += len(run)
            is_free = not expander.is_holding
            judges, otherwise = verifier.judges
            growing: Any = None
            for event in run:
                if (
                    growing is not None
                    and event.__class__ is kind
                    and event.message_id == growing_id
                    and event.subagent_run_id is event.metadata is None
                    and growing.is_dirty  # nobody has looked meanwhile
                ):
                    # The next piece of the text that the last event was a piece of: what was asked then holds still.
                    # Most events of most streams are this, and cost a quarter less for it.
                    growing.deltas.append(event.delta)
                    self._index += 1
                    yield event
                    continue
                growing = None
                if is_free and event.__class__ in _PLAIN:  # it stands for itself: what ``feed`` does, without the rest
                    try:
                        judges.get(event.__class__, otherwise)(verifier, event)
                        HANDLERS[event.__class__](reducer, event)
                    except ProtocolError as error:
                        error.index = self._index
                        error.conversation = self.conversation
                        raise
                    self._index += 1
                    if event.__class__ in _DELTAS and self._is_lenient:
                        kind, growing_id = event.__class__, event.message_id
                        growing = reducer.growing(growing_id)
                    yield event
                else:
                    for each in self.feed(event):
                        yield each
                        if is_last is not None and each.__class__ in _BOUNDARIES and is_last(each):
                            return
                    is_free = not expander.is_holding
                    judges, otherwise = verifier.judges
            if at < count:
                for each in self.feed(texts[at]):
                    yield each
                    if is_last is not None and each.__class__ in _BOUNDARIES and is_last(each):
                        return
                at += 1

    def close(self) -> Conversation:
        """The stream has ended. Gives the conversation if its last run did too.

        Raises ``StreamTruncated`` otherwise (TRN-7), or ``ProtocolError`` if the producer is held to its duties.
        """
        try:
            end = self._verifier.close()
        except ProtocolError as error:
            error.index = self._index
            error.conversation = self.conversation
            raise
        if end == "truncated":
            truncated = StreamTruncated("the stream ended without a terminal event: the run was cut off")
            truncated.conversation = self.conversation
            raise truncated
        return self.conversation

    def _declare(self, event: Event) -> None:
        assert isinstance(event, RunStartedEvent)  # noqa: S101
        notice = version_notice(event.protocol_version)
        if notice is not None:
            self._warn(notice)


def _wire(raw: Any) -> Any:
    """What the decoder reads: a typed object that is none of the protocol's events (a retired one, or one of the
    official package) as the JSON it stands for.
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
    """What a whole stream means to a consumer that started from ``messages`` and ``state`` (``{}`` unless given).

    Raises ``ProtocolError`` for what the protocol calls fatal and ``StreamTruncated`` if the stream ends before its
    run; both carry what was delivered until then in ``conversation``. A RUN_ERROR is no exception here: it is in
    ``run_error``.
    """
    consumer = Consumer(messages=messages, state=state, compat=compat, producer=producer, warn=warn, new_id=new_id)
    for raw in events:
        consumer.feed(raw)
    return consumer.close()
