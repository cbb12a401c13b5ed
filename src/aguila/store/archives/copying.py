"""Restore archived threads in a store, and copy a whole store. Both can be repeated: equal threads are left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec.structs import replace as replaced

from aguila.errors import ThreadExists
from aguila.store.archives.archive import is_same, list_threads, read_archive, read_file
from aguila.store.contract import Store, StoreReader
from aguila.store.records import FileArchive, FileRecord, ScopeRecord, ThreadArchive, ThreadKey

Restored = Literal["added", "unchanged", "replaced", "different"]
"""The result for one thread. "different": the store has another thread with its id, which was not replaced."""


async def restore_thread(store: Store, archive: ThreadArchive, *, replace: bool) -> Restored:
    """Restore a thread unless the store has it. ``replace`` tells whether a thread that differs is replaced."""
    try:
        await store.restore(archive)
    except ThreadExists:
        async with store.snapshot() as snapshot:
            old = await read_archive(snapshot, archive.thread.scope, archive.thread.summary.thread_id)
        if is_same(old, archive):
            return "unchanged"
        if not replace:
            return "different"
        await store.restore(archive, replace=True)
        return "replaced"
    return "added"


async def copy_all(
    snapshot: StoreReader,
    target: Store,
    *,
    replace: bool,
    on_count: Callable[[int], None],
    on_thread: Callable[[ThreadArchive, Restored], None],
) -> None:
    """Copy everything that a snapshot has.

    A copy that was interrupted can be started again: each thread is copied in one transaction.
    """
    keys: list[ThreadKey] = []
    found: set[ThreadKey] | None = None
    async for one in snapshot.rest():
        match one:
            case ScopeRecord():
                keys += await list_threads(snapshot, one.scope)
            case FileRecord():
                found = set(keys) if found is None else found  # all scopes came before
                file = outside_threads(one, found)
                if file is not None:
                    await target.restore(FileArchive(file=await read_file(snapshot, file)))
            case _:
                await target.restore(one)
    on_count(len(keys))
    for scope, thread_id in keys:
        thread = await read_archive(snapshot, scope, thread_id)
        on_thread(thread, await restore_thread(target, thread, replace=replace))


def outside_threads(file: FileRecord, threads: set[ThreadKey]) -> FileRecord | None:
    """Return a file with those of its threads that never ran; None if the archives of its threads have it."""
    others = tuple([one for one in file.thread_ids if (file.scope, one) not in threads])
    return None if not others and not file.is_kept else replaced(file, thread_ids=others)
