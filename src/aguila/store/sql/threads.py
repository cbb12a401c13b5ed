"""The SQL that changes and removes threads and files.

A removed thread is gone at once: its rows in ``threads``, ``details``, ``interrupts`` and ``holds`` are deleted, and
its key is put into ``trash``. The rest is deleted in steps, so that no transaction is long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from heapq import merge
from operator import itemgetter
from secrets import token_bytes
from typing import Final, NamedTuple

from aguila.store import refusals, rules
from aguila.store.contents import PART
from aguila.store.encoding import SMALL_RUN, hash_thread, join_events
from aguila.store.records import (
    Compaction,
    FileRecord,
    FileTarget,
    NewTurns,
    Quotas,
    Retention,
    ScopeTarget,
    Swept,
    Target,
    ThreadKey,
    ThreadTarget,
    ThreadUpdate,
    Usage,
)
from aguila.store.sql import reads
from aguila.store.sql.runs import Contents, change_details, count_total, count_usage, put_contents
from aguila.store.sql.tx import Outage, Tx

TRASH_STEP: Final = 500
"""Rows of a removed thread that one step deletes."""

# Amend


def amend(
    tx: Tx, slot: int, scope: str, thread_id: str, change: ThreadUpdate | NewTurns | Compaction, contents: Contents
) -> None:
    """Change a thread; ``contents`` are the values of its new turns, cut. Raises ``NotFound``."""
    tx.lock_thread(scope, thread_id)
    row = tx.row(
        "SELECT key, bytes, counted, running FROM aguila.threads WHERE scope = $1 AND thread_id = $2", scope, thread_id
    )
    if row is None:
        raise refusals.no_thread(thread_id)
    thread, size, counted, running = row
    if isinstance(change, ThreadUpdate):
        grown = change_details(tx, scope, thread, change)
    elif isinstance(change, NewTurns):
        grown = _put_turns(tx, thread, change, contents)
    else:
        grown = _compact(tx, thread, change)
    if not grown:
        return
    if running is None:  # otherwise the end of the open run counts it
        tx.do("UPDATE aguila.threads SET bytes = $2, counted = $2 WHERE key = $1", thread, size + grown)
        count_usage(tx, slot, {scope: Usage(threads=int(counted is None), bytes=size + grown - (counted or 0))})
    else:
        tx.do("UPDATE aguila.threads SET bytes = bytes + $2 WHERE key = $1", thread, grown)


def _put_turns(tx: Tx, thread: int, new: NewTurns, contents: Contents) -> int:
    grown = 0
    for run_id, turn in new.turns.items():
        row = tx.row(
            """
            SELECT key, coalesce(length(turn), 0) FROM aguila.runs
            WHERE thread = $1 AND run_id = $2 AND outcome IS NOT NULL
            """,
            thread,
            run_id,
        )
        if row is not None:
            tx.do("UPDATE aguila.runs SET format = $2, turn = $3 WHERE key = $1", row[0], turn.format, turn.body)
            grown += len(turn.body) - row[1]
    return grown + put_contents(tx, thread, contents)


def _compact(tx: Tx, thread: int, new: Compaction) -> int:
    row = tx.row(
        """
        SELECT key FROM aguila.runs
        WHERE thread = $1 AND run_id = $2 AND first = $3 AND last = $4 AND compacted = 0 AND outcome IS NOT NULL
        """,
        thread,
        new.run_id,
        new.first,
        new.last,
    )
    if row is None:
        return 0
    tx.do("UPDATE aguila.runs SET compacted = 1 WHERE key = $1", row[0])
    if len(new.events) > new.last - new.first:
        return 0
    start, place = reads.log_place(thread, new.first), reads.log_place(thread, new.last)
    found = tx.row(
        "SELECT sum(length(events)), max(at) FROM aguila.log WHERE place >= $1 AND place <= $2", start, place
    )
    last = tx.row("SELECT token FROM aguila.log WHERE place = $1", place)
    assert found is not None and last is not None  # noqa: S101, PT018
    events = join_events(new.events)
    tx.do("DELETE FROM aguila.log WHERE place >= $1 AND place <= $2", start, place)
    tx.do(
        "INSERT INTO aguila.log (place, first, at, token, starts, events) VALUES ($1, $2, $3, $4, $5, $6)",
        place,
        new.last - len(new.events) + 1,
        found[1],
        last[0],
        new.first,
        events,
    )
    return len(events) - int(found[0])


# Delete


def delete(tx: Tx, slot: int, scope: str, target: Target) -> Sequence[ThreadKey]:
    """Remove a thread, a file or a scope; return the removed threads. Raises ``NotFound``, ``ThreadBusy``."""
    if isinstance(target, ThreadTarget):
        return _delete_thread(tx, slot, scope, target.thread_id)
    if isinstance(target, FileTarget):
        found = reads.find_file(tx, scope, target.file_id, locks=True)
        if found is None:
            raise refusals.no_blob(target.file_id)
        record, key = found
        count_usage(tx, slot, {scope: _remove_file(tx, key, record.size)})
        return ()
    assert isinstance(target, ScopeTarget)  # noqa: S101
    return _delete_scope(tx, slot, scope)


def _delete_thread(tx: Tx, slot: int, scope: str, thread_id: str) -> Sequence[ThreadKey]:
    tx.lock_thread(scope, thread_id)
    row = tx.row("SELECT key, running FROM aguila.threads WHERE scope = $1 AND thread_id = $2", scope, thread_id)
    if row is None:
        if not tx.rows("SELECT file FROM aguila.holds WHERE scope = $1 AND thread_id = $2", scope, thread_id):
            raise refusals.no_thread(thread_id)
        count_usage(tx, slot, {scope: _release_files(tx, scope, thread_id)})
        return ()
    rules.check_delete(None if row[1] is None else reads.read_run(tx, row[1]))
    removed = remove_thread(tx, row[0], scope, thread_id)
    if removed is not None:
        count_usage(tx, slot, {scope: removed})
    return [(scope, thread_id)]


def remove_thread(tx: Tx, key: int, scope: str, thread_id: str) -> Usage | None:
    """Remove a thread without an open run; return the change of usage. None if a run has begun meanwhile."""
    row = tx.row("DELETE FROM aguila.threads WHERE key = $1 AND running IS NULL RETURNING last, counted", key)
    if row is None:
        return None
    last, counted = row
    for table in ("details", "members", "interrupts"):
        tx.do(f"DELETE FROM aguila.{table} WHERE thread = $1", key)  # noqa: S608 - our own names
    tx.do(
        """
        INSERT INTO aguila.removed (thread_hash, last) VALUES ($1, $2)
        ON CONFLICT (thread_hash) DO UPDATE SET
          last = CASE WHEN removed.last > excluded.last THEN removed.last ELSE excluded.last END
        """,
        hash_thread(scope, thread_id),
        last,
    )
    tx.do("INSERT INTO aguila.trash (thread) VALUES ($1)", key)
    usage = Usage() if counted is None else Usage(threads=-1, bytes=-counted)
    return usage + _release_files(tx, scope, thread_id)


def _delete_scope(tx: Tx, slot: int, scope: str) -> Sequence[ThreadKey]:
    tx.lock_scope(scope)
    rows = tx.rows("SELECT key, thread_id, running FROM aguila.threads WHERE scope = $1 ORDER BY thread_id", scope)
    for _, _, running in rows:
        rules.check_delete(None if running is None else reads.read_run(tx, running))
    change = Usage()
    for key, thread_id, _ in rows:
        removed = remove_thread(tx, key, scope, thread_id)
        if removed is None:
            raise Outage("a run has begun meanwhile")  # tried again: then the run refuses it
        change += removed
    for key, size in tx.rows("SELECT key, size FROM aguila.files WHERE scope = $1 ORDER BY key FOR UPDATE", scope):
        change += _remove_file(tx, key, size)
    tx.do("DELETE FROM aguila.holds WHERE scope = $1", scope)
    tx.do("DELETE FROM aguila.usage WHERE kind = 0 AND scope = $1", scope)
    count_total(tx, slot, change)  # the scope has no row any more
    return [(scope, thread_id) for _, thread_id, _ in rows]


def _release_files(tx: Tx, scope: str, thread_id: str) -> Usage:
    """Remove the files of a thread that no other thread holds; return the change of usage."""
    # A statement of its own: counted in this one, the holders would be those of before the wait for the lock.
    locked = """
    SELECT f.key FROM aguila.holds h JOIN aguila.files f ON f.key = h.file WHERE h.scope = $1 AND h.thread_id = $2
    ORDER BY f.key FOR UPDATE OF f
    """
    if not tx.rows(locked, scope, thread_id):
        return Usage()
    rows = tx.rows(
        """
        SELECT f.key, f.size, f.kept, (SELECT count(*) FROM aguila.holds o WHERE o.file = f.key)
        FROM aguila.holds h JOIN aguila.files f ON f.key = h.file WHERE h.scope = $1 AND h.thread_id = $2
        """,
        scope,
        thread_id,
    )
    tx.do("DELETE FROM aguila.holds WHERE scope = $1 AND thread_id = $2", scope, thread_id)
    change = Usage()
    for key, size, kept, holders in rows:
        if not kept and holders == 1:
            change += _remove_file(tx, key, size)
    return change


def _remove_file(tx: Tx, key: int, size: int) -> Usage:
    tx.do("DELETE FROM aguila.holds WHERE file = $1", key)
    tx.do("DELETE FROM aguila.file_parts WHERE file = $1", key)
    tx.do("DELETE FROM aguila.files WHERE key = $1", key)
    return Usage(files=-1, bytes=-size)


def empty_trash(tx: Tx) -> bool:
    """Delete some rows of a removed thread; return whether there are more."""
    row = tx.row("SELECT min(thread) FROM aguila.trash")
    if row is None or row[0] is None:
        return False
    thread: int = row[0]
    left = TRASH_STEP
    low, high = reads.log_place(thread, 0), reads.log_place(thread + 1, 0)
    places = tx.rows(
        "SELECT place FROM aguila.log WHERE place > $1 AND place < $2 ORDER BY place LIMIT $3", low, high, left
    )
    if places:
        tx.do("DELETE FROM aguila.log WHERE place > $1 AND place <= $2", low, places[-1][0])
        left -= len(places)
    if left:
        digests = tx.rows("SELECT digest, part FROM aguila.contents WHERE thread = $1 LIMIT $2", thread, left)
        tx.many(
            "DELETE FROM aguila.contents WHERE thread = $1 AND digest = $2 AND part = $3",
            [(thread, *one) for one in digests],
        )
        left -= len(digests)
    for table in ("effects", "runs"):
        if left:
            keys = tx.rows(f"SELECT key FROM aguila.{table} WHERE thread = $1 LIMIT $2", thread, left)  # noqa: S608
            tx.many(f"DELETE FROM aguila.{table} WHERE key = $1", keys)  # noqa: S608
            left -= len(keys)
    if left:
        tx.do("DELETE FROM aguila.trash WHERE thread = $1", thread)
        return tx.row("SELECT 1 FROM aguila.trash LIMIT 1") is not None
    return True


# Sweep


def sweep(tx: Tx, slot: int, retention: Retention, limit: int) -> tuple[Swept, Sequence[ThreadKey]]:
    """Remove threads and files beyond the retention, oldest first; also return the removed threads."""
    removed: list[ThreadKey] = []
    if retention.max_age is not None or retention.max_bytes is not None or retention.max_threads is not None:
        removed = _prune(tx, slot, retention)
    compactable = (
        reads.list_compactable(tx, tx.now - retention.compact_after, limit)
        if retention.compact_after is not None
        else ()
    )
    return Swept(removed=len(removed), compactable=compactable), removed


def _prune(tx: Tx, slot: int, retention: Retention) -> list[ThreadKey]:
    entries = _list_removable(tx)
    stored: Counter[str] = Counter()
    for entry in entries:
        stored[entry.scope] += entry.size
    left = Counter(entry.scope for entry in entries if entry.thread_id is not None)

    def is_exceeded(entry: _Entry) -> bool:
        scope, is_thread = entry.scope, entry.thread_id is not None
        threads = left[scope] if is_thread else 0
        if not retention.is_exceeded(age=tx.now - entry.at, size=stored[scope], threads=threads):
            return False
        stored[scope] -= entry.size
        left[scope] -= is_thread
        return True

    return _remove(tx, slot, entries, is_exceeded)


def _remove(tx: Tx, slot: int, entries: Sequence[_Entry], is_wanted: Callable[[_Entry], bool]) -> list[ThreadKey]:
    """Remove the wanted ones of some threads and files; return the threads. One with an open run stays."""
    removed: list[ThreadKey] = []
    usage: dict[str, Usage] = {}
    for entry in entries:
        if entry.running is not None or not is_wanted(entry):
            continue
        scope, thread_id = entry.scope, entry.thread_id
        if thread_id is None:
            change = _remove_file(tx, entry.key, entry.size)
        else:
            found = remove_thread(tx, entry.key, scope, thread_id)
            if found is None:
                continue
            change = found
            removed.append((scope, thread_id))
        usage[scope] = usage.get(scope, Usage()) + change
    count_usage(tx, slot, usage)
    return removed


class _Entry(NamedTuple):
    """A thread with its files, or a file without a thread."""

    at: float
    key: int
    scope: str
    thread_id: str | None
    size: int
    running: int | None


def _list_removable(tx: Tx) -> Sequence[_Entry]:
    """Return the threads, and the files without a thread, oldest first."""
    threads = tx.rows(
        """
        SELECT t.updated_at, t.key, t.scope, t.thread_id, t.bytes + CAST(coalesce(
          (SELECT sum(f.size) FROM aguila.holds h JOIN aguila.files f ON f.key = h.file
           WHERE h.scope = t.scope AND h.thread_id = t.thread_id), 0) AS bigint), t.running
        FROM aguila.threads t ORDER BY t.updated_at, t.position
        """
    )
    files = tx.rows(
        """
        SELECT f.created_at, f.key, f.scope, NULL, f.size, NULL FROM aguila.files f
        WHERE NOT EXISTS (
          SELECT 1 FROM aguila.holds h JOIN aguila.threads t ON t.scope = h.scope AND t.thread_id = h.thread_id
          WHERE h.file = f.key)
        ORDER BY f.created_at, f.key
        """
    )
    return [_Entry(*row) for row in merge(threads, files, key=itemgetter(0))]


def measure(tx: Tx) -> tuple[int, int]:
    """Return how many threads there are, and the bytes of threads and files."""
    row = tx.row("SELECT count(*), coalesce(sum(bytes), 0) FROM aguila.threads")
    files = tx.row("SELECT coalesce(sum(size), 0) FROM aguila.files")
    assert row is not None and files is not None  # noqa: S101, PT018 - aggregates
    return row[0], row[1] + files[0]


def remove_oldest(
    tx: Tx, slot: int, *, threads: int, size: int, keep: ThreadKey | None
) -> tuple[Sequence[ThreadKey], int]:
    """Remove threads without an open run and files without a thread, oldest first, until so many are removed.

    Return the removed threads, and the bytes that were freed.
    """
    count = freed = 0

    def is_needed(entry: _Entry) -> bool:
        nonlocal count, freed
        is_thread = entry.thread_id is not None
        if (entry.scope, entry.thread_id) == keep or (freed >= size and (not is_thread or count >= threads)):
            return False
        count += is_thread
        freed += entry.size
        return True

    return _remove(tx, slot, _list_removable(tx), is_needed), freed


# Files


def put_file(
    tx: Tx, slot: int, file: FileRecord, data: bytes, thread_id: str | None, quotas: Quotas | None
) -> FileRecord:
    """Store a file unless it is stored; return it. Raises ``QuotaExceeded``."""
    found = reads.find_file(tx, file.scope, file.file_id, locks=True)
    if found is None:
        if quotas is not None:
            total = reads.read_total(tx) if quotas.is_total else Usage()
            used = reads.read_usage(tx, file.scope)
            exceeded = quotas.find_exceeded(used, total, new=Usage(files=1, bytes=file.size))
            if exceeded is not None:
                raise refusals.quota_exceeded(exceeded)
        row = tx.row(
            """
            INSERT INTO aguila.files (scope, file_id, media_type, filename, size, created_at, kept)
            VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING key
            """,
            file.scope,
            file.file_id,
            file.media_type,
            file.filename,
            file.size,
            file.created_at,
            int(thread_id is None),
        )
        assert row is not None  # noqa: S101
        key: int = row[0]
        view = memoryview(data)
        tx.many(
            "INSERT INTO aguila.file_parts (file, part, data) VALUES ($1, $2, $3)",
            ((key, part, view[at : at + PART]) for part, at in enumerate(range(0, len(data), PART))),
        )
        stored = file
    else:
        stored, key = found
        if thread_id is None and not stored.is_kept:
            tx.do("UPDATE aguila.files SET kept = 1 WHERE key = $1", key)
    if thread_id is not None:
        tx.do(
            "INSERT INTO aguila.holds (scope, thread_id, file) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
            file.scope,
            thread_id,
            key,
        )
    if found is None:
        count_usage(tx, slot, {file.scope: Usage(files=1, bytes=file.size)})
    return stored


def check(tx: Tx) -> None:
    """Write as many bytes as a small run. Others than the last time: SQLite writes no page that stays the same."""
    tx.do(
        """
        INSERT INTO aguila.checks (key, at, body) VALUES (1, $1, $2)
        ON CONFLICT (key) DO UPDATE SET at = excluded.at, body = excluded.body
        """,
        tx.now,
        token_bytes(8) * (SMALL_RUN // 8),
    )
