"""Layer: store. The SQL that writes. Each function is one job of the writer, inside its transaction.

Many jobs share a transaction. So a job first checks and raises ``StoreError``, and writes only when nothing can be
refused any more: a refusal leaves nothing to undo.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from heapq import merge
from operator import itemgetter

from msgspec import UNSET

from aguila.errors import (
    NotFound,
    StoreUnavailable,
    ThreadBusy,
)
from aguila.store.base import (
    Blob,
    Retention,
    ThreadSummary,
    ThreadUpdate,
)
from aguila.store.encoding import ROOM, thread_hash
from aguila.store.feed import Key
from aguila.store.sqlite import queries
from aguila.store.sqlite.large_values import insert


def update_thread(db: sqlite3.Connection, scope: str, thread_id: str, update: ThreadUpdate) -> ThreadSummary:
    """Change the title, the archived flag or the metadata of a thread. Raises ``NotFound``."""
    key, _ = queries.thread_key(db, scope, thread_id)
    old = queries.thread(db, scope, thread_id)
    title = old.title if update.title is UNSET else update.title
    metadata = old.metadata if update.metadata is UNSET else update.metadata
    if (title, metadata) != (old.title, old.metadata):
        db.execute("INSERT OR REPLACE INTO details (thread, title, metadata) VALUES (?, ?, ?)", (key, title, metadata))
        grown = _described(title, metadata) - _described(old.title, old.metadata)
        db.execute("UPDATE threads SET bytes = bytes + ? WHERE key = ?", (grown, key))
    if update.archived is not UNSET:
        db.execute("UPDATE threads SET archived = ? WHERE key = ?", (update.archived, key))
    return queries.thread(db, scope, thread_id)


def _described(title: str | None, metadata: bytes | None) -> int:
    return len((title or "").encode()) + len(metadata or b"")


def delete_thread(db: sqlite3.Connection, scope: str, thread_id: str) -> None:
    """Remove a thread and everything in it, or the files of one without runs. Raises ``NotFound``, ``ThreadBusy``."""
    try:
        key, _ = queries.thread_key(db, scope, thread_id)
    except NotFound:
        if not _release(db, scope, thread_id):
            raise
        return
    running = db.execute("SELECT running FROM threads WHERE key = ?", (key,)).fetchone()[0]
    if running is not None:
        raise ThreadBusy(f"thread {thread_id!r} is busy", run=queries.run_by_key(db, running))
    _remove(db, key, scope, thread_id)


def prune(db: sqlite3.Connection, now: float, retention: Retention) -> Sequence[Key]:
    """Remove idle threads and loose files, oldest first, until what is left is within bounds; gives the threads."""
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
    stored = sum(row[4] for row in threads) + sum(row[4] for row in files)
    removed: list[Key] = []
    for at, key, scope, thread_id, size, running in merge(threads, files, key=itemgetter(0)):
        if running is not None:
            continue
        if (
            (retention.max_age is not None and at < now - retention.max_age)
            or (retention.max_bytes is not None and stored > retention.max_bytes)
            or (
                thread_id is not None
                and retention.max_threads is not None
                and len(threads) - len(removed) > retention.max_threads
            )
        ):
            stored -= size
            if thread_id is None:
                _remove_blob(db, key)
            else:
                _remove(db, key, scope, thread_id)
                removed.append((scope, thread_id))
    return removed


def put_blob(db: sqlite3.Connection, scope: str, blob: Blob, data: bytes, thread_id: str | None) -> Blob:
    """Store a file, or find it stored already."""
    stored = queries.blob_record(db, scope, blob.blob_id)
    if stored is None:
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
    elif thread_id is None:  # which rewrites the whole row, so only if it changes something
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
        raise NotFound(f"no file {blob_id!r}")
    _remove_blob(db, row[0])


def _remove_blob(db: sqlite3.Connection, key: int) -> None:
    db.execute("DELETE FROM holds WHERE blob = ?", (key,))
    db.execute("DELETE FROM blobs WHERE key = ?", (key,))


def check(db: sqlite3.Connection, now: float) -> None:
    """Write as much as a small run does, into the log and, as far as ``max_page_count`` goes, into the file.

    Raises ``StoreUnavailable``, or ``sqlite3.Error`` as any write does.
    """
    pages, free, most, size = (
        db.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "max_page_count", "page_size")
    )
    if (most - pages + free) * size < ROOM:  # the row is there already, so that writing it again takes no page
        raise StoreUnavailable("the file is as large as it may be (SQLITE_FULL)")
    db.execute("INSERT OR REPLACE INTO checks (key, at, body) VALUES (1, ?, zeroblob(?))", (now, ROOM))


def add_peer(db: sqlite3.Connection, token: str, port: int) -> None:
    """Ask to be told of changes."""
    db.execute("DELETE FROM peers WHERE port = ?", (port,))  # it is ours now: whoever had it is gone
    db.execute("INSERT INTO peers (token, port) VALUES (?, ?)", (token, port))


def remove_peer(db: sqlite3.Connection, token: str) -> None:
    """Ask no longer to be told."""
    db.execute("DELETE FROM peers WHERE token = ?", (token,))


def _remove(db: sqlite3.Connection, key: int, scope: str, thread_id: str) -> None:
    db.execute("DELETE FROM inputs WHERE run IN (SELECT key FROM runs WHERE thread = ?)", (key,))
    db.execute(
        "DELETE FROM log WHERE place > ? AND place < ?", (queries.place_of(key, 0), queries.place_of(key + 1, 0))
    )
    for table in ("runs", "interrupts", "effects", "sessions", "details"):
        db.execute(f"DELETE FROM {table} WHERE thread = ?", (key,))  # noqa: S608 - our own names
    db.execute(
        "INSERT OR REPLACE INTO removed (thread, last) SELECT ?, last FROM threads WHERE key = ?",
        (thread_hash(scope, thread_id), key),
    )
    db.execute("DELETE FROM threads WHERE key = ?", (key,))
    _release(db, scope, thread_id)


def _release(db: sqlite3.Connection, scope: str, thread_id: str) -> bool:
    """Remove the files of a thread that nobody else holds; gives whether it had any."""
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
