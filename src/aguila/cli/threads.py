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
from aguila.store import Store, ThreadSummary
from aguila.store.archives.copying import Restored, restore_thread
from aguila.store.archives.file_format import decode_archives, encode_archive
from aguila.store.archives.thread_archive import Snapshot, ThreadArchive
from aguila.store.locations import make_store, sqlite_path
from aguila.store.run_inputs import is_inline
from aguila.testing.plurals import counted

T = TypeVar("T")

ThreadKey = tuple[str, str]
"""Scope and thread id."""


_PAGE: Final = 500
"""Threads that are read from one snapshot for a list."""


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
            self._different.append((archive.scope, archive.thread_id))

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
async def opened(location: str, *, create: bool = False) -> AsyncGenerator[Store]:
    """Open a store. Raise ``CannotUse`` if there is none, unless ``create``."""
    try:
        path = sqlite_path(location)
        store = make_store(location, migrate=create)
    except ValueError as error:
        raise CannotUse(str(error)) from None
    if path is not None and not create:
        check_exists(path)
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
async def _snapshot_of(location: str) -> AsyncGenerator[Snapshot]:
    async with opened(location) as store, store.snapshot() as snapshot:
        yield snapshot


async def _select(snapshot: Snapshot, scope: str | None, wanted: Sequence[str]) -> list[ThreadKey]:
    """Return the wanted threads in the order of the snapshot; without any, all of the scope."""
    keys = [key for key in await snapshot.threads() if scope in (None, key[0])]
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
        async with _snapshot_of(location) as snapshot:
            return await _select(snapshot, scope, wanted)

    return run(find())


def list_threads(location: str, scope: str | None, *, as_json: bool) -> None:
    """Print a line for each thread."""

    async def print_all() -> None:
        describe = _summary_json if as_json else _summary_line
        async with opened(location) as store:
            async for one, summary in _summaries(store, scope):
                sys.stdout.write(describe(one, summary) + "\n")

    run(print_all())


async def _summaries(store: Store, scope: str | None) -> AsyncIterator[tuple[str, ThreadSummary]]:
    """Iterate over the threads of a scope, or of all, each with its scope.

    A snapshot needs no permission to write, unlike ``Store.threads``. A new one is opened for every ``_PAGE`` threads:
    a pager may stop the output for hours, and an open snapshot keeps the database from removing old rows.
    """
    async with store.snapshot() as snapshot:
        left = sorted({key[0] for key in await snapshot.threads() if scope in (None, key[0])}, reverse=True)
    before: int | None = None
    while left:
        found: list[tuple[str, ThreadSummary]] = []
        async with store.snapshot() as snapshot:
            while left and len(found) < _PAGE:
                page = await snapshot.summaries(left[-1], before=before, limit=_PAGE)
                found += [(left[-1], summary) for summary in page]
                if len(page) == _PAGE:
                    before = page[-1].position
                else:
                    left.pop()
                    before = None
        for one in found:
            yield one


def _summary_line(scope: str, summary: ThreadSummary) -> str:
    notes = [f"agent {summary.agent}"] if summary.agent != "default" else []
    notes += ["running"] if summary.is_running else []
    notes += ["archived"] if summary.archived else []
    parts = [_time(summary.updated_at), summary.thread_id, counted(summary.runs, "run"), counted(summary.last, "event")]
    parts += [f"scope {scope!r}", *notes, *([] if summary.title is None else [summary.title])]
    return escape_controls("  ".join(parts))


def _summary_json(scope: str, summary: ThreadSummary) -> str:
    fields = {name: getattr(summary, name) for name in summary.__struct_fields__ if name != "metadata"}
    metadata = None if summary.metadata is None else msgspec.Raw(summary.metadata)
    return msgspec.json.encode({"scope": scope, **fields, "metadata": metadata}).decode()


def show(location: str, scope: str | None, thread_id: str, *, as_json: bool) -> None:
    """Print a thread: a summary, or its events."""

    async def read() -> ThreadArchive:
        async with _snapshot_of(location) as snapshot:
            ((found, _),) = await _select(snapshot, scope, [thread_id])
            return await snapshot.thread(found, thread_id, ends_run=False)

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
    yield f"thread {archive.thread_id}  scope {archive.scope!r}  agent {archive.agent}"
    if archive.title is not None:
        yield f"title {archive.title}"
    if archive.metadata is not None:
        yield f"metadata {archive.metadata.decode()}"
    yield f"created {_time(archive.created_at)}  updated {_time(archive.updated_at)}" + (
        "  archived" if archive.archived else ""
    )
    yield f"events {archive.first} to {archive.last}"
    for run_ in archive.runs:
        record = run_.record
        is_root = record.parent_run_id in (None, record.run_id)  # its own id: it continues no run
        parent = "" if is_root else f"  after {record.parent_run_id}"
        events = f"events {record.first} to {archive.last if record.is_running else record.last}"
        yield f"run {record.run_id}  {record.outcome or 'running'}  {_time(record.started_at)}  {events}{parent}"
    for interrupt in archive.interrupts:
        claimed = "" if interrupt.claimed_by is None else f" by {interrupt.claimed_by}"
        yield f"interrupt {interrupt.interrupt_id}  {interrupt.status}{claimed}  raised by {interrupt.run_id}"
    for file in archive.files:
        if not is_inline(file.blob.blob_id):
            name = file.blob.filename or "unnamed"
            yield f"file {file.blob.blob_id}  {name}  {file.blob.media_type}  {counted(file.blob.size, 'byte')}"


def export_threads(location: str, scope: str | None, wanted: Sequence[str], output: Path, *, force: bool) -> int:
    """Write threads to a file; return how many."""

    async def export(write: Callable[[bytes], object]) -> int:
        async with _snapshot_of(location) as snapshot:
            keys = await _select(snapshot, scope, wanted)
            for found, thread_id in keys:
                for line in encode_archive(await snapshot.thread(found, thread_id)):
                    write(line)
            return len(keys)

    if output == Path("-"):
        count = run(export(sys.stdout.buffer.write))
        sys.stdout.buffer.flush()
        return count
    if output.exists() and not force:
        raise CannotUse(f"{output} exists; --force replaces it")
    part = output.with_name(output.name + ".part")  # an export that fails leaves no file that looks complete
    try:
        with part.open("wb") as file:
            count = run(export(file.write))
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)
    return count


def import_threads(location: str, source: Path, *, replace: bool) -> Outcome:
    """Restore the threads of an export in a store."""
    outcome = Outcome()

    async def restore(lines: BinaryIO) -> None:
        async with opened(location, create=True) as store:
            for archive in decode_archives(lines):
                outcome.add(archive, await restore_thread(store, archive, replace=replace))

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
                await store.delete_thread(scope, thread_id)

    run(delete_all())


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
