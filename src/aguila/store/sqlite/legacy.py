"""Read a SQLite file of schema 17, the last one before the schema of ``sql/schema.sql``, to copy it to another store.

Only ``aguila store copy`` needs this. The file is not changed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from aguila.errors import NotFound, StoreUnavailable
from aguila.store import refusals
from aguila.store.contents import ListDelta, hash_content, join_files, make_head, split_digests
from aguila.store.contract import StoreReader
from aguila.store.encoding import check_cursor, decode_row
from aguila.store.records import (
    Batch,
    Effect,
    FileRecord,
    LogPart,
    RemovedThreads,
    Rest,
    RunRecord,
    ScopeRecord,
    ThreadFilter,
    ThreadPage,
    ThreadRecord,
    Usage,
    Want,
)
from aguila.store.sql.reads import file_record, list_interrupts, run_record, summary_of
from aguila.store.sqlite.tx import SQLiteTx

SCHEMA: Final = 17
"""The schema that is read."""

_decode_places = msgspec.msgpack.Decoder(tuple[tuple[int, bytes], ...]).decode


def explain_old(location: Path | str, version: int) -> StoreUnavailable:
    """Make the error for a file that has an earlier schema."""
    if version == SCHEMA:
        advice = f"copy it to a new file, which leaves it as it is: aguila store copy {location} NEW"
    else:
        advice = (
            "open it once with Aguila of commit 7e4615b0, which upgrades it to schema "
            f"{SCHEMA}, then copy it to a new file: aguila store copy {location} NEW"
        )
    return StoreUnavailable(f"{location} is a store of an earlier Aguila (schema {version}); {advice}")


def is_legacy(path: Path) -> bool:
    """Return whether a file has the schema that this module reads."""
    try:
        with _connected(path) as db:
            return db.execute("PRAGMA user_version").fetchone()[0] == SCHEMA
    except sqlite3.Error:
        return False


@contextmanager
def open_legacy(path: Path) -> Generator[StoreReader]:
    """Open a file in one read transaction. Raises ``StoreUnavailable``."""
    try:
        with _connected(path) as db:
            db.execute("BEGIN")
            yield _LegacyReader(db)
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{path} cannot be read: {error}") from error


@contextmanager
def _connected(path: Path) -> Generator[sqlite3.Connection]:
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        yield db
    finally:
        db.close()


class _LegacyReader(StoreReader):
    """One state of the file. It answers what ``archives`` asks.

    Columns are selected in the order in which ``sql.reads`` takes them.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._tx = SQLiteTx(db, lambda owner, lock: False, 0.0, 0.0)
        self._values: dict[bytes, bytes] = {}
        self._values_of: int | None = None  # the key of the thread whose values these are

    def _rows(self, sql: str, *values: Any) -> list[Any]:
        return self._db.execute(sql, values).fetchall()

    def _find(self, scope: str, thread_id: str) -> tuple[int, int, int]:
        found = self._rows("SELECT key, first, last FROM threads WHERE scope = ? AND thread_id = ?", scope, thread_id)
        if not found:
            raise refusals.no_thread(thread_id)
        return found[0]

    # Threads

    async def threads(self, scope: str, filter: ThreadFilter = ThreadFilter()) -> ThreadPage:  # noqa: A002, B008
        if filter != ThreadFilter(limit=filter.limit, before=filter.before):
            raise ValueError("a file of an earlier schema is only read to copy it")
        before = 1 << 62 if filter.before is None else filter.before
        rows = self._rows(
            _SUMMARY + "WHERE t.scope = ? AND t.touched < ? ORDER BY t.touched DESC LIMIT ?",
            scope,
            before,
            filter.limit,
        )
        return ThreadPage(threads=list(map(summary_of, rows)))

    async def thread(self, scope: str, thread_id: str, want: Want = Want()) -> ThreadRecord:  # noqa: B008
        key, first, _ = self._find(scope, thread_id)
        (row,) = self._rows(_SUMMARY + "WHERE t.key = ?", key)
        session = self._rows("SELECT body FROM sessions WHERE thread = ?", key)
        files = self._rows(
            f"SELECT {_FILE_COLUMNS} FROM holds h JOIN blobs b ON b.key = h.blob "  # noqa: S608 - our own names
            f"WHERE h.scope = ? AND h.thread_id = ? AND {_IS_FILE} ORDER BY b.blob_id",
            scope,
            thread_id,
        )
        return ThreadRecord(
            scope=scope,
            summary=summary_of(row),
            first=first,
            runs=self._read_runs(key, scope),
            interrupts=list_interrupts(self._tx, key),
            session=session[0][0] if session else None,
            effects=self._read_effects(key),
            files=list(map(file_record, files)),
        )

    def _read_runs(self, thread: int, scope: str) -> list[RunRecord]:
        renamed = self._load_values(thread, scope)
        lists: dict[int, bytes] = {}
        found: list[RunRecord] = []
        for number, (key, base, delta, places, body, *row) in enumerate(self._rows(_RUNS, thread), 1):
            request, digests = self._join(body, places, scope), None
            if delta is not None:
                # The ranges of a change count bytes, and new digests are as long as old ones.
                lists[key] = ListDelta.decode(delta).apply(lists.get(base, b""))
                digests = b"".join([renamed[digest] for digest in split_digests(lists[key])])
                request, values = make_head(request)
                self._values |= values
            run = run_record(tuple(row))
            found.append(msgspec.structs.replace(run, number=number, request=request, messages=digests))
        return found

    def _load_values(self, thread: int, scope: str) -> dict[bytes, bytes]:
        """Read the messages of a thread; return the digests of today by those of the file."""
        self._values, self._values_of, renamed = {}, thread, dict[bytes, bytes]()
        for digest, body, places in self._rows("SELECT digest, body, files FROM messages WHERE thread = ?", thread):
            text = self._join(body, places, scope)
            renamed[digest] = hash_content(text)
            self._values[renamed[digest]] = text
        return renamed

    def _join(self, text: bytes, places: bytes | None, scope: str) -> bytes:
        """Return a JSON text with its inline files."""
        if places is None:
            return text

        def load(digest: bytes) -> bytes:
            name = f"inline-{digest.hex()}"
            return self._rows("SELECT data FROM blobs WHERE scope = ? AND blob_id = ?", scope, name)[0][0]

        return join_files(text, _decode_places(places), load)

    def _read_effects(self, thread: int) -> list[Effect]:
        rows = self._rows("SELECT root_run_id, name, value FROM effects WHERE thread = ? ORDER BY rowid", thread)
        return [Effect(root_run_id=row[0], name=row[1], value=row[2]) for row in rows]

    async def values(self, scope: str, thread_id: str, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        key, _, _ = self._find(scope, thread_id)
        if key != self._values_of:
            self._read_runs(key, scope)
        return {digest: self._values[digest] for digest in digests if digest in self._values}

    async def read(
        self, scope: str, thread_id: str, after: int = 0, *, until: int | None = None, limit: int = 1024
    ) -> LogPart:
        key, first, last = self._find(scope, thread_id)
        place = key << 32
        start = check_cursor(after, first, last)
        stop = last if until is None else min(until, last)
        batches: list[Batch] = []
        sql = "SELECT first, events, at, token FROM log WHERE place > ? AND place <= ? ORDER BY place"
        for row in self._db.execute(sql, (place + start, place + stop)):
            batches.append(Batch(row[0], tuple(decode_row(row[1])), row[2], row[3]))
            if batches[-1].last >= start + limit:
                break
        token = self._rows("SELECT token FROM log WHERE place = ?", place + start) if after else ()
        return LogPart(batches=batches, first=first, last=last, token=token[0][0] if token else "")

    # Files and the rest

    async def file(self, scope: str, file_id: str, start: int = 0, size: int | None = None) -> tuple[FileRecord, bytes]:
        rows = self._rows(
            f"SELECT {_FILE_COLUMNS}, substr(b.data, ?, ?) FROM blobs b WHERE b.scope = ? AND b.blob_id = ?",  # noqa: S608
            start + 1,
            1 << 31 if size is None else size,
            scope,
            file_id,
        )
        if not rows:
            raise NotFound(f"no file {file_id!r}")
        return file_record(rows[0]), rows[0][8]

    async def rest(self, scope: str | None = None) -> AsyncIterator[Rest]:
        for (name,) in self._rows("SELECT scope FROM threads UNION SELECT scope FROM blobs ORDER BY scope"):
            if scope in (None, name):
                yield ScopeRecord(scope=name, usage=Usage())
        for row in self._rows(f"SELECT {_FILE_COLUMNS} FROM blobs b WHERE {_IS_FILE} ORDER BY b.key"):  # noqa: S608
            if scope in (None, row[0]):
                ids = self._rows("SELECT thread_id FROM holds WHERE blob = ? ORDER BY thread_id", row[7])
                yield file_record(row, tuple([one[0] for one in ids]))
        if scope is None:
            yield RemovedThreads(dict(self._rows("SELECT thread, last FROM removed")))


_IS_FILE: Final = "b.blob_id NOT LIKE 'inline-%'"
_FILE_COLUMNS: Final = "b.scope, b.blob_id, b.media_type, b.filename, b.size, b.created_at, b.kept, b.key"

_TOKEN: Final = "coalesce((SELECT l.token FROM log l WHERE l.place = (t.key << 32) + {}), '')"  # noqa: S105

_SUMMARY: Final = f"""
SELECT t.thread_id, t.created_at, t.updated_at, t.last, (SELECT count(*) FROM runs r WHERE r.thread = t.key),
  (SELECT r.run_id FROM runs r WHERE r.key = t.running), t.touched, t.agent, d.title, t.archived, d.metadata,
  {_TOKEN.format("t.last")}
FROM threads t LEFT JOIN details d ON d.thread = t.key
"""  # noqa: S608 - our own names

_RUNS: Final = f"""
SELECT r.key, i.base, i.messages, i.files, CAST(i.body AS BLOB), t.scope, t.thread_id, r.run_id, 0, r.parent_run_id,
  r.sent_run_id, t.agent, r.fingerprint, r.first, coalesce(r.last, t.last), r.outcome, r.owner, r.epoch, r.lease_until,
  r.cancel_requested, r.started_at, r.ended_at, r.compacted, {_TOKEN.format("coalesce(r.last, t.last)")}
FROM runs r JOIN threads t ON t.key = r.thread JOIN inputs i ON i.run = r.key WHERE r.thread = ? ORDER BY r.key
"""  # noqa: S608 - our own names
