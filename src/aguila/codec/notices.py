"""Layer: codec. What we tell a developer about input that was tolerated.

Every tolerance is reported, never silent: material stripped (PROC-3), an old shape translated (VER-18), a
patch that did not apply (SNAP-9). The receiver of notices is a plain callable; the default logs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from aguila.codec.logs import members

_log = logging.getLogger("aguila")

_NAMED = 5  # how many ids a notice lists

MOST = 20
"""How many notices of one document are passed on; of the rest it is said how many there are."""

LONGEST = 500
"""Characters of a message, or of a path, that are logged or sent back: what a peer sends may be as long as it likes."""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was tolerated: by which rule, where, and what it means.

    ``rule`` is a rule id of the protocol (``"PROC-3"``) or the name of a compatibility rule
    (``"thinking-events"``); ``path`` is a JSON Pointer within the event or document; ``event_type`` the type
    of the event it was found in, where there is one. ``is_routine`` is what peers do in the normal course.
    """

    rule: str
    message: str
    path: str = ""
    event_type: str | None = None
    is_routine: bool = False

    def __str__(self) -> str:
        """The notice as one line for a log."""
        subject = f"{self.event_type}: " if self.event_type else ""
        at = f" at {shortened(self.path)!r}" if self.path else ""
        return f"{subject}{shortened(self.message)}{at} [{self.rule}]"


Warn = Callable[[Notice], None]
"""What receives notices."""


def log_notice(notice: Notice) -> None:
    """The default receiver: a warning of the ``aguila`` logger, or an info where it is routine."""
    path = shortened(notice.path) if notice.path != "" else None
    extra = members(rule=notice.rule, path=path, type=notice.event_type)
    _log.log(logging.INFO if notice.is_routine else logging.WARNING, "%s", notice, extra=extra)


class First:
    """Passes on the first notices of a document, and then how many more there were: a peer decides on their number."""

    def __init__(self, warn: Warn) -> None:
        self._warn = warn
        self._count = 0

    def __call__(self, notice: Notice) -> None:
        """Take a notice."""
        self._count += 1
        if self._count <= MOST:
            self._warn(notice)

    def tell_rest(self) -> None:
        """Say what was not passed on."""
        if self._count > MOST:
            self._warn(Notice(rule="notices", message=f"and {self._count - MOST} more of these"))


def shortened(text: str) -> str:
    """A text of bearable length."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"


def list_ids(ids: Sequence[str]) -> str:
    """Ids for the message of a notice: the first of them, and how many more there are."""
    more = len(ids) - _NAMED
    return ", ".join([repr(shortened(one)) for one in ids[:_NAMED]]) + (f" and {more} more" if more > 0 else "")
