"""Verify the invariants of the store contract, for every store that keeps its data in tables.

A store reads its rows (``ThreadRows``, files, usage); the checks here report the faults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from aguila.codec.json.bounded_floats import json_decoder
from aguila.store.encoding import decode_row, hash_blob
from aguila.store.run_inputs import (
    DIGEST,
    ListDelta,
    StoredJSON,
    hash_json,
    hash_message,
    inline_id,
    is_inline,
    join_value,
    split_digests,
)

_OUTCOMES: Final = ("success", "interrupt", "cancelled", "error")
_TERMINAL: Final = ("RUN_FINISHED", "RUN_ERROR")


class Damage(msgspec.Struct, frozen=True):
    """A broken invariant. ``thread_id`` is empty if it belongs to no thread."""

    scope: str
    thread_id: str
    message: str


class LogRow(NamedTuple):
    """A batch of the log. ``body`` is bytes, unless it is damaged."""

    first: int
    last: int
    body: Any
    is_compacted: bool


class RunRow(NamedTuple):
    """A run. ``key`` is that of its row."""

    key: int
    run_id: str
    first: int
    last: int | None
    outcome: str | None
    ended_at: float | None
    is_compacted: bool


class InterruptRow(NamedTuple):
    """An interrupt, with the scope in its own row."""

    interrupt_id: str
    run_id: str
    status: str
    claimed_by: str | None
    body: bytes
    scope: str


class InputRow(NamedTuple):
    """The request of a run: its list of messages as a change of that of the run ``base``; see ``run_inputs``."""

    base: int | None
    change: bytes | None
    body: StoredJSON


class ThreadRows(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one thread."""

    scope: str
    first: int
    last: int
    running: int | None
    """The key of the open run."""
    bytes: int
    log: Sequence[LogRow]
    runs: Sequence[RunRow]
    """In the order they began."""
    interrupts: Sequence[InterruptRow]
    inputs: Mapping[int, InputRow]
    """By the keys of their runs."""
    messages: Mapping[bytes, StoredJSON]
    """The messages of the requests, by their digests."""
    values: Mapping[bytes, StoredJSON]
    """The values of the projections, by their digests."""
    held: frozenset[str]
    """The ids of the files that the thread holds."""
    inline_files: Mapping[bytes, bytes]
    """The inline files of the values, by their digests."""
    other_bytes: int
    """The bytes of session, effects, projections, title and metadata."""


class FileRow(NamedTuple):
    """A file. ``is_held`` is whether a thread holds it, ``is_kept`` whether it was also stored without one."""

    scope: str
    blob_id: str
    media_type: str
    filename: str | None
    size: int
    is_kept: bool
    is_held: bool


Counts = tuple[int, int, int]
"""Threads, files and bytes."""


class _Event(msgspec.Struct):
    type: str | None = None


_decode_event = json_decoder(_Event).decode
_decode_json = json_decoder().decode


def check_thread(rows: ThreadRows) -> Iterator[str]:
    """Iterate over the faults of a thread."""
    types: dict[int, str | None] = {}
    yield from _check_log(rows, types)
    yield from _check_runs(rows, types)
    yield from _check_interrupts(rows)
    try:
        yield from _check_inputs(rows)
    except msgspec.DecodeError as error:
        yield f"a list of messages cannot be decoded: {error}"
    yield from _check_values(rows)
    counted = count_bytes(rows)
    if counted != rows.bytes:
        yield f"the thread has {counted} bytes, and its row says {rows.bytes}"


def _check_log(rows: ThreadRows, types: dict[int, str | None]) -> Iterator[str]:
    """Check the numbers and the JSON of the log; collect the types of the events by their numbers."""
    number = rows.first
    compacted = {run.last: run.first for run in rows.runs if run.is_compacted}
    for row in rows.log:
        first = row.first
        if not isinstance(row.body, bytes):
            yield f"the batch from event {first} is not bytes"
            continue
        events = decode_row(row.body)
        if row.is_compacted and compacted.get(row.last) == number <= first:
            number = first
        if first != number:
            yield f"the log continues with event {first}, expected {number}"
        if row.last != first + len(events) - 1:
            yield f"the batch from event {first} has {len(events)} events, and its key says otherwise"
        for at, event in enumerate(events, first):
            try:
                types[at] = _decode_event(event).type
            except (msgspec.DecodeError, UnicodeError):
                yield f"event {at} is not a JSON object"
        number = first + len(events)
    if number != rows.last + 1:
        yield f"the log ends with event {number - 1}, and the thread with {rows.last}"


