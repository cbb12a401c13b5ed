"""The exception that ends a run with questions.

It is a ``BaseException``, so that an agent's ``except Exception`` does not swallow it.
"""

from __future__ import annotations

import asyncio
from typing import cast

from aguila import protocol


class RunInterrupt(BaseException):
    """Raised in an agent to end the run with questions. ``run.ask`` raises it; an agent may raise it itself.

    An agent that raises it itself is not replayed: it is invoked with the next input and reads ``run.resume``. Its
    interrupt ids must be unique, or the run fails. Raises ``ValueError`` without interrupts.
    """

    def __init__(self, *interrupts: protocol.Interrupt) -> None:
        if not interrupts:
            raise ValueError("RunInterrupt needs at least one interrupt (INT-1)")
        super().__init__(*interrupts)
        self.interrupts = list(interrupts)


def interrupts_in(error: BaseException | None) -> list[protocol.Interrupt]:
    """Return the interrupts of an exception in order, also from nested groups."""
    if isinstance(error, RunInterrupt):
        return error.interrupts
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return [interrupt for each in group.exceptions for interrupt in interrupts_in(each)]
    return []


def others_in(error: BaseException | None) -> list[BaseException]:
    """Return the other exceptions of a group: failures of branches beside a question, to be logged."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return [one for each in group.exceptions for one in others_in(each)]
    return [] if error is None or isinstance(error, RunInterrupt | asyncio.CancelledError) else [error]
