"""The SQL that reads. Each function sees one state of the database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from operator import itemgetter
from typing import Any, Final

import msgspec

from aguila.store import refusals
from aguila.store.contents import PART, ListDelta, base_number, base_numbers, file_digests, read_content
from aguila.store.encoding import check_cursor, decode_row, hash_member, index_value, inside_compacted
from aguila.store.live import cut
from aguila.store.records import (
    RECENT_THREADS,
    Batch,
    CancelRequest,
    Effect,
    FileRecord,
    InterruptRecord,
    LogPart,
    RemovedThreads,
    Rest,
    RunRecord,
    ScopeRecord,
    Stamp,
    ThreadFilter,
    ThreadKey,
    ThreadPage,
    ThreadRecord,
    ThreadSummary,
    Turn,
    Usage,
    ViewerRecord,
    Want,
)
from aguila.store.sql.tx import Row, Tx

CANCEL: Final[dict[CancelRequest | None, int]] = {None: 0, "always": 1, "unwatched": 2}
"""The values of the column ``runs.cancel``."""
CANCEL_REQUESTS: Final[dict[int, CancelRequest | None]] = {number: request for request, number in CANCEL.items()}

_READ_BYTES: Final = 64 * 1024
"""Bytes after which a read stops, whatever its limit: a reader that is suspended keeps them in memory."""

_TOKEN = "coalesce((SELECT l.token FROM aguila.log l WHERE l.place = t.key * 4294967296 + {}), '')"  # noqa: S105

_RUN_COLUMNS: Final = f"""
  t.scope, t.thread_id, r.run_id, r.number, r.parent_run_id, r.sent_run_id, t.agent, r.fingerprint, r.first,
  coalesce(r.last, t.last), r.outcome, r.owner, r.epoch, r.lease_until, r.cancel, r.started_at, r.ended_at, r.compacted,
  {_TOKEN.format("coalesce(r.last, t.last)")}
"""
_REQUEST: Final = ", r.request, r.list"
_TURN: Final = ", r.format, r.turn"
_FROM_RUNS: Final = " FROM aguila.threads t JOIN aguila.runs r ON r.thread = t.key "
RUN_BY_KEY: Final = (
    f"SELECT {_RUN_COLUMNS} FROM aguila.runs r JOIN aguila.threads t ON t.key = r.thread WHERE r.key = $1"  # noqa: S608
)
OPEN_RUNS: Final = f"""
SELECT {_RUN_COLUMNS}, r.key, t.key, r.lock, r.launch, r.lease_seconds, r.token
FROM aguila.threads t JOIN aguila.runs r ON r.key = t.running
"""  # noqa: S608 - our own names
_COLUMNS: Final = 19
"""How many columns ``run_record`` takes."""

_SUMMARY_COLUMNS: Final = f"""
  t.thread_id, t.created_at, t.updated_at, t.last,
  coalesce((SELECT max(r.number) FROM aguila.runs r WHERE r.thread = t.key), 0),
  (SELECT r.run_id FROM aguila.runs r WHERE r.key = t.running), t.position, t.agent, d.title, t.archived, d.metadata,
  {_TOKEN.format("t.last")}, t.key, t.first