def _check_runs(rows: ThreadRows, types: dict[int, str | None]) -> Iterator[str]:
    next_first = rows.first
    for run in rows.runs:
        name = f"run {run.run_id!r}"
        if run.first != next_first:
            yield f"{name} begins with event {run.first}, expected {next_first}"
        if run.key == rows.running:
            if (run.last, run.outcome, run.ended_at) != (None, None, None):
                yield f"{name} is the open run of the thread, but has ended"
            next_first = rows.last + 1
            continue
        if run.outcome is None or run.last is None:
            yield f"{name} has no outcome, but is not the open run of the thread"
            continue
        if run.outcome not in _OUTCOMES:
            yield f"{name} has the outcome {run.outcome!r}"
        if run.last < run.first:
            yield f"{name} has no events: {run.first} to {run.last}"
        elif types.get(run.last) not in _TERMINAL:
            yield f"{name} ends with event {run.last}, which is {types.get(run.last)}, expected a terminal event"
        next_first = run.last + 1
    if next_first != rows.last + 1:
        yield f"the last run ends with event {next_first - 1}, and the thread with {rows.last}"
    if rows.running is not None and all(run.key != rows.running for run in rows.runs):
        yield "the open run of the thread does not exist"


def _check_interrupts(rows: ThreadRows) -> Iterator[str]:
    open_run = next((run.run_id for run in rows.runs if run.key == rows.running), None)
    runs = {run.run_id for run in rows.runs}
    for row in rows.interrupts:
        name = f"interrupt {row.interrupt_id!r}"
        if row.run_id not in runs:
            yield f"{name} was raised by run {row.run_id!r}, which does not exist"
        if row.scope != rows.scope:
            yield f"{name} has the scope {row.scope!r}, and its thread {rows.scope!r}"
        if row.status == "open" and row.claimed_by is not None:
            yield f"{name} is open, but claimed by run {row.claimed_by!r}"
        elif row.status == "claimed" and (row.claimed_by is None or row.claimed_by != open_run):
            yield f"{name} is claimed by run {row.claimed_by!r}, which is not the open run"
        elif row.status == "settled" and row.claimed_by not in runs:
            yield f"{name} was settled by run {row.claimed_by!r}, which does not exist"
        elif row.status not in ("open", "claimed", "settled"):
            yield f"{name} has the status {row.status!r}"
        if not _is_json(row.body):
            yield f"{name} is not JSON"


def _check_inputs(rows: ThreadRows) -> Iterator[str]:
    for digest, message in rows.messages.items():
        old = blake2b(message.text, digest_size=DIGEST)  # the hash in SQLite files of schema 11
        if message.files:
            old.update(repr(message.files).encode())
        if digest not in (hash_message(message), old.digest()):
            yield f"message {digest.hex()} does not match its digest"
        elif not _is_json(join_value(message, lambda _: b"")):
            yield f"message {digest.hex()} is not JSON"
    for run in rows.runs:
        name = f"the request of run {run.run_id!r}"
        problem = _check_chain(rows.inputs, run.key)
        if problem is not None:
            yield f"{name}: {problem}"
            continue
        digests = _read_list(rows.inputs, run.key)
        listed = dict.fromkeys(split_digests(digests or b""))
        missing = [digest for digest in listed if digest not in rows.messages]
        if missing:
            yield f"{name}: message {missing[0].hex()} is missing"
            continue
        body = rows.inputs[run.key].body
        files = {digest for part in (body, *map(rows.messages.__getitem__, listed)) for _, digest in part.files}
        lost = [digest for digest in files if inline_id(digest) not in rows.held]
        if lost:
            yield f"{name}: inline file {lost[0].hex()} is missing or not held by the thread"
        elif not _is_json(join_value(body, lambda _: b"")):
            yield f"{name} is not JSON"


