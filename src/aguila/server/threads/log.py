"""Read the log of a thread, and facts about stored events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final

from aguila.store import Batch, Store

TERMINAL: Final = (b'{"type":"RUN_FINISHED"', b'{"type":"RUN_ERROR"')
"""How a stored event begins that ends its run. The type is always its first member."""


async def read_log(
    store: Store, scope: str, thread_id: str, after: int, until: int, *, limit: int = 1024
) -> AsyncIterator[Sequence[Batch]]:
    """Yield the events after ``after`` up to ``until``, as many at once as the store reads with this limit."""
    while after < until:
        batches = (await store.read(scope, thread_id, after, until=until, limit=limit)).batches
        if not batches:
            return
        after = batches[-1].last
        yield batches