"""  # noqa: S608 - our own names
_SUMMARY: Final = f"SELECT {_SUMMARY_COLUMNS} FROM aguila.threads t LEFT JOIN aguila.details d ON d.thread = t.key "  # noqa: S608

_replace = msgspec.structs.replace

MAX_INDEXED: Final = 256
"""If more threads match a metadata filter, threads are read in the order of their last update until a page is full."""

_ROWS_AT_ONCE: Final = 32
"""Rows of the log that are read at a time."""


def log_place(thread: int, last: int) -> int:
    """Return the key of the row of the log whose last event has this number."""
    return (thread << 32) + last


def run_record(row: Row) -> RunRecord:
    """Return a run from its columns."""
    return RunRecord(
        scope=row[0],
        thread_id=row[1],
        run_id=row[2],
        number=row[3],
        parent_run_id=row[4],
        sent_run_id=row[5],
        agent=row[6],
        fingerprint=row[7],
        first=row[8],
        last=row[9],
        outcome=row[10],
        owner=row[11],
        epoch=row[12],
        lease_until=row[13],
        cancel=CANCEL_REQUESTS[row[14]],
        started_at=row[15],
        ended_at=row[16],
        compacted=bool(row[17]),
        token=row[18],
    )


def read_run(tx: Tx, key: int) -> RunRecord:
    """Return an existing run by its key."""
    row = tx.row(RUN_BY_KEY, key)
    assert row is not None  # noqa: S101
    return run_record(row)


def find_thread(tx: Tx, scope: str, thread_id: str) -> tuple[int, int, int]:
    """Return key, first and last of a thread. Raises ``NotFound``."""
    row = tx.row("SELECT key, first, last FROM aguila.threads WHERE scope = $1 AND thread_id = $2", scope, thread_id)
    if row is None:
        raise refusals.no_thread(thread_id)
    return row[0], row[1], row[2]


def summary_of(row: Row) -> ThreadSummary:
    """Return a thread from its columns."""
    return ThreadSummary(
        thread_id=row[0],
        created_at=row[1],
        updated_at=row[2],
        last=row[3],
        runs=row[4],
        running=row[5],
        position=row[6],
        agent=row[7],
        title=row[8],
        archived=bool(row[9]),
        metadata=row[10],
        token=row[11],
    )


def read_summary(tx: Tx, scope: str, thread_id: str) -> tuple[ThreadSummary, int, int]:
    """Return a thread, its key and its first number. Raises ``NotFound``."""
    row = tx.row(_SUMMARY + "WHERE t.scope = $1 AND t.thread_id = $2", scope, thread_id)
    if row is None:
        raise refusals.no_thread(thread_id)
    return summary_of(row), row[12], row[13]


# One thread


def read_thread(tx: Tx, scope: str, thread_id: str, want: Want) -> ThreadRecord:
    """Return the rows of a thread that are wanted. Raises ``NotFound``."""
    summary, key, first = read_summary(tx, scope, thread_id)
    effects: Sequence[Row] = ()
    if want.effects or want.root_run_id is not None:
        sql = "SELECT root, name, value, epoch FROM aguila.effects WHERE thread = $1"
        if want.root_run_id is None:
            effects = tx.rows(sql + " ORDER BY key", key)
        else:
            effects = tx.rows(sql + " AND root = $2 ORDER BY key", key, want.root_run_id)
    session = tx.row("SELECT session FROM aguila.details WHERE thread = $1", key) if want.session else None
    return ThreadRecord(
        scope=scope,
        summary=summary,
        first=first,
        runs=_read_runs(tx, key, want) if want.runs or want.run_id is not None else (),
        interrupts=list_interrupts(tx, key) if want.interrupts else (),
        session=None if session is None else session[0],
        effects=[Effect(root_run_id=row[0], name=row[1], value=row[2], epoch=row[3]) for row in effects],
        viewers=_list_viewers(tx, key) if want.viewers else (),
        files=_list_files(tx, scope, thread_id) if want.files else (),
    )


def _read_runs(tx: Tx, thread: int, want: Want) -> Sequence[RunRecord]:
    columns = _RUN_COLUMNS + (_REQUEST if want.requests else "") + (_TURN if want.turns else "")
    select = f"SELECT {columns} {_FROM_RUNS} WHERE t.key = $1 AND "
    if want.run_id is not None:
        rows = tx.rows(select + "r.run_id = $2", thread, want.run_id)
    else:
        rows = tx.rows(select + "r.number > $2 ORDER BY r.number", thread, want.runs_after)
    found: list[RunRecord] = []
    lists: dict[int, bytes] = {}
    for row in rows:
        run = run_record(row)
        changes: dict[str, Any] = {}
        if want.requests:
            changes["request"] = row[_COLUMNS]
            if row[_COLUMNS + 1] is not None:
                changes["messages"] = _read_list(tx, thread, run.number, lists, row[_COLUMNS + 1])
        if want.turns and row[-1] is not None:
            changes["turn"] = Turn(format=row[-2], body=row[-1])
        found.append(_replace(run, **changes) if changes else run)
    return found


def _read_list(tx: Tx, thread: int, number: int, lists: dict[int, bytes], delta: bytes) -> bytes:
    """Return the digests of the messages of a run; ``lists`` keeps lists by the numbers of their runs."""
    base = read_base(tx, thread, base_numbers(number)[:-1], lists)
    found = lists[number] = ListDelta.decode(delta).apply(base)
    return found


def read_base(tx: Tx, thread: int, numbers: Sequence[int], lists: dict[int, bytes]) -> bytes:
    """Return the list of the last of these runs, each stored as a change of the one before it."""
    missing = [number for number in numbers if number not in lists]
    sql = "SELECT list FROM aguila.runs WHERE thread = $1 AND number = $2"
    for number, rows in zip(missing, tx.each(sql, [(thread, one) for one in missing]), strict=True):
        delta = rows[0][0] if rows else None
        base = lists.get(base_number(number), b"")
        lists[number] = b"" if delta is None else ListDelta.decode(delta).apply(base)  # without one, it is stored whole
    return lists[numbers[-1]] if numbers else b""


def list_interrupts(tx: Tx, thread: int) -> Sequence[InterruptRecord]:
    """Return the interrupts of a thread in the order they were raised."""
    rows = tx.rows(
        "SELECT interrupt_id, run_id, status, body, claimed_by FROM aguila.interrupts WHERE thread = $1 ORDER BY key",
        thread,
    )
    return [
        InterruptRecord(interrupt_id=row[0], run_id=row[1], status=row[2], body=row[3], claimed_by=row[4])
        for row in rows
    ]


def _list_viewers(tx: Tx, thread: int) -> Sequence[ViewerRecord]:
    rows = tx.rows(
        """
        SELECT v.viewer, v.until, v.lock FROM aguila.threads t JOIN aguila.viewers v ON v.run = t.running
        WHERE t.key = $1 ORDER BY v.viewer
        """,
        thread,
    )
    now = tx.lease_now
    return [
        ViewerRecord(
            viewer=viewer,
            left=None if until > now else now - until,
            is_dead=until > now and tx.is_dead(viewer, lock),
        )
        for viewer, until, lock in rows
    ]


_FILE_COLUMNS: Final = "f.scope, f.file_id, f.media_type, f.filename, f.size, f.created_at, f.kept, f.key"


def file_record(row: Row, thread_ids: tuple[str, ...] = ()) -> FileRecord:
    """Return a file from its columns."""
    return FileRecord(
        scope=row[0],
        file_id=row[1],
        media_type=row[2],
        filename=row[3],
        size=row[4],
        created_at=row[5],
        is_kept=bool(row[6]),
        thread_ids=thread_ids,
    )


def _list_files(tx: Tx, scope: str, thread_id: str) -> Sequence[FileRecord]:
    rows = tx.rows(
        f"""
        SELECT {_FILE_COLUMNS} FROM aguila.holds h JOIN aguila.files f ON f.key = h.file
        WHERE h.scope = $1 AND h.thread_id = $2 ORDER BY f.file_id
        """,  # noqa: S608 - our own names
        scope,
        thread_id,
    )
    return list(map(file_record, rows))


_FILE: Final = f"SELECT {_FILE_COLUMNS} FROM aguila.files f WHERE f.scope = $1 AND f.file_id = $2"  # noqa: S608


def find_file(tx: Tx, scope: str, file_id: str, *, locks: bool = False) -> tuple[FileRecord, int] | None:
    """Return a file and its key, or None. ``locks``: it is about to be changed."""
    row = tx.row(_FILE + " FOR UPDATE" if locks else _FILE, scope, file_id)
    return None if row is None else (file_record(row), row[7])


# The log and the contents

_LOG: Final = """
SELECT place, first, at, token, starts, content, events FROM aguila.log WHERE place > $1 AND place < $2
ORDER BY place LIMIT $3
"""
_AT_CURSOR: Final = """
SELECT place, first, token, starts FROM aguila.log WHERE place >= $1 AND place < $2 ORDER BY place LIMIT 1
"""


def read_log(tx: Tx, scope: str, thread_id: str, after: int, until: int | None, limit: int) -> LogPart:
    """Return batches after a cursor. Raises ``NotFound``, ``CursorExpired``."""
    key, first, last = find_thread(tx, scope, thread_id)
    after = check_cursor(after, first, last)
    end = log_place(key + 1, 0)
    token = ""
    if after >= first:
        row = tx.row(_AT_CURSOR, log_place(key, after), end)
        assert row is not None  # noqa: S101 - the log reaches "last"
        if row[3] < row[1] and row[0] != log_place(key, after) and row[3] <= after:
            raise inside_compacted(after)
        token = row[2]
    stop = last if until is None else min(until, last)
    batches = list(iterate_log(tx, key, after, stop, limit, _READ_BYTES)) if limit and after < stop else []
    return LogPart(batches=batches, first=first, last=last, token=token)


def iterate_log(tx: Tx, key: int, after: int, stop: int, limit: int, max_bytes: float = inf) -> Iterator[Batch]:
    """Iterate over batches after ``after`` and up to ``stop``, until ``limit`` events or enough bytes."""
    place, end = log_place(key, after), log_place(key + 1, 0)
    count = size = 0
    while True:
        rows = tx.rows(_LOG, place, end, min(limit, _ROWS_AT_ONCE))
        for place, first, at, token, _, content, events in rows:  # noqa: B007 - "place" is where to go on
            if first > stop or count >= limit or size >= max_bytes:
                return
            lines = [read_stored(tx, key, content)] if content is not None else decode_row(events)
            batch = cut(Batch(first, lines, at, token), after, stop)
            count += len(batch.events)
            size += len(events) if content is None else len(lines[0])
            yield batch
        if len(rows) < min(limit, _ROWS_AT_ONCE):
            return


_CONTENT: Final = "SELECT body FROM aguila.contents WHERE thread = $1 AND digest = $2 ORDER BY part"


def read_stored(tx: Tx, thread: int, digest: bytes) -> bytes:
    """Return the stored body of an existing content."""
    return b"".join([row[0] for row in tx.rows(_CONTENT, thread, digest)])


def read_values(tx: Tx, scope: str, thread_id: str, digests: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return contents of a thread by their digests."""
    row = tx.row("SELECT key FROM aguila.threads WHERE scope = $1 AND thread_id = $2", scope, thread_id)
    if row is None or not digests:
        return {}
    thread: int = row[0]
    wanted = list(dict.fromkeys(digests))
    bodies = _read_bodies(tx, thread, wanted)
    files = {digest for body in bodies.values() for digest in file_digests(body)}
    found = _read_bodies(tx, thread, sorted(files)) if files else {}
    return {digest: read_content(body, found.__getitem__) for digest, body in bodies.items()}


