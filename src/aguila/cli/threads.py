"""``aguila threads``: list, show, export, import and delete the threads of a store."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import msgspec
import typer

from aguila.cli.output.transcript import escape_controls
from aguila.errors import AguilaError, StoreError
from aguila.store import ScopeRecord, Store, ThreadFilter, ThreadSummary, ThreadTarget
from aguila.store.archives.archive import list_threads as list_keys
from aguila.store.archives.archive import read_archive
from aguila.store.archives.copying import Restored, restore_thread
from aguila.store.archives.export import export_thread
from aguila.store.archives.file_format import decode_archives
from aguila.store.contract import StoreReader
from aguila.store.locations import make_store, sqlite_path
from aguila.store.records import ThreadArchive
from aguila.store.sql.store import SQLStore
from aguila.testing.plurals import counted

T = TypeVar("T")

ThreadKey = tuple[str, str]
"""Scope and thread id."""


_PAGE: Final = 500
"""Threads of a list that are read at a time."""


class CannotUse(AguilaError):
    """A store or a file cannot be used as asked; the message says why."""


class Outcome:
    """The result of an import or a copy: how many threads were written, skipped or left."""

    def __init__(self) -> None:
        self.counts: dict[Restored, int] = {"added": 0, "unchanged": 0, "replaced": 0, "different": 0}
        self._different: list[ThreadKey] = []

    def add(self, archive: ThreadArchive, restored: Restored) -> None:
        """Count a thread."""
        self.counts[restored] += 1
        if restored == "different":
            self._different.append((archive.thread.scope, archive.thread.summary.thread_id))

    def report(self) -> None:
        """Print the counts. Exit with status 1 if threads were left because they differ."""
        found = [f"{count} {name}" for name, count in self.counts.items() if count]
        sys.stderr.write(f"threads: {', '.join(found) or 'none'}\n")
        for scope, thread_id in self._different:
            sys.stderr.write(f"  {escape_controls(thread_id)} (scope {scope!r}) differs; --replace replaces it\n")
        if self._different:
            raise typer.Exit(1)


@contextmanager
def reports_errors(command: str) -> Generator[None]:
    """Print the error, and exit with status 2. A closed standard output is no error: ``aguila ... | head``."""
    try:
        yield
    except (CannotUse, StoreError) as error:
        sys.stderr.write(f"aguila {command}: {error}\n")
        raise typer.Exit(2) from None
    except BrokenPipeError:
        raise  # typer ends the command
    except OSError as error:
        sys.stderr.write(f"aguila {command}: {error.filename or 'a file'}: {error.strerror}\n")
        raise typer.Exit(2) from None


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a command."""
    return asyncio.run(main)


@asynccontextmanager
async def opened(location: str, *, create: bool = False) -> AsyncGenerator[SQLStore]:
    """Open a store. Raise ``CannotUse`` if there is none, unless ``create``."""
    try:
        path = sqlite_path(location)
        store = make_store(location, migrate=create)
    except ValueError as error:
        raise CannotUse(str(error)) from None
    if path is not None and not create:
        check_exists(path)
    assert isinstance(store, SQLStore)  # noqa: S101 - every store with a location is one
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def check_exists(path: Path) -> None:
    """Raise ``CannotUse`` if there is no store: opening one would create it."""
    if not path.is_file():
        raise CannotUse(f"there is no store at {path}; give the path or URL of an existing store")


@asynccontextmanager
async def snapshot_of(location: str) -> AsyncGenerator[StoreReader]:
    """Open one state of a store. Raise ``CannotUse`` if there is none."""
    async with opened(location) as store, store.snapshot() as snapshot:
        yield snapshot


async def list_scopes(reader: StoreReader, scope: str | None = None) -> list[ScopeRecord]:
    """Return the scopes of a store with their usage, in the order of their names."""
    found: list[ScopeRecord] = []
    async for one in reader.rest(scope):
        if not isinstance(one, ScopeRecord):
            break  # scopes come first
        found.append(one)
    return found


async def _select(snapshot: StoreReader, scope: str | None, wanted: Sequence[str]) -> list[ThreadKey]:
    """Return the wanted threads in the order of the snapshot; without any, all of the scope."""
    keys = [key for one in await list_scopes(snapshot, scope) for key in await list_keys(snapshot, one.scope)]
    if not wanted:
        return keys
    for thread_id in wanted:
        scopes = [key[0] for key in keys if key[1] == thread_id]
        if not scopes:
            raise CannotUse(f"no thread {thread_id!r}" + ("" if scope is None else f" in scope {scope!r}"))
        if len(scopes) > 1:
            raise CannotUse(
                f"thread {thread_id!r} is in the scopes {', '.join(map(repr, scopes))}; give one as --scope"
            )
    return [key for key in keys if key[1] in set(wanted)]


def find_all(location: str, scope: str | None, wanted: Sequence[str]) -> list[ThreadKey]:
    """Return the wanted threads. Raise ``CannotUse`` if one does not exist."""

    async def find() -> list[ThreadKey]:
        async with snapshot_of(location) as snapshot:
            return await _select(snapshot, scope, wanted)

    return run(find())


def list_threads(location: str, scope: str | None, *, as_json: bool) -> None:
    """Print a line for each thread."""

    async def print_all() -> None:
        describe = _summary_json if as_json else _summary_line
        async with opened(location) as store:
            async for one, summary in iterate_summaries(store, scope):
                sys.stdout.write(describe(one, summary) + "\n")

    run(print_all())


