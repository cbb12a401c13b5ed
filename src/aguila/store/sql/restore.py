"""Write an archive: a thread, a file of no thread, or the numbers of removed threads, each in one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from aguila.store import refusals
from aguila.store.archives.archive import check_archive
from aguila.store.contents import base_number, compare_lists, cut_values
from aguila.store.encoding import encode_rows, join_events, size_of_details
from aguila.store.records import (
    Archive,
    ArchivedFile,
    Batch,
    FileArchive,
    RemovedThreads,
    ThreadArchive,
    ThreadKey,
    Usage,
)
from aguila.store.sql import reads, threads
from aguila.store.sql.runs import (
    PUT_LOG,
    Contents,
    count_usage,
    log_rows,
    put_contents,
    put_members,
)
from aguila.store.sql.tx import Tx

_PUT_THREAD: Final = """
INSERT INTO aguila.threads (position, scope, key, thread_id, agent, created_at, updated_at, first, last, bytes, counted,
  epoch, archived) VALUES (NEXT_POSITION, $1, $2, $3, $4, $5, $6, $7, $8, $9, $9, 0, $10)
"""
_PUT_RUN: Final = """
INSERT INTO aguila.runs (thread, number, run_id, parent_run_id, sent_run_id, fingerprint, first, last, outcome, owner,
  token, epoch, lease_seconds, lease_until, cancel, started_at, ended_at, compacted, request, list)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 0, $13, $14, $15, $16, $17, $18, $19)
"""
_PUT_INTERRUPT: Final = """
INSERT INTO aguila.interrupts (scope, thread, interrupt_id, run_id, status, claimed_by, body)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_PUT_COMPACTED: Final = """
INSERT INTO aguila.log (place, first, at, token, starts, events) VALUES ($1, $2, $3, $4, $5, $6)
"""
_PUT_REMOVED: Final = """
INSERT INTO aguila.removed (thread_hash, last) VALUES ($1, $2)
ON CONFLICT (thread_hash) DO UPDATE SET
  last = CASE WHEN removed.last > excluded.last THEN removed.last ELSE excluded.last END
"""


@dataclass(slots=True)
class Prepared:
    """An archive that was checked and cut, without the database."""

    archive: Archive
    key: ThreadKey | None = None
    """The thread, if it is one."""
    contents: Contents = field(default_factory=dict[bytes, bytes | memoryview])
    size: int = 0
    """About how many bytes it writes."""


def prepare(archive: Archive) -> Prepared:
    """Check and cut an archive; a large one takes long. Raises ``ValueError``."""
    if isinstance(archive, FileArchive):
        return Prepared(archive, size=len(archive.file.data))
    if isinstance(archive, RemovedThreads):
        return Prepared(archive, size=16 * len(archive.last))
    check_archive(archive)
    contents = cut_values(archive.values)
    size = sum([len(body) for body in contents.values()]) + sum([len(file.data) for file in archive.files])
    size += sum([len(event) for batch in archive.batches for event in batch.events])
    return Prepared(archive, (archive.thread.scope, archive.thread.summary.thread_id), contents, size)


def restore(tx: Tx, slot: int, new: Prepared, *, replace: bool) -> None:
    """Write a part of a snapshot. Raises ``ThreadExists``, ``ThreadBusy``."""
    archive = new.archive
    if isinstance(archive, ThreadArchive):
        _restore_thread(tx, slot, archive, new.contents, replace)
    elif isinstance(archive, FileArchive):
        _put_file(tx, slot, archive.file, archive.file.record.thread_ids)
    else:
        tx.many(_PUT_REMOVED, archive.last.items())