def _read_bodies(tx: Tx, thread: int, digests: Sequence[bytes]) -> dict[bytes, bytes]:
    rows = tx.each(_CONTENT, [(thread, digest) for digest in digests])
    return {
        digest: parts[0][0] if len(parts) == 1 else b"".join([part[0] for part in parts])
        for digest, parts in zip(digests, rows, strict=True)
        if parts
    }


# Many threads


def read_stamps(tx: Tx, keys: Sequence[ThreadKey]) -> dict[ThreadKey, Stamp]:
    """Return the stamps of some threads."""
    rows = tx.each(
        """
        SELECT t.first, t.last, r.run_id, t.epoch, r.token, r.cancel FROM aguila.threads t
        LEFT JOIN aguila.runs r ON r.key = t.running WHERE t.scope = $1 AND t.thread_id = $2
        """,
        keys,
    )
    found: dict[ThreadKey, Stamp] = {}
    for key, row in zip(keys, rows, strict=True):
        if row:
            first, last, run_id, epoch, token, cancel = row[0]
            found[key] = Stamp(first, last, run_id, epoch, token, CANCEL_REQUESTS[cancel or 0])
    return found


def list_open_runs(tx: Tx, scope: str | None) -> Sequence[RunRecord]:
    """Return the open runs of a scope, or of all, the one that began first at the front."""
    where, values = ("", ()) if scope is None else (" AND t.scope = $1", (scope,))
    # Sorted here: with an ORDER BY, SQLite would scan all threads in that order instead of the index of open runs.
    rows = sorted(tx.rows(f"{OPEN_RUNS}WHERE t.running IS NOT NULL{where}", *values), key=itemgetter(15, _COLUMNS))
    return list(map(run_record, rows))


