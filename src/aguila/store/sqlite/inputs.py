"""Store and read the requests of runs, each message and each inline file once; see ``store/run_inputs.py``."""

from __future__ import annotations

import sqlite3

import msgspec

from aguila.store.run_inputs import (
    MAX_DEPTH,
    SMALL,
    CutInput,
    ListDelta,
    StoredJSON,
    compare_lists,
    cut_input,
    inline_file,
    inline_id,
    join_input,
    read_list,
)
from aguila.store.sqlite import queries, thread_writes
from aguila.store.sqlite.database.large_values import insert, read_value, select_value

_LIST = "SELECT base, messages, depth FROM inputs WHERE run = ?"
_INPUT = f"SELECT files, {select_value('body')}, messages FROM inputs WHERE run = ?"  # noqa: S608 - our own names
_INSERT = "INSERT INTO inputs (run, base, messages, depth, files, body) VALUES (?, ?, ?, ?, ?, ?)"
_BASE = "SELECT run FROM inputs WHERE run = (SELECT max(key) FROM runs WHERE thread = ? AND key < ?)"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[tuple[int, bytes], ...]).decode


def write_input(
    db: sqlite3.Connection, now: float, thread: int, scope: str, thread_id: str, run: int, new: CutInput
) -> None:
    """Store the request of a run. ``thread`` and ``run`` are keys of rows; the caller counts the size of the body."""
    if new.digests is None:
        insert(db, _INSERT, (run, None, None, None, None), new.body.text)
        return
    base, depth, delta = None, 0, ListDelta((new.digests,))
    found = db.execute(_BASE, (thread, run)).fetchone()
    if found is not None:
        old, old_depth = _read_list(db, found[0])
        if old is not None and old_depth < MAX_DEPTH:
            base, depth, delta = found[0], old_depth + 1, compare_lists(old, new.digests)
    encoded = delta.encode()
    insert(db, _INSERT, (run, base, encoded, depth, encode_files(new.body)), new.body.text)
    size = len(encoded)
    for digest in delta.new:
        message = new.messages[digest]
        values = (thread, digest, message.text, encode_files(message))
        if db.execute("INSERT OR IGNORE INTO messages VALUES (?, ?, ?, ?)", values).rowcount:
            size += message.size
    if size:
        db.execute("UPDATE threads SET bytes = bytes + ? WHERE key = ?", (size, thread))
    for digest, data in new.files.items():
        thread_writes.put_blob(db, scope, inline_file(digest, data, now), data, thread_id)


def read_input(db: sqlite3.Connection, scope: str, thread_id: str, run_id: str) -> bytes:
    """Return the request of a run. Raises ``NotFound``."""
    thread, run = queries.find_run(db, scope, thread_id, run_id)
    body, digests = read_stored(db, run)

    def message(digest: bytes) -> StoredJSON:
        found, files = db.execute(
            "SELECT body, files FROM messages WHERE thread = ? AND digest = ?", (thread, digest)
        ).fetchone()
        return StoredJSON(found, decode_files(files))

    def file(digest: bytes) -> bytes:
        return queries.read_blob(db, scope, inline_id(digest))[1]

    return join_input(body, digests, message, file)


def read_stored(db: sqlite3.Connection, run: int) -> tuple[StoredJSON, bytes | None]:
    """Return the stored body of a request, and its message digests; None if the body is the whole request."""
    files, body, messages = db.execute(_INPUT, (run,)).fetchone()
    text = StoredJSON(read_value(db, body, "inputs", "body", run), decode_files(files))
    return text, None if messages is None else _read_list(db, run)[0]


def cut_whole_inputs(db: sqlite3.Connection, now: float) -> None:
    """Cut the requests that earlier schemas stored whole. Each thread is a transaction."""
    threads = db.execute(
        """
        SELECT DISTINCT t.key, t.scope, t.thread_id FROM inputs i JOIN runs r ON r.key = i.run
        JOIN threads t ON t.key = r.thread WHERE i.messages IS NULL AND length(i.body) > ?
        """,
        (SMALL,),
    ).fetchall()
    for thread, scope, thread_id in threads:
        db.execute("BEGIN IMMEDIATE")
        try:
            runs = db.execute(
                """
                SELECT r.key FROM runs r JOIN inputs i ON i.run = r.key
                WHERE r.thread = ? AND i.messages IS NULL AND length(i.body) > ? ORDER BY r.key
                """,
                (thread, SMALL),
            ).fetchall()
            for (run,) in runs:
                body, _ = read_stored(db, run)
                new = cut_input(body.text)
                if new.digests is None:
                    continue
                db.execute("DELETE FROM inputs WHERE run = ?", (run,))
                write_input(db, now, thread, scope, thread_id, run, new)
                db.execute("UPDATE threads SET bytes = bytes + ? WHERE key = ?", (new.body.size - body.size, thread))
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")


def decode_files(files: bytes | None) -> tuple[tuple[int, bytes], ...]:
    """Return the place and digest of each inline file, from its column."""
    return () if files is None else _decode(files)


def _read_list(db: sqlite3.Connection, run: int) -> tuple[bytes | None, int]:
    """Return the digests of the messages of a run, and its depth; None for a request that is stored whole."""
    deltas: list[ListDelta] = []
    depths: list[int] = []
    key: int | None = run
    while key is not None:
        key, messages, depth = db.execute(_LIST, (key,)).fetchone()
        if messages is None:
            return None, 0
        deltas.append(ListDelta.decode(messages))
        depths.append(depth)
    return read_list(deltas), depths[0]


def encode_files(json: StoredJSON) -> bytes | None:
    """Return the column for the inline files of a JSON value."""
    return _encode(json.files) if json.files else None