def _check_chain(inputs: Mapping[int, InputRow], run: int) -> str | None:
    """Return the fault in the list of messages of a request."""
    seen: set[int] = set()
    key: int | None = run
    while key is not None:
        if key in seen:
            return "its list of messages refers to itself"
        seen.add(key)
        row = inputs.get(key)
        if row is None:
            return "it is missing" if key == run else "the list of messages that it changes is missing"
        if row.change is None and key != run:
            return "the list of messages that it changes is missing"
        key = row.base
    return None


def _read_list(inputs: Mapping[int, InputRow], run: int) -> bytes | None:
    """Return the digests of the messages of a request; None if it is stored whole. Its chain has been checked."""
    changes: list[bytes] = []
    key: int | None = run
    while key is not None:
        row = inputs[key]
        if row.change is None:
            return None
        changes.append(row.change)
        key = row.base
    found = b""
    for change in reversed(changes):
        found = ListDelta.decode(change).apply(found)
    return found


def _check_values(rows: ThreadRows) -> Iterator[str]:
    for digest, value in rows.values.items():
        if any(file not in rows.inline_files for _, file in value.files):
            yield f"value {digest.hex()} of a projection: an inline file is missing"
        elif hash_json(join_value(value, rows.inline_files.__getitem__)) != digest:
            yield f"value {digest.hex()} of a projection does not match its digest"


def count_bytes(rows: ThreadRows) -> int:
    """Return the bytes of a thread, as its row must have them."""
    texts = [*rows.messages.values(), *rows.values.values(), *(row.body for row in rows.inputs.values())]
    return (
        sum(len(row.body) for row in rows.log)
        + sum(text.size for text in texts)
        + sum(len(row.change or b"") for row in rows.inputs.values())
        + sum(len(row.body) for row in rows.interrupts)
        + rows.other_bytes
    )


def check_content(row: FileRow, data: bytes) -> Iterator[str]:
    """Iterate over the faults of a file with this content."""
    if len(data) != row.size:
        yield f"file {row.blob_id} has {len(data)} bytes, and its row says {row.size}"
    is_same = (
        inline_id(blake2b(data, digest_size=DIGEST).digest()) == row.blob_id
        if is_inline(row.blob_id)
        else hash_blob(row.scope, data, row.media_type, row.filename) == row.blob_id
    )
    if not is_same:
        yield f"file {row.blob_id} does not match its id"
    if not row.is_kept and not row.is_held:
        yield f"file {row.blob_id} belongs to no thread and was not stored without one"


def check_usage(found: Mapping[str, Counts], total: Counts, held: Mapping[str, Counts]) -> Iterator[Damage]:
    """Compare the counts for quotas, of each scope and in total, with the content of each scope."""
    nothing: Counts = (0, 0, 0)
    for scope in sorted(found.keys() | held.keys()):
        one, other = found.get(scope, nothing), held.get(scope, nothing)
        if one != other:
            yield Damage(scope, "", f"scope {scope!r} has {_describe(other)}; its quotas count {_describe(one)}")
    sums = tuple(sum(row[at] for row in held.values()) for at in range(3))
    if total != sums:
        yield Damage("", "", f"the store has {_describe(sums)}; its quotas count {_describe(total)}")


def check_positions(rows: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Check that the threads of a scope have different places in lists, from the scope and place of each thread."""
    seen: set[tuple[str, int]] = set()
    for row in rows:
        if row in seen:
            yield f"scope {row[0]!r} has two threads at position {row[1]}"
        seen.add(row)


def describe_hold(blob: int) -> str:
    """Describe a file that a thread holds, but the store does not have."""
    return f"the thread holds file {blob}, which does not exist"


def _describe(usage: Sequence[int]) -> str:
    return f"{usage[0]} threads, {usage[1]} files, {usage[2]} bytes"


def _is_json(data: bytes) -> bool:
    try:
        _decode_json(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