def list_threads(tx: Tx, scope: str, which: ThreadFilter, stamp: str | None) -> ThreadPage:
    """Return a page of threads of a scope."""
    threads = _list_threads(tx, scope, which) if which.limit else ()
    if not which.usage:
        return ThreadPage(threads=threads, stamp=stamp)
    return ThreadPage(threads=threads, stamp=stamp, usage=read_usage(tx, scope), total=read_total(tx))


def _list_threads(tx: Tx, scope: str, which: ThreadFilter) -> Sequence[ThreadSummary]:
    if which.run_id is not None:
        keys = tx.rows(
            """
            SELECT t.key FROM (
              SELECT key, position FROM aguila.threads WHERE scope = $1 ORDER BY position DESC LIMIT $3
            ) t JOIN aguila.runs r ON r.thread = t.key AND r.run_id = $2 ORDER BY t.position DESC LIMIT $4
            """,
            scope,
            which.run_id,
            RECENT_THREADS,
            which.limit,
        )
        return _by_keys(tx, keys)
    if which.interrupt_id is not None:
        keys = tx.rows(
            """
            SELECT thread FROM aguila.interrupts WHERE scope = $1 AND interrupt_id = $2
            ORDER BY key DESC LIMIT $3
            """,
            scope,
            which.interrupt_id,
            which.limit,
        )
        return _by_keys(tx, keys)
    where, values = "t.scope = $1 AND t.position < $2", [scope, 2**62 if which.before is None else which.before]
    if which.agent is not None:
        values.append(which.agent)
        # The conditions of the partial indexes are written out: an index is used only if a query implies its condition.
        where += f" AND t.agent = ${len(values)}" + ("" if which.agent == "default" else " AND t.agent <> 'default'")
    if which.archived is not None:
        where += f" AND t.archived = {int(which.archived)}"
    order = f" ORDER BY t.position DESC LIMIT ${len(values) + 1}"
    if which.metadata is None:
        return [summary_of(row) for row in tx.rows(_SUMMARY + "WHERE " + where + order, *values, which.limit)]
    value = None if which.metadata.value is None else index_value(which.metadata.value)
    member = hash_member(scope, which.metadata.key, value)
    keys = tx.rows("SELECT thread FROM aguila.members WHERE member = $1 LIMIT $2", member, MAX_INDEXED)
    if len(keys) < MAX_INDEXED:
        sql = f"{_SUMMARY} WHERE {where} AND t.key = ${len(values) + 1}"
        rows = [row for found in tx.each(sql, [(*values, key) for (key,) in keys]) for row in found]
        found = [one for one in map(summary_of, rows) if which.metadata.matches(one.metadata)]
        return sorted(found, key=lambda one: -one.position)[: which.limit]
    return _scan_metadata(tx, where, values, which, member)


