"""A compatibility rule, the context it runs in, and functions that rules share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec

from aguila.codec.json.shapes import Record
from aguila.codec.json.values import is_object
from aguila.codec.notices import Notice, Warn

Raw = dict[str, Any]
Level = Literal["off", "standard", "wide"]
Stage = Literal["spelling", "shape", "nulls"]

METADATA_KEY = "aguila"
"""The metadata key for members of older shapes that have no current place."""

SPELLING = "spelling"
"""Within it, the ``type`` that a part of an input had before it was read as a media part."""


class OpenStep(NamedTuple):
    """A step that was started with a ``stepId``: its owner, the name it is read with, the name it came with."""

    owner: str | None
    name: str
    given: str


class Rule(msgspec.Struct, frozen=True):
    """One older shape and its translation.

    ``rows`` are the rows of the table of wire shapes that it implements; a later rule has none. ``places`` name the
    values that it applies to: a type, a union (``ContentPart``), a list of either (``Message[]``), ``Event`` for every
    event, ``*`` for every described object. ``apply`` returns the same value if nothing changes; for an event, None
    drops it.
    """

    name: str
    rows: tuple[int, ...]
    summary: str
    places: tuple[str, ...]
    apply: Callable[[Any, RuleContext], Any]
    level: Literal["standard", "wide"] = "standard"
    stage: Stage = "shape"


class RuleContext:
    """The position of a rule in the input, and what the stream contained before."""

    def __init__(self, warn: Warn, new_id: Callable[[], str] | None, level: Level) -> None:
        self._warn = warn
        self._new_id = new_id
        self.is_wide = level == "wide"
        self.keeps_spelling = False  # the document is an input, whose binary parts are marked
        self._reasoning_ids = 0
        self._lone_messages = 0
        self._reported: set[tuple[str, str]] = set()
        # Set before each rule.
        self.rule: Rule
        self.path = ""
        self.event_type: str | None = None
        self.record: Record | None = None
        # What the stream contained before.
        self.run_id: str | None = None
        self.is_before_1_0 = True  # the producer declares no version, or a lower one
        self.span: str | None = None
        self.message: str | None = None
        self.steps: dict[str, OpenStep] = {}  # by stepId
        self.encrypted: dict[str, Raw] = {}  # values that wait for their reasoning message, by the id of the span
        self.activities: dict[str, str] = {}
        self.wrapped_activities: set[str] = set()  # their state is no object: it is the member "value" of the content
        # Events that the current one becomes, besides itself.
        self.preceding: list[Raw] = []
        self.following: list[Raw] = []

    def report(self, member: str = "", message: str | None = None) -> None:
        """Report that the current rule applied. Each message of a rule is reported once."""
        message = self.rule.summary if message is None else message
        key = (self.rule.name, message)
        if key not in self._reported:
            self._reported.add(key)
            path = f"{self.path}/{member}" if member else self.path
            self._warn(Notice(rule=self.rule.name, message=message, path=path, event_type=self.event_type))

    def start_run(self, run_id: str, version: Any) -> None:
        """Forget the previous run. ``version`` is the one that the producer of the new run declares."""
        self.run_id = run_id
        self.is_before_1_0 = version is None or (isinstance(version, str) and version.startswith("0."))
        self.span = self.message = None
        self.steps.clear()
        self.encrypted.clear()

    def end_run(self) -> None:
        """Note that no run is open. A value that still waits for its message is lost, with a notice (ENC-2)."""
        self.run_id = None
        for span in self.encrypted:
            text = f"the encryptedContent of the reasoning {span!r} is lost: the run ended before its message started"
            self._warn(Notice(rule="ENC-2", message=text, event_type="REASONING_START"))
        self.encrypted.clear()

    def end_step(self, owner: str | None, name: str) -> None:
        """Forget an open step, which was ended by its name."""
        ended = [step_id for step_id, step in self.steps.items() if (step.owner, step.name) == (owner, name)]
        for step_id in ended:
            del self.steps[step_id]

    def reasoning_id(self) -> str:
        """Return an id for a reasoning span or message that has none."""
        if self._new_id is not None:
            return self._new_id()
        self._reasoning_ids += 1
        return f"{'legacy' if self.run_id is None else self.run_id}-reasoning-{self._reasoning_ids}"

    def message_id(self, index: int | None) -> str:
        """Return an id for a message that has none, by its index: a resent history gets the same ids (ENV-12)."""
        if self._new_id is not None:
            return self._new_id()
        if index is None:
            index = self._lone_messages
            self._lone_messages += 1
        return f"legacy-message-{index + 1}"


def omit(raw: Raw, *names: str) -> Raw:
    """Return a copy without some members."""
    return {name: value for name, value in raw.items() if name not in names}


def move_to_metadata(raw: Raw, *names: str) -> Raw:
    """Return a copy with some members moved into ``metadata["aguila"]``, without nulls.

    If the metadata is malformed, nothing moves: validation refuses it.
    """
    metadata = raw.get("metadata", {})
    before = metadata.get(METADATA_KEY, {}) if is_object(metadata) else None
    if not is_object(metadata) or not is_object(before):
        return raw
    kept = {name: raw[name] for name in names if raw.get(name) is not None}
    rest = omit(raw, *names)
    return {**rest, "metadata": {**metadata, METADATA_KEY: {**before, **kept}}} if kept else rest
