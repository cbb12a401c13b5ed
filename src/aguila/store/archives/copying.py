"""Restore archived threads in a store, and copy a whole store. Both can be repeated: equal threads are left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from aguila.errors import ThreadExists
from aguila.store.archives.thread_archive import ThreadArchive
from aguila.store.base import Store

Restored = Literal["added", "unchanged", "replaced", "different"]
"""The result for one thread. "different": the store has another thread with its id, which was not replaced."""


async def restore_thread(store: Store, archive: ThreadArchive, *, replace: bool) -> Restored:
    """Restore a thread unless the store has it. ``replace`` tells whether a thread that differs is replaced."""
    try:
        await store.restore(archive)
    except ThreadExists:
        async with store.snapshot() as snapshot:
            old = await snapshot.thread(archive.scope, archive.thread_id)
        if old.is_same(archive):
            return "unchanged"
        if not replace:
            return "different"
        await store.restore(archive, replace=True)
        return "replaced"
    return "added"


async def copy_store(
    source: Store,
    target: Store,
    *,
    replace: bool,
    on_count: Callable[[int], None],
    on_thread: Callable[[ThreadArchive, Restored], None],
) -> None:
    """Copy all scopes from one snapshot of ``source``.

    A copy that was interrupted can be started again: each thread is copied in one transaction.
    """
    async with source.snapshot() as snapshot:
        keys = await snapshot.threads()
        on_count(len(keys))
        async for archive in snapshot.rest():
            await target.restore(archive)
        for scope, thread_id in keys:
            thread = await snapshot.thread(scope, thread_id)
            on_thread(thread, await restore_thread(target, thread, replace=replace))