def _scan_metadata(tx: Tx, where: str, values: list[Any], which: ThreadFilter, member: int) -> Sequence[ThreadSummary]:
    """List threads in the order of their last update until a page is full of those that match."""
    assert which.metadata is not None  # noqa: S101
    place = len(values)
    sql = f"""
    {_SUMMARY} WHERE {where}
      AND EXISTS (SELECT 1 FROM aguila.members m WHERE m.member = ${place + 1} AND m.thread = t.key)
    ORDER BY t.position DESC LIMIT ${place + 2}
    """  # noqa: S608 - our own names
    found: list[ThreadSummary] = []
    while True:  # the hash of another member may be the same
        page = list(map(summary_of, tx.rows(sql, *values, member, which.limit)))
        found += [one for one in page if which.metadata.matches(one.metadata)]
        if len(page) < which.limit or len(found) >= which.limit:
            return found[: which.limit]
        values[1] = page[-1].position


def _by_keys(tx: Tx, keys: Sequence[Row]) -> Sequence[ThreadSummary]:
    return [summary_of(rows[0]) for rows in tx.each(_SUMMARY + "WHERE t.key = $1", keys) if rows]


# Usage and what belongs to no thread

_USAGE: Final = """
SELECT CAST(coalesce(sum(threads), 0) AS bigint), CAST(coalesce(sum(files), 0) AS bigint),
  CAST(coalesce(sum(bytes), 0) AS bigint) FROM aguila.usage WHERE kind = $1 AND scope = $2
"""
_OPEN_USAGE: Final = """
SELECT count(*) - count(counted), CAST(coalesce(sum(bytes - coalesce(counted, 0)), 0) AS bigint)
FROM aguila.threads WHERE scope = $1 AND running IS NOT NULL
"""


def read_usage(tx: Tx, scope: str) -> Usage:
    """Return what a scope holds, with the writes of open runs."""
    counted, opened = tx.row(_USAGE, 0, scope), tx.row(_OPEN_USAGE, scope)
    assert counted is not None and opened is not None  # noqa: S101, PT018 - aggregates
    return Usage(threads=counted[0] + opened[0], files=counted[1], bytes=counted[2] + opened[1])


def read_total(tx: Tx) -> Usage:
    """Return what the store holds, without the writes of open runs."""
    row = tx.row(_USAGE, 1, "")
    assert row is not None  # noqa: S101
    return Usage(threads=row[0], files=row[1], bytes=row[2])


