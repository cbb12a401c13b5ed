"""The SQL that changes threads, files and peers. Each function is one job of the writer: see ``run_writes``."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from heapq import merge
from operator import itemgetter

from msgspec import UNSET

from aguila.errors import NotFound, StoreUnavailable
from aguila.store import refusals
from aguila.store.encoding import SMALL_RUN, hash_thread, list_members, size_of_details
from aguila.store.feed import ThreadKey
from aguila.store.records import Blob, Quotas, Retention, RunRecord, ThreadSummary, ThreadUpdate, Usage
from aguila.store.sqlite import queries
from aguila.store.sqlite.database.large_values import insert


def update_thread(db: sqlite3.Connection, scope: str, thread_id: str, update: ThreadUpdate) -> ThreadSummary:
    """Change the title, the archived flag or the metadata of a thread. Raises ``NotFound``."""
    key, _ = queries.find_thread(db, scope, thread_id)
    change_details(db, key, update)
    return queries.read_thread(db, scope, thread_id)


def change_details(db: sqlite3.Connection, key: int, update: ThreadUpdate) -> None:
    """Change the title, the archived flag or the metadata of the thread with this key."""
    old = db.execute("SELECT title, metadata FROM details WHERE thread = ?", (key,)).fetchone() or (None, None)
    title = old[0] if update.title is UNSET else update.title
    if title is None and update.default_title is not UNSET:
        title = update.default_title
    metadata = old[1] if update.metadata is UNSET else update.metadata
    if (title, metadata) != old:
        db.execute("INSERT OR REPLACE INTO details (thread, title, metadata) VALUES (?, ?, ?)", (key, title, metadata))
        if metadata != old[1]:
            (scope,) = db.execute("SELECT scope FROM threads WHERE key = ?", (key,)).fetchone()
            _remove_members(db, scope, key, old[1])
            add_members(db, scope, key, metadata)
        grown = size_of_details(title, metadata) - size_of_details(*old)
        db.execute("UPDATE threads SET bytes = bytes + ? WHERE key = ?", (grown, key))
    if update.archived is not UNSET:
        db.execute("UPDATE threads SET archived = ? WHERE key = ?", (update.archived, key))


def add_members(db: sqlite3.Connection, scope: str, key: int, metadata: bytes | None) -> None:
    """Index the metadata of a thread."""
    rows = [(scope, name, value, key) for name, value in list_members(metadata)]
    db.executemany("INSERT INTO metadata_members (scope, name, value, thread) VALUES (?, ?, ?, ?)", rows)


def _remove_members(db: sqlite3.Connection, scope: str, key: int, metadata: bytes | None) -> None:
    rows = [(scope, name, value, key) for name, value in list_members(metadata)]
    db.executemany("DELETE FROM metadata_members WHERE scope = ? AND name = ? AND value = ? AND thread = ?", rows)


def delete_thread(db: sqlite3.Connection, scope: str, thread_id: str) -> None:
    """Remove a thread, or the files of a thread that never ran. Raises ``NotFound``, ``ThreadBusy``."""
    try:
        key, _ = queries.find_thread(db, scope, thread_id)
    except NotFound:
        if not _release_blobs(db, scope, thread_id):
            raise
        return
    running = db.execute("SELECT running FROM threads WHERE key = ?", (key,)).fetchone()[0]
    if running is not None:
        raise refusals.thread_busy(queries.read_run_by_key(db, running))
    remove_thread(db, key, scope, thread_id)


def prune(db: sqlite3.Connection, now: float, retention: Retention) -> Sequence[ThreadKey]:
    """Remove threads without an open run and files without a thread, oldest first; return the removed threads."""
    threads = db.execute(
        """
        SELECT t.updated_at, t.key, t.scope, t.thread_id, t.bytes + coalesce(
          (SELECT sum(b.size) FROM holds h JOIN blobs b ON b.key = h.blob
           WHERE h.scope = t.scope AND h.thread_id = t.thread_id), 0), t.running
        FROM threads t ORDER BY t.updated_at, t.touched
        """
    ).fetchall()
    files = db.execute(
        """
        SELECT b.created_at, b.key, b.scope, NULL, b.size, NULL FROM blobs b
        WHERE NOT EXISTS (SELECT 1 FROM holds h JOIN threads t ON t.scope = h.scope AND t.thread_id = h.thread_id
                          WHERE h.blob = b.key)
        ORDER BY b.created_at, b.key
        """
    ).fetchall()
    stored: Counter[str] = Counter()
    left = Counter(row[2] for row in threads)
    for _, _, scope, _, size, _ in (*threads, *files):
        stored[scope] += size
    removed: list[ThreadKey] = []
    for updated_at, key, scope, thread_id, size, running in merge(threads, files, key=itemgetter(0)):
        if running is not None:
            continue
        count = 0 if thread_id is None else left[scope]
        if retention.is_exceeded(age=now - updated_at, size=stored[scope], threads=count):
            stored[scope] -= size
            if thread_id is None:
                _remove_blob(db, key)
            else:
                remove_thread(db, key, scope, thread_id)
                left[scope] -= 1
                removed.append((scope, thread_id))
    return removed


def compact_run(db: sqlite3.Connection, run: RunRecord, events: Sequence[bytes], row: bytes) -> None:
    """Replace the events of a closed run; ``row`` is ``events`` as one row of the log."""
    found = db.execute(
        """
        SELECT t.key, r.key FROM threads t JOIN runs r ON r.thread = t.key
        WHERE t.scope = ? AND t.thread_id = ? AND r.run_id = ? AND r.first = ? AND r.last = ? AND NOT r.compacted
        """,
        (run.scope, run.thread_id, run.run_id, run.first, run.last),
    ).fetchone()
    if found is None:
        return
    thread, key = found
    db.execute("UPDATE runs SET compacted = 1 WHERE key = ?", (key,))
    if len(events) > run.last - run.first:
        return
    place = queries.log_place(thread, run.last)
    (size, at) = db.execute(
        "SELECT sum(length(events)), max(at) FROM log WHERE place >= ? AND place <= ?",
        (queries.log_place(thread, run.first), place),
    ).fetchone()
    (token,) = db.execute("SELECT token FROM log WHERE place = ?", (place,)).fetchone()
    db.execute("DELETE FROM log WHERE place >= ? AND place <= ?", (queries.log_place(thread, run.first), place))
    insert(
        db,
        "INSERT INTO log (place, first, at, token, compacted, events) VALUES (?, ?, ?, ?, 1, ?)",
        (place, run.last - len(events) + 1, at, token),
        row,
    )
    db.execute("UPDATE threads SET bytes = bytes + ? WHERE key = ?", (len(row) - size, thread))


def put_blob(
    db: sqlite3.Connection,
    scope: str,
    blob: Blob,
    data: bytes | memoryview,
    thread_id: str | None,
    quotas: Quotas | None = None,
) -> Blob:
    """Store a file unless it is stored; return it. Raises ``QuotaExceeded``."""
    stored = queries.find_blob(db, scope, blob.blob_id)
    if stored is None:
        if quotas is not None:
            queries.check_quotas(db, quotas, queries.read_usage(db, scope), Usage(files=1, bytes=blob.size))
        insert(
            db,
            """
            INSERT INTO blobs (scope, blob_id, media_type, filename, size, created_at, kept, data)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?)
            """,
            (scope, blob.blob_id, blob.media_type, blob.filename, blob.size, blob.created_at, thread_id is None),
            data,
        )
        stored = blob
    elif thread_id is None:  # rewrites the whole row, so only if it changes
        db.execute("UPDATE blobs SET kept = 1 WHERE scope = ? AND blob_id = ? AND NOT kept", (scope, blob.blob_id))
    if thread_id is not None:
        db.execute(
            """
            INSERT OR IGNORE INTO holds (scope, thread_id, blob)
            SELECT ?, ?, key FROM blobs WHERE scope = ? AND blob_id = ?
            """,
            (scope, thread_id, scope, blob.blob_id),
        )
    return stored


def delete_blob(db: sqlite3.Connection, scope: str, blob_id: str) -> None:
    """Remove a file. Raises ``NotFound``."""
    row = db.execute("SELECT key FROM blobs WHERE scope = ? AND blob_id = ?", (scope, blob_id)).fetchone()
    if row is None:
        raise refusals.no_blob(blob_id)
    _remove_blob(db, row[0])


def _remove_blob(db: sqlite3.Connection, key: int) -> None:
    db.execute("DELETE FROM holds WHERE blob = ?", (key,))
    db.execute("DELETE FROM blobs WHERE key = ?", (key,))


def check(db: sqlite3.Connection, now: float) -> None:
    """Write as many bytes as a small run. Raises ``StoreUnavailable`` if ``max_bytes`` leaves no room for them."""
    pages, free, max_pages, page_size = (
        db.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "max_page_count", "page_size")
    )
    if (max_pages - pages + free) * page_size < SMALL_RUN:  # writing the row again needs no new page
        raise StoreUnavailable("the file is as large as max_bytes allows (SQLITE_FULL); raise it or remove threads")
    db.execute("INSERT OR REPLACE INTO checks (key, at, body) VALUES (1, ?, zeroblob(?))", (now, SMALL_RUN))


def add_peer(db: sqlite3.Connection, token: str, port: int) -> None:
    """Register a process for wake-ups."""
    db.execute("DELETE FROM peers WHERE port = ?", (port,))  # the former process of this port is dead
    db.execute("INSERT INTO peers (token, port) VALUES (?, ?)", (token, port))


def remove_peer(db: sqlite3.Connection, token: str) -> None:
    """Remove a process from wake-ups."""
    db.execute("DELETE FROM peers WHERE token = ?", (token,))


def remove_thread(db: sqlite3.Connection, key: int, scope: str, thread_id: str) -> None:
    """Remove a thread without an open run."""
    for table in ("inputs", "projections"):
        db.execute(f"DELETE FROM {table} WHERE run IN (SELECT key FROM runs WHERE thread = ?)", (key,))  # noqa: S608
    db.execute(
        "DELETE FROM log WHERE place > ? AND place < ?", (queries.log_place(key, 0), queries.log_place(key + 1, 0))
    )
    for (metadata,) in db.execute("SELECT metadata FROM details WHERE thread = ?", (key,)).fetchall():
        _remove_members(db, scope, key, metadata)
    for table in ("runs", "messages", "projected_values", "interrupts", "effects", "sessions", "details"):
        db.execute(f"DELETE FROM {table} WHERE thread = ?", (key,))  # noqa: S608 - our own names
    db.execute(
        """
        INSERT INTO removed (thread, last) SELECT ?, last FROM threads WHERE key = ?
        ON CONFLICT (thread) DO UPDATE SET last = max(last, excluded.last)
        """,
        (hash_thread(scope, thread_id), key),
    )
    db.execute("DELETE FROM threads WHERE key = ?", (key,))
    _release_blobs(db, scope, thread_id)


def _release_blobs(db: sqlite3.Connection, scope: str, thread_id: str) -> bool:
    """Remove the files of a thread that no other thread holds; return whether it had any."""
    files = db.execute("SELECT blob FROM holds WHERE scope = ? AND thread_id = ?", (scope, thread_id)).fetchall()
    db.execute("DELETE FROM holds WHERE scope = ? AND thread_id = ?", (scope, thread_id))
    for file in files:
        db.execute(
            """
            DELETE FROM blobs
            WHERE key = ? AND NOT kept AND NOT EXISTS (SELECT 1 FROM holds h WHERE h.blob = blobs.key)
            """,
            file,
        )
    return files != []