def _restore_thread(tx: Tx, slot: int, archive: ThreadArchive, contents: Contents, replace: bool) -> None:
    thread, summary = archive.thread, archive.thread.summary
    scope, thread_id = thread.scope, summary.thread_id
    usage = _remove_old(tx, scope, thread_id, replace)
    row = tx.row("SELECT NEXT_THREAD")
    assert row is not None  # noqa: S101
    key: int = row[0]
    size = put_contents(tx, key, contents) + size_of_details(summary.title, summary.metadata)
    for batch, starts in _with_starts(archive):
        size += _put_batch(tx, key, batch, starts)
    size += _put_runs(tx, key, archive)
    if (summary.title, summary.metadata, thread.session) != (None, None, None):
        sql = "INSERT INTO aguila.details (thread, title, metadata, session) VALUES ($1, $2, $3, $4)"
        tx.do(sql, key, summary.title, summary.metadata, thread.session)
        put_members(tx, scope, key, summary.metadata)
        size += len(thread.session or b"")
    tx.many(
        _PUT_INTERRUPT,
        [(scope, key, one.interrupt_id, one.run_id, one.status, one.claimed_by, one.body) for one in thread.interrupts],
    )
    tx.many(
        "INSERT INTO aguila.effects (thread, root, name, epoch, value) VALUES ($1, $2, $3, $4, $5)",
        [(key, one.root_run_id, one.name, one.epoch, one.value) for one in thread.effects],
    )
    size += sum([len(one.body) for one in thread.interrupts])
    size += sum([len(one.value or b"") for one in thread.effects])
    tx.do(
        _PUT_THREAD, scope, key, thread_id, summary.agent,
        summary.created_at, summary.updated_at, thread.first, summary.last, size, int(summary.archived),
    )  # fmt: skip
    for file in archive.files:
        _put_file(tx, slot, file, (thread_id,))
    count_usage(tx, slot, {scope: Usage(threads=1, bytes=size) + usage})


def _remove_old(tx: Tx, scope: str, thread_id: str, replace: bool) -> Usage:
    """Remove the thread with this id, if ``replace``; return the change of usage."""
    tx.lock_thread(scope, thread_id)
    sql = "SELECT key, running FROM aguila.threads WHERE scope = $1 AND thread_id = $2"
    old = tx.row(sql, scope, thread_id)
    if old is None:
        return Usage()
    if not replace:
        raise refusals.thread_exists(thread_id)
    if old[1] is not None:
        raise refusals.thread_busy(reads.read_run(tx, old[1]))
    return threads.remove_thread(tx, old[0], scope, thread_id) or Usage()


def _with_starts(archive: ThreadArchive) -> Iterator[tuple[Batch, int]]:
    """Iterate over batches, each with the number at which it starts: less than its first one after a compaction."""
    number = archive.thread.first
    for batch in archive.batches:
        yield batch, number
        number = batch.last + 1


def _put_batch(tx: Tx, thread: int, batch: Batch, starts: int) -> int:
    """Write a batch; return its bytes."""
    if starts < batch.first:
        events = join_events(batch.events)
        place = reads.log_place(thread, batch.last)
        tx.do(_PUT_COMPACTED, place, batch.first, batch.at, batch.token, starts, events)
        return len(events)
    rows, large, size = log_rows(thread, batch, encode_rows(batch.events))
    tx.many(PUT_LOG, rows)
    return size + put_contents(tx, thread, large)


def _put_runs(tx: Tx, thread: int, archive: ThreadArchive) -> int:
    """Write the runs; return the bytes of their requests."""
    lists: dict[int, bytes] = {0: b""}
    rows: list[tuple[Any, ...]] = []
    size = 0
    for number, run in enumerate(archive.thread.runs, 1):
        delta = None
        if run.messages is not None:
            delta = compare_lists(lists[base_number(number)], run.messages).encode()
        lists[number] = run.messages or b""
        size += len(run.request or b"") + len(delta or b"")
        rows.append(
            (
                thread, number, run.run_id, run.parent_run_id, run.sent_run_id, run.fingerprint, run.first, run.last,
                run.outcome, run.owner, run.token, run.epoch, run.lease_until, reads.CANCEL[run.cancel], run.started_at,
                run.ended_at, int(run.compacted), run.request, delta,
            )
        )  # fmt: skip
    tx.many(_PUT_RUN, rows)
    return size


def _put_file(tx: Tx, slot: int, file: ArchivedFile, thread_ids: tuple[str, ...]) -> None:
    """Store a file unless it is stored, with these threads as holders."""
    record = file.record
    for thread_id in thread_ids:
        threads.put_file(tx, slot, record, file.data, thread_id, None)
    if record.is_kept or not thread_ids:
        threads.put_file(tx, slot, record, file.data, None, None)