# Every row has a scope, what it adds to threads, files and bytes (as in _USAGE and _OPEN_USAGE), runs and events, and
# whether it stands for something that the scope holds.
_SCOPES: Final = """
SELECT scope, threads, files, bytes, 0 AS runs, 0 AS events, 0 AS held FROM aguila.usage WHERE kind = 0
UNION ALL
SELECT t.scope, CASE WHEN t.running IS NOT NULL AND t.counted IS NULL THEN 1 ELSE 0 END, 0,
  CASE WHEN t.running IS NULL THEN 0 ELSE t.bytes - coalesce(t.counted, 0) END,
  (SELECT max(r.number) FROM aguila.runs r WHERE r.thread = t.key), t.last - t.first + 1, 1 FROM aguila.threads t
UNION ALL SELECT scope, 0, 0, 0, 0, 0, 1 FROM aguila.files
UNION ALL SELECT scope, 0, 0, 0, 0, 0, 1 FROM aguila.holds
"""


def list_scopes(tx: Tx, scope: str | None) -> Sequence[ScopeRecord]:
    """Return the scopes that hold something, in the order of their names."""
    where, values = ("", ()) if scope is None else ("WHERE scope = $1", (scope,))
    sums = ", ".join(f"CAST(sum({name}) AS bigint)" for name in ("threads", "files", "bytes", "runs", "events"))
    sql = f"SELECT scope, {sums} FROM ({_SCOPES}) AS s {where} GROUP BY scope HAVING sum(held) > 0"  # noqa: S608
    return [
        ScopeRecord(scope=row[0], usage=Usage(threads=row[1], files=row[2], bytes=row[3]), runs=row[4], events=row[5])
        for row in sorted(tx.rows(sql, *values))
    ]


def list_files(tx: Tx, scope: str | None, after: int, limit: int) -> tuple[Sequence[Rest], int | None]:
    """Return a page of files with the threads that hold them, and the key of the last one; None at the end."""
    where, values = ("f.key > $1", [after]) if scope is None else ("f.key > $1 AND f.scope = $3", [after])
    sql = f"SELECT {_FILE_COLUMNS} FROM aguila.files f WHERE {where} ORDER BY f.key LIMIT $2"  # noqa: S608
    rows = tx.rows(sql, *values, limit, *(() if scope is None else (scope,)))
    holders = tx.each("SELECT thread_id FROM aguila.holds WHERE file = $1 ORDER BY thread_id", [(r[7],) for r in rows])
    found = [file_record(row, tuple([one[0] for one in ids])) for row, ids in zip(rows, holders, strict=True)]
    return found, rows[-1][7] if len(rows) == limit else None


def list_removed(tx: Tx) -> RemovedThreads:
    """Return the last numbers of removed threads."""
    rows = tx.rows("SELECT thread_hash, last FROM aguila.removed")
    return RemovedThreads({row[0]: row[1] for row in rows})


def read_file(tx: Tx, scope: str, file_id: str, start: int, size: int | None) -> tuple[FileRecord, bytes]:
    """Return a file with a part of its content. Raises ``NotFound``."""
    found = find_file(tx, scope, file_id)
    if found is None:
        raise refusals.no_blob(file_id)
    record, key = found
    stop = record.size if size is None else min(record.size, start + size)
    if start >= stop:
        return record, b""
    rows = tx.rows(
        "SELECT data FROM aguila.file_parts WHERE file = $1 AND part >= $2 AND part <= $3 ORDER BY part",
        key,
        start // PART,
        (stop - 1) // PART,
    )
    data = rows[0][0] if len(rows) == 1 else b"".join([row[0] for row in rows])
    skipped = start - start // PART * PART
    return record, data[skipped : skipped + stop - start]


# Compaction


def list_compactable(tx: Tx, before: float, limit: int) -> Sequence[RunRecord]:
    """Return runs that ended before a time and were not compacted, oldest first."""
    rows = tx.rows(
        f"""
        SELECT {_RUN_COLUMNS} FROM aguila.runs r JOIN aguila.threads t ON t.key = r.thread
        WHERE r.outcome IS NOT NULL AND r.compacted = 0 AND r.ended_at <= $1 AND NOT EXISTS (
          SELECT 1 FROM aguila.interrupts i
          LEFT JOIN aguila.runs s ON s.thread = i.thread AND s.run_id = i.claimed_by
          WHERE i.thread = r.thread AND (i.run_id = r.run_id OR i.claimed_by = r.run_id)
            AND (i.status <> 'settled' OR s.outcome IS NULL OR s.outcome NOT IN ('success', 'interrupt'))
        ) ORDER BY r.ended_at, r.key LIMIT $2
        """,  # noqa: S608 - our own names
        before,
        limit,
    )
    return list(map(run_record, rows))
