"""Answers to interrupts, checked before anything is sent (INT-7 to INT-10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from aguila.chat.expiry import is_expired
from aguila.chat.json_schema import problem_with
from aguila.codec.notices import Warn, log_notice
from aguila.errors import IllegalStep
from aguila.protocol import Interrupt, ResumeEntry

NONE_OPEN: Final = "none is open; thread.refresh() loads those of the server"


class _GivenUp:
    def __repr__(self) -> str:
        return "GIVE_UP"


GIVE_UP: Final = _GivenUp()
"""An answer that cancels the interrupt (INT-8)."""


def approve(edited_arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the usual answer that approves a tool call, optionally with other arguments."""
    if edited_arguments is None:
        return {"approved": True}
    return {"approved": True, "editedArgs": dict(edited_arguments)}


def deny(reason: str | None = None) -> dict[str, Any]:
    """Return the usual answer that denies a tool call, optionally with a reason."""
    return {"approved": False} if reason is None else {"approved": False, "reason": reason}


def resume_entries(
    interrupts: Sequence[Interrupt], answers: Mapping[str, Any], now: datetime, *, warn: Warn = log_notice
) -> list[ResumeEntry]:
    """Return an entry for each open interrupt, in order. An answer is a payload, ``GIVE_UP``, or a ``ResumeEntry``.

    Raise ``IllegalStep`` for an interrupt without an answer (INT-8), an answer to an unknown interrupt (INT-7) or an
    expired one (INT-9), and an answer that does not match its schema.
    """
    open_ids = {interrupt.id for interrupt in interrupts}
    unknown = [id_ for id_ in answers if id_ not in open_ids]
    if unknown:
        is_open = f"open are {_named(sorted(open_ids))}" if open_ids else NONE_OPEN
        raise IllegalStep(f"{_named(unknown)}: no such interrupt; {is_open}", rule="INT-7")
    missing = [interrupt.id for interrupt in interrupts if interrupt.id not in answers]
    if missing:
        again = "answer it, even if a run with the answer failed, or give it up"
        raise IllegalStep(f"no answer to {_named(missing)}; {again}", rule="INT-8")
    return [_entry(interrupt, answers[interrupt.id], now, warn) for interrupt in interrupts]


def _entry(interrupt: Interrupt, answer: Any, now: datetime, warn: Warn) -> ResumeEntry:
    if answer is GIVE_UP:
        return ResumeEntry(interrupt_id=interrupt.id, status="cancelled")
    if isinstance(answer, ResumeEntry):
        if answer.interrupt_id != interrupt.id:
            message = f"the entry under {interrupt.id!r} is about {answer.interrupt_id!r}"
            raise IllegalStep(message, rule="INT-7")
        entry = answer
    else:
        entry = ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload=answer)
    if entry.status == "resolved":
        if is_expired(interrupt.expires_at, now):
            message = f"interrupt {interrupt.id!r} expired at {interrupt.expires_at}; it can only be given up"
            raise IllegalStep(message, rule="INT-9")
        if interrupt.response_schema is not None:
            payload = msgspec.to_builtins(entry.payload)
            problem = problem_with(payload, interrupt.response_schema, warn=warn)
            if problem is not None:
                raise IllegalStep(f"the answer to {interrupt.id!r} does not fit: {problem}", rule="INT-4")
    return entry


def _named(ids: Sequence[str]) -> str:
    return ", ".join(repr(id_) for id_ in ids)
