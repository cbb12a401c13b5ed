"""Verify the invariants of the store contract in the rows of a thread. ``sql/check.py`` reads the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from aguila.codec.json.bounded_floats import json_decoder
from aguila.store.contents import (
    ListDelta,
    base_number,
    file_digests,
    hash_content,
    read_content,
    split_digests,
    split_head,
)
from aguila.store.encoding import decode_row

_OUTCOMES: Final = ("success", "interrupt", "cancelled", "error")
_TERMINAL: Final = ("RUN_FINISHED", "RUN_ERROR")


class Damage(msgspec.Struct, frozen=True):
    """A broken invariant. ``thread_id`` is empty if it belongs to no thread."""

    scope: str
    thread_id: str
    message: str


class LogRow(NamedTuple):
    """A batch of the log. ``events`` is bytes, unless it is damaged; empty if the batch is the event ``content``."""

    last: int
    first: int
    starts: int
    content: bytes | None
    events: Any


class RunRow(NamedTuple):
    """A run. ``list`` is the change that leads to its list of messages."""

    key: int
    number: int
    run_id: str
    first: int
    last: int | None
    outcome: str | None
    ended_at: float | None
    request: bytes
    list: bytes | None


class InterruptRow(NamedTuple):
    """An interrupt, with the scope in its own row."""

    interrupt_id: str
    run_id: str
    status: str
    claimed_by: str | None
    body: bytes
    scope: str


class ThreadRows(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one thread."""

    scope: str
    first: int
    last: int
    running: int | None
    """The key of the open run."""
    log: Sequence[LogRow]
    runs: Sequence[RunRow]
    """In the order they began."""
    interrupts: Sequence[InterruptRow]
    contents: Mapping[bytes, bytes]
    """The stored bodies by their digests."""


class _Event(msgspec.Struct):
    type: str | None = None


_decode_event = json_decoder(_Event).decode
_decode_json = json_decoder().decode


def check_thread(rows: ThreadRows) -> Iterator[str]:
    """Iterate over the faults of a thread."""
    values: dict[bytes, bytes] = {}
    yield from _check_contents(rows.contents, values)
    types: dict[int, str | None] = {}
    yield from _check_log(rows, values, types)
    yield from _check_runs(rows, types)
    yield from _check_interrupts(rows)
    yield from _check_requests(rows, values)


def _check_contents(contents: Mapping[bytes, bytes], values: dict[bytes, bytes]) -> Iterator[str]:
    """Check the digests of contents; collect their texts, with their inline files."""
    for digest, body in contents.items():
        name = f"content {digest.hex()}"
        try:
            files = file_digests(body)
        except (msgspec.DecodeError, ValueError):
            yield f"{name} cannot be decoded"
            continue
        lost = [one for one in files if one not in contents]
        if lost:
            yield f"{name}: inline file {lost[0].hex()} is missing"
            continue
        text = values[digest] = read_content(body, contents.__getitem__)
        if hash_content(text) != digest:
            yield f"{name} does not match its digest"


def _check_log(rows: ThreadRows, values: Mapping[bytes, bytes], types: dict[int, str | None]) -> Iterator[str]:
    """Check the numbers and the JSON of the log; collect the types of the events by their numbers."""
    number = rows.first
    for row in rows.log:
        first = row.first
        if not isinstance(row.events, bytes):
            yield f"the batch from event {first} is not bytes"
            continue
        if row.starts != number:
            yield f"the log continues with event {row.starts}, expected {number}"
        if row.content is not None and row.content not in values:
            yield f"event {first} is content {row.content.hex()}, which is missing"
            number = row.last + 1
            continue
        events = decode_row(row.events) if row.content is None else [values[row.content]]
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


def _check_runs(rows: ThreadRows, types: Mapping[int, str | None]) -> Iterator[str]:
    next_first = rows.first
    for number, run in enumerate(rows.runs, 1):
        name = f"run {run.run_id!r}"
        if run.number != number:
            yield f"{name} has the number {run.number}, expected {number}"
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


def _check_requests(rows: ThreadRows, values: Mapping[bytes, bytes]) -> Iterator[str]:
    lists: dict[int, bytes] = {0: b""}
    known: set[bytes] = set()  # digests of contents that exist and are JSON
    for run in rows.runs:
        name = f"the request of run {run.run_id!r}"
        if run.list is None:
            lists[run.number] = b""
            if not _is_json(run.request):
                yield f"{name} is not JSON"
            continue
        base = base_number(run.number)
        if base not in lists:
            yield f"{name}: the list of messages that it changes is missing"
            continue
        try:
            found = lists[run.number] = ListDelta.decode(run.list).apply(lists[base])
            members, large = split_head(run.request)
        except (msgspec.DecodeError, ValueError) as error:
            yield f"{name} cannot be decoded: {error}"
            continue
        if not _is_json(members):
            yield f"{name} is not JSON"
        for digest in dict.fromkeys((*split_digests(found), *large.values())):
            if digest in known:
                continue
            if digest not in values:
                yield f"{name}: content {digest.hex()} is missing"
                break
            if not _is_json(values[digest]):
                yield f"{name}: content {digest.hex()} is not JSON"
                break
            known.add(digest)


Counts = tuple[int, int, int]
"""Threads, files and bytes."""


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


def check_positions(rows: Iterable[tuple[str, int]]) -> Iterator[str]:
    """Check that the threads of a scope have different places in lists, from the scope and place of each thread."""
    seen: set[tuple[str, int]] = set()
    for row in rows:
        if row in seen:
            yield f"scope {row[0]!r} has two threads at position {row[1]}"
        seen.add(row)


def _describe(usage: Sequence[int]) -> str:
    return f"{usage[0]} threads, {usage[1]} files, {usage[2]} bytes"


def _is_json(data: bytes) -> bool:
    try:
        _decode_json(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
