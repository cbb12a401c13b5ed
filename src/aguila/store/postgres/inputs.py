"""Store and read the requests of runs, each message and each inline file once; see ``store/run_inputs.py``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from aguila.store import refusals
from aguila.store.postgres import files
from aguila.store.postgres.database.connections import Database
from aguila.store.records import Lease
from aguila.store.run_inputs import (
    MAX_DEPTH,
    CutInput,
    ListDelta,
    StoredJSON,
    compare_lists,
    inline_id,
    join_input,
    read_list,
    split_digests,
)

# The list of the newest run of a thread, as changes: the newest first.
BASE = """
WITH RECURSIVE chain AS (
  SELECT i.run, i.base, i.messages, i.depth, 0 AS step FROM aguila.inputs i WHERE i.run = (
    SELECT r.key FROM aguila.runs r JOIN aguila.threads t ON t.key = r.thread
    WHERE t.scope = $1 AND t.thread_id = $2 ORDER BY r.key DESC LIMIT 1)
  UNION ALL SELECT i.run, i.base, i.messages, i.depth, c.step + 1 FROM aguila.inputs i JOIN chain c ON i.run = c.base
)
SELECT run, messages, depth FROM chain ORDER BY step
"""
INPUT = """
WITH RECURSIVE chain AS (
  SELECT i.run, i.base, i.messages, i.body, i.files, r.thread, 0 AS step
  FROM aguila.threads t JOIN aguila.runs r ON r.thread = t.key JOIN aguila.inputs i ON i.run = r.key
  WHERE t.scope = $1 AND t.thread_id = $2 AND r.run_id = $3
  UNION ALL SELECT i.run, i.base, i.messages, NULL, NULL, c.thread, c.step + 1
  FROM aguila.inputs i JOIN chain c ON i.run = c.base
)
SELECT messages, body, files, thread FROM chain ORDER BY step
"""
_MESSAGES = "SELECT digest, body, files FROM aguila.messages WHERE thread = $1 AND digest = ANY ($2::bytea[])"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[tuple[int, bytes], ...]).decode


@dataclass(slots=True)
class StoredInput:
    """A request as rows. ``messages`` are (digest, size, body, files) of each message that may be new."""

    body: bytes = b""
    files: bytes | None = None
    digests: bytes | None = None
    base: int | None = None
    depth: int | None = None
    messages: Sequence[tuple[bytes, int, bytes, bytes | None]] = ()
    size: int = 0


async def store_input(db: Database, lease: Lease, new: CutInput) -> StoredInput:
    """Return the rows of a request, as a change of the list of the thread's newest run."""
    if new.digests is None:
        return StoredInput(body=new.body.text, size=new.body.size)
    base, depth, delta = None, 0, ListDelta((new.digests,))
    chain = await db.fetch(BASE, lease.scope, lease.thread_id)
    if chain and chain[0][1] is not None and chain[0][2] < MAX_DEPTH:
        old = read_list([ListDelta.decode(row[1]) for row in chain])
        base, depth, delta = chain[0][0], chain[0][2] + 1, compare_lists(old, new.digests)
    return input_rows(new, base, depth, delta)


def input_rows(new: CutInput, base: int | None, depth: int, delta: ListDelta) -> StoredInput:
    """Return the rows of a request whose list is a change of that of the run ``base``."""
    encoded = delta.encode()
    messages = [
        (digest, message.size, message.text, encode_files(message))
        for digest, message in ((digest, new.messages[digest]) for digest in delta.new)
    ]
    return StoredInput(
        body=new.body.text,
        files=encode_files(new.body),
        digests=encoded,
        base=base,
        depth=depth,
        messages=messages,
        size=new.body.size + len(encoded),
    )


async def read_input(db: Database, scope: str, thread_id: str, run_id: str) -> bytes:
    """Return the request of a run. Raises ``NotFound``."""
    chain = await db.fetch(INPUT, scope, thread_id, run_id)
    if not chain:
        raise refusals.no_run(thread_id, run_id)
    body = StoredJSON(chain[0][1], decode_files(chain[0][2]))
    digests = digests_of([row[0] for row in chain])
    messages: dict[bytes, StoredJSON] = {}
    if digests is not None:
        wanted = list(dict.fromkeys(split_digests(digests)))
        messages = stored_messages(await db.fetch(_MESSAGES, chain[0][3], wanted))
    wanted_files = {digest for json in (body, *messages.values()) for _, digest in json.files}
    inline = {digest: (await files.read(db, scope, inline_id(digest)))[1] for digest in wanted_files}
    return join_input(body, digests, messages.__getitem__, inline.__getitem__)


def stored_messages(rows: Iterable[Any]) -> dict[bytes, StoredJSON]:
    """Return messages by their digests, from rows of digest, body and files."""
    return {row[0]: StoredJSON(row[1], decode_files(row[2])) for row in rows}


def digests_of(changes: Sequence[bytes | None]) -> bytes | None:
    """Return a list of digests from its changes, newest first; None for a request that is stored whole."""
    found = [ListDelta.decode(change) for change in changes if change is not None]
    return read_list(found) if found else None


def encode_files(json: StoredJSON) -> bytes | None:
    """Return the column that holds the places of inline files."""
    return _encode(json.files) if json.files else None


def decode_files(column: bytes | None) -> tuple[tuple[int, bytes], ...]:
    """Decode a column that ``encode_files`` wrote."""
    return () if column is None else _decode(column)