async def iterate_summaries(store: Store, scope: str | None) -> AsyncIterator[tuple[str, ThreadSummary]]:
    """Iterate over the threads of a scope, or of all, each with its scope.

    Not from one snapshot: a pager may stop the output for hours, and an open snapshot keeps the database from removing
    old rows.
    """
    for one in await list_scopes(store, scope):
        before: int | None = None
        while page := (await store.threads(one.scope, ThreadFilter(limit=_PAGE, before=before))).threads:
            for summary in page:
                yield one.scope, summary
            before = page[-1].position


def _summary_line(scope: str, summary: ThreadSummary) -> str:
    notes = [f"agent {summary.agent}"] if summary.agent != "default" else []
    notes += ["running"] if summary.is_running else []
    notes += ["archived"] if summary.archived else []
    parts = [
        format_time(summary.updated_at),
        summary.thread_id,
        counted(summary.runs, "run"),
        counted(summary.last, "event"),
    ]
    parts += [f"scope {scope!r}", *notes, *([] if summary.title is None else [summary.title])]
    return escape_controls("  ".join(parts))


def _summary_json(scope: str, summary: ThreadSummary) -> str:
    fields = {name: getattr(summary, name) for name in summary.__struct_fields__ if name != "metadata"}
    metadata = None if summary.metadata is None else msgspec.Raw(summary.metadata)
    return msgspec.json.encode({"scope": scope, **fields, "metadata": metadata}).decode()


def show(location: str, scope: str | None, thread_id: str, *, as_json: bool) -> None:
    """Print a thread: a summary, or its events."""

    async def read() -> ThreadArchive:
        async with snapshot_of(location) as snapshot:
            ((found, _),) = await _select(snapshot, scope, [thread_id])
            return await read_archive(snapshot, found, thread_id, ends_run=False)

    archive = run(read())
    if as_json:
        for batch in archive.batches:
            for event in batch.events:
                sys.stdout.buffer.write(event + b"\n")
        sys.stdout.buffer.flush()
        return
    for line in _describe(archive):
        sys.stdout.write(escape_controls(line) + "\n")


def _describe(archive: ThreadArchive) -> Iterator[str]:
    thread, summary = archive.thread, archive.thread.summary
    yield f"thread {summary.thread_id}  scope {thread.scope!r}  agent {summary.agent}"
    if summary.title is not None:
        yield f"title {summary.title}"
    if summary.metadata is not None:
        yield f"metadata {summary.metadata.decode()}"
    yield f"created {format_time(summary.created_at)}  updated {format_time(summary.updated_at)}" + (
        "  archived" if summary.archived else ""
    )
    yield f"events {thread.first} to {summary.last}"
    for record in thread.runs:
        is_root = record.parent_run_id in (None, record.run_id)  # its own id: it continues no run
        parent = "" if is_root else f"  after {record.parent_run_id}"
        events = f"events {record.first} to {record.last}"
        yield f"run {record.run_id}  {record.outcome or 'running'}  {format_time(record.started_at)}  {events}{parent}"
    for interrupt in thread.interrupts:
        claimed = "" if interrupt.claimed_by is None else f" by {interrupt.claimed_by}"
        yield f"interrupt {interrupt.interrupt_id}  {interrupt.status}{claimed}  raised by {interrupt.run_id}"
    for file in thread.files:
        name = file.filename or "unnamed"
        yield f"file {file.file_id}  {name}  {file.media_type}  {counted(file.size, 'byte')}"


def export_threads(location: str, scope: str | None, wanted: Sequence[str], output: Path, *, force: bool) -> int:
    """Write threads to a file; return how many."""

    async def export(write: Callable[[bytes], object]) -> int:
        async with snapshot_of(location) as snapshot:
            keys = await _select(snapshot, scope, wanted)
            for found, thread_id in keys:
                async for piece in export_thread(snapshot, found, thread_id):
                    write(piece)
            return len(keys)

    return write_export(export, output, force=force)


def write_export(
    export: Callable[[Callable[[bytes], object]], Coroutine[Any, Any, T]], output: Path, *, force: bool
) -> T:
    """Write an export to a file, or to standard output; return what ``export`` does."""
    if output == Path("-"):
        result = run(export(sys.stdout.buffer.write))
        sys.stdout.buffer.flush()
        return result
    if output.exists() and not force:
        raise CannotUse(f"{output} exists; --force replaces it")
    part = output.with_name(output.name + ".part")  # an export that fails leaves no file that looks complete
    try:
        with part.open("wb") as file:
            result = run(export(file.write))
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)
    return result


def import_threads(location: str, source: Path, *, replace: bool) -> Outcome:
    """Restore the threads and files of an export in a store."""
    outcome = Outcome()

    async def restore(lines: BinaryIO) -> None:
        async with opened(location, create=True) as store:
            for archive in decode_archives(lines):
                if isinstance(archive, ThreadArchive):
                    outcome.add(archive, await restore_thread(store, archive, replace=replace))
                else:
                    await store.restore(archive)

    with ExitStack() as stack:
        lines = sys.stdin.buffer if source == Path("-") else stack.enter_context(source.open("rb"))
        try:
            run(restore(lines))
        except ValueError as error:
            done = outcome.counts["added"] + outcome.counts["replaced"]
            raise CannotUse(f"{source}: {error}; {counted(done, 'thread')} imported before the error") from error
    return outcome


def delete(location: str, keys: Sequence[ThreadKey]) -> None:
    """Delete threads."""

    async def delete_all() -> None:
        async with opened(location) as store:
            for scope, thread_id in keys:
                await store.delete(scope, ThreadTarget(thread_id))

    run(delete_all())


def format_time(seconds: float) -> str:
    """Format a time, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
