"""Distinguish interrupts of ``run.ask``, whose answers replay the agent, from those that an agent passes on.

Both may have ids with the prefix of ``run.ask``: another Aguila server behind this one asks with such ids. So the
stored body of an interrupt that is passed on has a mark. The event does not.
"""

from __future__ import annotations

from aguila.agent.questions import ID_PREFIX
from aguila.chat.own_metadata import add_own_metadata, read_own_metadata
from aguila.codec import decode, encode
from aguila.protocol import Interrupt, replace
from aguila.store import InterruptRecord


def interrupt_body(interrupt: Interrupt, *, is_asked: bool) -> bytes:
    """Encode an interrupt for the store."""
    if not is_asked and interrupt.id.startswith(ID_PREFIX):
        interrupt = replace(interrupt, metadata=add_own_metadata(interrupt.metadata, replay=False))
    return encode(interrupt)


def is_replayed(record: InterruptRecord) -> bool:
    """Return whether the answer to a stored interrupt replays the agent."""
    if not record.interrupt_id.startswith(ID_PREFIX):
        return False
    return read_own_metadata(decode(record.body, Interrupt).metadata).get("replay") is not False
