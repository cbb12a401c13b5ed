"""Layer: agent. The signal that ends a run with questions.

Above: ``questions`` raises it; ``branches``, ``handles`` and ``executor`` tell it from other exceptions. Below: the
protocol. It is a ``BaseException``, so that an agent's ``except Exception`` does not swallow it.
"""

from __future__ import annotations

import asyncio
from typing import cast

from aguila import protocol


class Interrupt(BaseException):
    """Raised in an agent to end the run with questions. ``run.ask`` raises it; an agent may raise it itself.

    An agent that raises it itself is not replayed: it is invoked with the next input and reads ``run.resume``. Ids of
    its own must not begin with ``int_``, and each is there once: else the run fails. Raises ``ValueError``
    without interrupts.
    """

    def __init__(self, *interrupts: protocol.Interrupt) -> None:
        if not interrupts:
            raise ValueError("an interrupt outcome has at least one interrupt (INT-1)")
        super().__init__(*interrupts)
        self.interrupts = list(interrupts)


def interrupts_in(error: BaseException | None) -> list[protocol.Interrupt]:
    """The interrupts that an exception carries, out of nested groups as well, in order."""
    if isinstance(error, Interrupt):
        return error.interrupts
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return [interrupt for each in group.exceptions for interrupt in interrupts_in(each)]
    return []


def others_in(error: BaseException | None) -> list[BaseException]:
    """What branches failed of while others asked: the run ends with the questions, and nobody else would tell."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return [one for each in group.exceptions for one in others_in(each)]
    return [] if error is None or isinstance(error, Interrupt | asyncio.CancelledError) else [error]
