"""Layer: testing. Everything that is wrong with a stream, not only the first thing: what ``aguila check`` reports.

Below: the parts of ``aguila.stream``'s consumer, each made to go on after a violation. Above: ``assert_stream`` and
``aguila check``. It judges events one by one; ``stored`` finds them in bytes and judges their framing. It does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from aguila.codec import EventDecoder, encode_event
from aguila.codec.compat import Level as Compat
from aguila.codec.notices import Notice
from aguila.errors import DecodeError, ProtocolError, SequenceError
from aguila.protocol import Event, Message, RunStartedEvent
from aguila.stream import ChunkExpander, Conversation, Reducer, Verifier
from aguila.stream.consumer import Raw
from aguila.stream.version import producer_version_notice

Level = Literal["error", "warning", "note"]
"""``error``: a consumer must refuse the stream. ``warning``: the producer broke a rule, and consumers tolerate it or do
not look. ``note``: nothing is broken, and somebody may want to know."""


_EMPTY = "the stream is empty: there is no event in it"


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was found: the rule, what is wrong, and in which event (counted from 0), if it is about one."""

    level: Level
    rule: str
    message: str
    index: int | None = None
    event: str | None = None
    path: str = ""
    stream: int = 0

    def __str__(self) -> str:
        """The finding as one line."""
        where = "stream" if self.index is None else f"event {self.index}"
        kind = "" if self.event is None else f" {self.event}"
        at = f" at {self.path!r}" if self.path else ""
        return f"{where}{kind}: {self.message}{at} [{self.rule}]"


class StreamChecker:
    """Reads one stream to its end, whatever it holds. ``findings`` has all that is wrong with what was fed.

    ``messages`` and ``state`` are what the run started from: patches are tried on them.
    """

    def __init__(self, *, messages: Sequence[Message] = (), state: Any = None, compat: Compat = "standard") -> None:
        self.findings: list[Finding] = []
        self.types: list[str] = []
        """The types of the events that could be read."""
        self._decoder = EventDecoder(compat=compat, warn=self._noticed)
        self._expander = ChunkExpander()
        self._consumer = Verifier(collect=True)
        self._producer = Verifier(collect=True, producer=True)
        self._reducer = Reducer(messages, {} if state is None else state, warn=self._reduced)
        self._index = 0
        self._count = 0
        self._owed: set[str] = set()  # the rules that the event at hand has broken

    @property
    def conversation(self) -> Conversation:
        """What the stream means, as far as it means anything."""
        return self._reducer.conversation

    def feed(self, raw: Raw, index: int | None = None) -> None:
        """StreamChecker the next event; ``index`` is its place in the stream if that is not the next one."""
        self._index = self._count if index is None else index
        self._count = self._index + 1
        # A typed event goes through JSON, too: that is where a peer would read it.
        data = raw if isinstance(raw, bytes | str | dict) else encode_event(raw)
        try:
            for event in self._decoder.feed(data):
                self._judge(event)
        except (DecodeError, SequenceError) as error:
            self._refused(error)

    def close(self, *, is_cut: bool = False) -> list[Finding]:
        """The stream has ended; with ``is_cut`` it is known already that it was cut off. Gives all findings."""
        self._index = self._count
        if not is_cut:
            self._verdict(None)
        return self.findings

    def _judge(self, event: Event) -> None:
        self.types.append(str(event.type))
        if event.__class__ is RunStartedEvent:
            notice = producer_version_notice(event.protocol_version)  # type: ignore[union-attr]
            if notice is not None and notice.rule == "VER-7":  # what cannot be read at all is a duty broken (VER-3)
                self._add("note", notice.rule, notice.message, str(event.type), notice.path)
        for expanded in self._expander.feed(event):
            if not self._verdict(expanded):
                self._reducer.feed(expanded)

    def _verdict(self, event: Event | None) -> bool:
        """StreamChecker an event, or the end of the stream if there is none. Whether the event is passed over."""
        found: list[list[SequenceError]] = []
        for verifier in (self._consumer, self._producer):
            before = len(verifier.findings)
            verifier.index = self._index
            if event is None:
                verifier.close()
            else:
                verifier.feed(event)
            found.append(verifier.findings[before:])
        refused, all_of_them = found
        fatal = {(error.rule, error.message) for error in refused}
        kind = None if event is None else str(event.type)
        self._owed = {error.rule for error in all_of_them}
        for error in all_of_them:
            is_fatal = (error.rule, error.message) in fatal or error.rule == "TRN-3"
            message = error.message if event is not None or self._count else _EMPTY
            self._add("error" if is_fatal else "warning", error.rule, message, kind, error.path)
        # A collecting verifier takes a run for started if it was not: what comes in it means what it would.
        return any(error.rule != "LIFE-1" for error in refused)

    def _refused(self, error: ProtocolError) -> None:
        event = None if error.event is None else str(error.event.type)
        self._add("error", error.rule, error.message, event, error.path)

    def _noticed(self, notice: Notice) -> None:
        self._add("warning", notice.rule, notice.message, notice.event_type, notice.path)

    def _reduced(self, notice: Notice) -> None:
        # What the verifier has said of this event is not said again by what came of it.
        if notice.rule not in self._owed and not (notice.rule == "ACT-9" and "ACT-8" in self._owed):
            self._noticed(notice)

    def _add(self, level: Level, rule: str, message: str, event: str | None, path: str) -> None:
        index = None if event is None and rule == "TRN-3" else self._index
        self.findings.append(Finding(level=level, rule=rule, message=message, index=index, event=event, path=path))


def judge(events: Iterable[Raw], *, messages: Sequence[Message] = (), state: Any = None) -> list[Finding]:
    """All that is wrong with a stream of events: JSON, plain objects, or typed."""
    found = StreamChecker(messages=messages, state=state)
    for event in events:
        found.feed(event)
    return found.close()
