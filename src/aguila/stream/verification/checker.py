"""Check a stream and report every violation, not only the first.

The parts are those of ``aguila.stream.Consumer``, each set up to continue after a violation. Events are checked one by
one; ``testing.recordings`` finds them in bytes and checks their framing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import msgspec

from aguila.codec import EventDecoder, encode_event
from aguila.codec.compat import Level as Compat
from aguila.codec.notices import Notice
from aguila.errors import DecodeError, ProtocolError, SequenceError, rule_help
from aguila.protocol import Event, Message, RunStartedEvent
from aguila.stream import ChunkExpander, Conversation, Reducer, Verifier
from aguila.stream.consumer import Raw
from aguila.stream.verification.rule_texts import RULE_TEXTS
from aguila.stream.version import producer_version_notice

Level = Literal["error", "warning", "note"]
"""``error``: a consumer must refuse the stream. ``warning``: the producer broke a rule, and consumers tolerate it.
``note``: no rule is broken."""


_EMPTY = "the stream is empty: it has no event"


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finding: the rule, the problem, and the index of the event (from 0), if it is about one."""

    level: Level
    rule: str
    message: str
    index: int | None = None
    event: str | None = None
    path: str = ""
    stream: int = 0

    @property
    def help(self) -> str:
        """Where the rule is explained: a link into docs/rules.md."""
        return rule_help(self.rule)

    @property
    def text(self) -> str:
        """The text of the rule."""
        return RULE_TEXTS.get(self.rule, "")

    def __str__(self) -> str:
        where = "stream" if self.index is None else f"event {self.index}"
        kind = "" if self.event is None else f" {self.event}"
        at = f" at {self.path!r}" if self.path else ""
        return f"{where}{kind}: {self.message}{at} [{self.rule}]"


UPSTREAM_FINDINGS: Final = "aguila.upstream"
"""The key under which a gateway records the findings about the run of another server."""


class UpstreamFindings(msgspec.Struct, frozen=True, kw_only=True):
    """The findings about the events that another server sent, and those events as JSON, by their index."""

    count: int
    findings: list[Finding]
    events: dict[str, str]


class StreamChecker:
    """Checks one stream to its end. ``findings`` has everything found so far.

    ``messages`` and ``state`` are those that the run started from: patches are applied to them.
    """

    def __init__(self, *, messages: Sequence[Message] = (), state: Any = None, compat: Compat = "standard") -> None:
        self.findings: list[Finding] = []
        self.types: list[str] = []
        """The types of the events that could be decoded."""
        self._decoder = EventDecoder(compat=compat, warn=self._noticed)
        self._expander = ChunkExpander()
        self._consumer = Verifier(collect=True)
        self._producer = Verifier(collect=True, producer=True)
        self._reducer = Reducer(messages, {} if state is None else state, warn=self._reduced)
        self._index = 0
        self._count = 0
        self._broken_rules: set[str] = set()  # the rules that the current event breaks

    @property
    def conversation(self) -> Conversation:
        """The conversation, as far as the events could be applied."""
        return self._reducer.conversation

    def feed(self, raw: Raw, index: int | None = None) -> None:
        """Check the next event. ``index`` is its place in the stream, if that is not the next one."""
        self._index = self._count if index is None else index
        self._count = self._index + 1
        # A typed event is encoded first, because a peer would read its JSON.
        data = raw if isinstance(raw, bytes | str | dict) else encode_event(raw)
        try:
            for event in self._decoder.feed(data):
                self._check(event)
        except (DecodeError, SequenceError) as error:
            self._refused(error)

    def close(self, *, is_cut: bool = False) -> list[Finding]:
        """End the stream and return all findings. ``is_cut``: it is known already that it was cut off."""
        self._index = self._count
        if not is_cut:
            self._verify(None)
        return self.findings

    def _check(self, event: Event) -> None:
        self.types.append(str(event.type))
        if event.__class__ is RunStartedEvent:
            notice = producer_version_notice(event.protocol_version)  # type: ignore[union-attr]
            if notice is not None and notice.rule == "VER-7":  # an invalid version is another rule (VER-3)
                self._add("note", notice.rule, notice.message, str(event.type), notice.path)
        for expanded in self._expander.feed(event):
            if not self._verify(expanded):
                self._reducer.feed(expanded)

    def _verify(self, event: Event | None) -> bool:
        """Verify an event, or the end of the stream if it is None. Return whether the event is skipped."""
        found: list[list[SequenceError]] = []
        for verifier in (self._consumer, self._producer):
            before = len(verifier.findings)
            verifier.index = self._index
            if event is None:
                verifier.close()
            else:
                verifier.feed(event)
            found.append(verifier.findings[before:])
        refused, violations = found
        fatal = {(error.rule, error.message) for error in refused}
        kind = None if event is None else str(event.type)
        self._broken_rules = {error.rule for error in violations}
        for error in violations:
            is_fatal = (error.rule, error.message) in fatal or error.rule == "TRN-3"
            message = error.message if event is not None or self._count else _EMPTY
            self._add("error" if is_fatal else "warning", error.rule, message, kind, error.path)
        # A collecting verifier assumes a missing RUN_STARTED, so that the events after it are still applied.
        return any(error.rule != "LIFE-1" for error in refused)

    def _refused(self, error: ProtocolError) -> None:
        event = None if error.event is None else str(error.event.type)
        self._add("error", error.rule, error.message, event, error.path)

    def _noticed(self, notice: Notice) -> None:
        self._add("warning", notice.rule, notice.message, notice.event_type, notice.path)

    def _reduced(self, notice: Notice) -> None:
        # The verifier has reported this event already.
        if notice.rule not in self._broken_rules and not (notice.rule == "ACT-9" and "ACT-8" in self._broken_rules):
            self._noticed(notice)

    def _add(self, level: Level, rule: str, message: str, event: str | None, path: str) -> None:
        index = None if event is None and rule == "TRN-3" else self._index
        self.findings.append(Finding(level=level, rule=rule, message=message, index=index, event=event, path=path))


def judge(events: Iterable[Raw], *, messages: Sequence[Message] = (), state: Any = None) -> list[Finding]:
    """Return all findings of a stream of events: JSON, dicts, or typed."""
    checker = StreamChecker(messages=messages, state=state)
    for event in events:
        checker.feed(event)
    return checker.close()
