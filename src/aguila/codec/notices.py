"""Notices: reports of input that was tolerated.

Nothing is tolerated silently: unknown members that are stripped (PROC-3), an old shape that is translated (VER-18), a
patch that did not apply (SNAP-9). A receiver of notices is a plain callable; the default one logs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from aguila.codec.logs import escape_text, log_fields

_log = logging.getLogger("aguila")

_MAX_LISTED_IDS = 5

MAX_NOTICES = 20
"""How many notices of one document are passed on. One more notice has the number of the rest."""

MAX_LENGTH = 500
"""Characters of a message or path that are logged or sent back. A peer could send any number."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A fault or an older shape that was tolerated.

    ``rule`` is a rule id of the protocol (``"PROC-3"``) or the name of a compatibility rule (``"thinking-events"``).
    ``path`` is a JSON Pointer within the event or document. ``event_type`` is the type of the event, if it was found in
    one. ``is_routine`` marks one that peers cause in normal operation.
    """

    rule: str
    message: str
    path: str = ""
    event_type: str | None = None
    is_routine: bool = False

    def __str__(self) -> str:
        """Format the notice as one line for a log."""
        subject = f"{self.event_type}: " if self.event_type else ""
        at = f" at {shorten(self.path)!r}" if self.path else ""
        return escape_text(f"{subject}{shorten(self.message)}{at} [{self.rule}]")


Warn = Callable[[Notice], None]
"""Receives notices."""


def log_notice(notice: Notice) -> None:
    """Log a notice to the ``aguila`` logger: as info if it is routine, else as a warning."""
    path = shorten(notice.path) if notice.path != "" else None
    extra = log_fields(rule=notice.rule, path=path, type=notice.event_type)
    _log.log(logging.INFO if notice.is_routine else logging.WARNING, "%s", notice, extra=extra)


def ignore_notice(notice: Notice) -> None:
    """Drop a notice: it was reported before, or this process wrote the value."""


class NoticeLimiter:
    """Passes on the first ``MAX_NOTICES`` notices of a document and counts the rest. A peer could cause any number."""

    def __init__(self, warn: Warn) -> None:
        self._warn = warn
        self._count = 0

    def __call__(self, notice: Notice) -> None:
        """Pass on a notice, or count it."""
        self._count += 1
        if self._count <= MAX_NOTICES:
            self._warn(notice)

    def report_omitted(self) -> None:
        """Report how many notices were not passed on."""
        if self._count > MAX_NOTICES:
            self._warn(Notice(rule="notices", message=f"and {self._count - MAX_NOTICES} more of these"))


def shorten(text: str) -> str:
    """Cut a text to ``MAX_LENGTH`` characters and add its full length."""
    return text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]}... ({len(text)} characters)"


def list_ids(ids: Sequence[str]) -> str:
    """Format ids for the message of a notice: the first ones, and the number of the rest."""
    more = len(ids) - _MAX_LISTED_IDS
    shown = ", ".join([repr(shorten(one)) for one in ids[:_MAX_LISTED_IDS]])
    return shown + (f" and {more} more" if more > 0 else "")
