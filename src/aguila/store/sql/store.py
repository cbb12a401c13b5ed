"""``SQLStore``: the contract over any SQL database. A subclass supplies the database.

Writes go to the one writer; reads run on threads of their own, or at once if the database is in memory. The event loop
never waits for a lock, the network or the disk.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from math import inf
from typing import Any, TypeVar

import msgspec

from aguila.errors import NotFound, StaleLease, StoreError, StoreUnavailable
from aguila.store import refusals, rules
from aguila.store.contents import CutRequest, cut_request, cut_values
from aguila.store.contract import Store, StoreReader
from aguila.store.encoding import check_ids, encode_rows, hash_blob, size_of_rows
from aguila.store.large_strings import HUGE
from aguila.store.live import Live
from aguila.store.records import (
    Amendment,
    Archive,
    Begun,
    Compaction,
    FileRecord,
    Lease,
    LogPart,
    Message,
    NewRun,
    NewTurns,
    Quotas,
    Rest,
    Retention,
    RunChange,
    RunKey,
    RunRecord,
    Stamp,
    Swept,
    Taken,
    Target,
    ThreadFilter,
    ThreadKey,
    ThreadPage,
    ThreadRecord,
    ThreadSummary,
    ThreadUpdate,
    Want,
    Watch,
    Written,
)
from aguila.store.sql import reads, runs, threads
from aguila.store.sql import restore as sql_restore
from aguila.store.sql.tx import Database, Outage, Tx
from aguila.store.sql.writer import Writer, run_one

T = TypeVar("T")

SHORT = 32 * 1024
"""Bytes that a job may write and still be short; see ``writer.Job``."""

_FILES_AT_ONCE = 200


class SQLReader(StoreReader):
    """The calls that read, over transactions."""

    @abstractmethod
    async def _read(self, function: Callable[..., T], /, *args: Any) -> T:
        """Call a function with a transaction that reads, and with ``args``."""

    def _version(self, tx: Tx) -> str | None:
        """Return the stamp of lists of threads."""
        return None

    async def thread(self, scope: str, thread_id: str, want: Want = Want()) -> ThreadRecord:  # noqa: B008 - frozen
        return await self._read(reads.read_thread, scope, thread_id, want)

    async def read(
        self, scope: str, thread_id: str, after: int = 0, *, until: int | None = None, limit: int = 1024
    ) -> LogPart:
        return await self._read(reads.read_log, scope, thread_id, after, until, limit)

    async def values(self, scope: str, thread_id: str, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        return await self._read(reads.read_values, scope, thread_id, digests)

    async def threads(self, scope: str, filter: ThreadFilter = ThreadFilter()) -> ThreadPage:  # noqa: A002, B008
        def read(tx: Tx) -> ThreadPage:
            return reads.list_threads(tx, scope, filter, self._version(tx))  # the version is noted before looking

        try:
            return await self._read(read)
        except NotFound:  # an id that the database cannot store
            return ThreadPage()

    async def file(self, scope: str, file_id: str, start: int = 0, size: int | None = None) -> tuple[FileRecord, bytes]:
        return await self._read(reads.read_file, scope, file_id, start, size)

    async def rest(self, scope: str | None = None) -> AsyncIterator[Rest]:
        try:
            scopes = await self._read(reads.list_scopes, scope)
        except NotFound:  # an id that the database cannot store
            return
        for found in scopes:
            yield found
        after: int | None = 0
        while after is not None:
            page, after = await self._read(reads.list_files, scope, after, _FILES_AT_ONCE)
            for file in page:
                yield file
        if scope is None:
            yield await self._read(reads.list_removed)


class _Snapshot(SQLReader):
    """One state of the database. Calls take turns on its transaction."""

    def __init__(self, tx: Tx, pool: ThreadPoolExecutor) -> None:
        self._tx = tx
        self._pool = pool
        self._turn = asyncio.Lock()

    async def _read(self, function: Callable[..., T], /, *args: Any) -> T:
        async with self._turn:
            return await asyncio.get_running_loop().run_in_executor(self._pool, partial(function, self._tx, *args))


class SQLStore(SQLReader, Store):
    """A store in a SQL database."""

    readers = 4
    """How many threads read."""

    def __init__(self) -> None:
        super().__init__()
        self._database: Database | None = None
        self._writer: Writer | None = None
        self._pool: ThreadPoolExecutor | None = None

    @abstractmethod
    def _make_database(self, on_change: Callable[[Sequence[ThreadKey]], None]) -> Database:
        """Make the database, on the event loop. ``on_change`` may be called on any thread; see ``Database``."""

    # Open and close

    async def _start(self, live: Live) -> None:
        loop = live.loop

        def on_change(keys: Sequence[ThreadKey]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(live.invalidate_all, keys)

        database = self._database = self._make_database(on_change)
        self._writer = Writer(database, self._rest)
        self._has_trash = True  # of a process that died; an empty one costs one statement
        self._pool = ThreadPoolExecutor(self.readers, thread_name_prefix="aguila-store-reader")
        if database.opens_inline:
            database.open()
            return
        try:
            await loop.run_in_executor(self._pool, database.open)
        except BaseException:
            await self._stop()
            raise

    async def _stop(self) -> None:
        writer, pool, database = self._writer, self._pool, self._database
        if writer is None or pool is None or database is None:
            return
        try:
            await writer.close()
        finally:
            self.live.close()
            self._database = self._writer = self._pool = None
            await asyncio.get_running_loop().run_in_executor(None, _release, pool, database)

    def _abandon(self) -> None:
        if self._writer is not None and self._pool is not None and self._database is not None:
            self._writer.stop()
            self._writer.join()
            _release(self._pool, self._database)
        self._database = self._writer = self._pool = None

    @property
    def database(self) -> Database:
        """The open database. Raises ``StoreUnavailable`` if the store is not open."""
        if self._database is None:
            raise refusals.not_open()
        return self._database

    @property
    def writer(self) -> Writer:
        """The writer of the open database. Raises ``StoreUnavailable`` if the store is not open."""
        if self._writer is None:
            raise refusals.not_open()
        return self._writer

    @property
    def wrote_at(self) -> float:
        return -inf if self._writer is None else self._writer.done_at

    async def check(self) -> None:
        database = self.database

        def check(tx: Tx) -> None:
            database.check(tx)
            threads.check(tx)

        await self.writer.submit(run_one(check))

    # Reads

    async def _read(self, function: Callable[..., T], /, *args: Any) -> T:
        database, pool = self.database, self._pool
        assert pool is not None  # noqa: S101 - open
        reading = database.try_reading()
        if reading is not None:
            try:
                with reading as tx:
                    return function(tx, *args)
            except UnicodeEncodeError as error:
                raise _no_such_id() from error
        try:
            return await self.live.loop.run_in_executor(pool, _read_now, database, function, args)
        except RuntimeError as error:
            if self._database is None:
                raise StoreUnavailable("the store is closed") from error
            raise

    def _version(self, tx: Tx) -> str | None:
        return self.database.version(tx)

    async def stamps(self, keys: Sequence[ThreadKey]) -> Mapping[ThreadKey, Stamp]:
        return await self._read(reads.read_stamps, keys)

    async def _has_changed(self) -> bool:
        database = self.database
        if database.opens_inline:
            return database.has_changed()
        return await self.live.loop.run_in_executor(self._pool, database.has_changed)

    def snapshot(self) -> AbstractAsyncContextManager[StoreReader]:
        return self._open_snapshot()

    @asynccontextmanager
    async def _open_snapshot(self) -> AsyncGenerator[StoreReader]:
        database, loop = self.database, self.live.loop
        with ThreadPoolExecutor(1, thread_name_prefix="aguila-store-snapshot") as pool:
            context = database.snapshot()
            tx = await loop.run_in_executor(pool, context.__enter__)
            try:
                yield _Snapshot(tx, pool)
            finally:
                await loop.run_in_executor(pool, context.__exit__, None, None, None)

    # Writes

    async def transact(self, function: Callable[[Tx], T]) -> T:
        """Call a function in a writing transaction. For commands that are no part of the contract."""
        return await self.writer.submit(run_one(function))

    def begin(self, new: NewRun) -> Awaitable[Begun]:
        if self._database is None:
            raise refusals.not_open()
        rules.check_new(new)
        if not isinstance(new.events, tuple):  # the caller may reuse its list
            new = msgspec.structs.replace(new, events=tuple(new.events))
        if len(new.request) > HUGE:
            return self._begin_large(new)
        return self._begin(new, cut_request(new.request))

    async def _begin_large(self, new: NewRun) -> Begun:
        return await self._begin(new, await self.live.loop.run_in_executor(self._pool, cut_request, new.request))

    def _begin(self, new: NewRun, request: CutRequest) -> asyncio.Future[Begun]:
        live, rows = self.live, encode_rows(new.events)
        size = size_of_rows(rows)
        total = request.size + size
        lock = self.database.hold(new.owner) if new.owner else None
        key = new.key
        return self.writer.submit(
            self._run_begins,
            runs.BeginItem(new, request, rows, lock),
            key=key,
            after=lambda begun: live.publish(begun.lease, begun.batch, size, begun=True),
            changed=lambda _: (key,),
            is_short=total <= SHORT,
            size=total,
        )

    def _make_room(self, tx: Tx, size: int) -> None:
        """Remove old threads for a file or details of this size, in a store that has a limit.

        Raises ``StoreUnavailable`` if nothing can be removed.
        """

    def _run_begins(self, tx: Tx, items: Sequence[runs.BeginItem]) -> Sequence[Begun | StoreError]:
        return runs.begin(tx, items)

    def _run_writes(self, tx: Tx, items: Sequence[runs.WriteItem]) -> Sequence[Written | StoreError]:
        return runs.write(tx, items, self.database.slot)

    def write(self, lease: Lease, change: RunChange) -> Awaitable[Written]:
        if self._database is None:
            raise refusals.not_open()
        if not isinstance(change.events, tuple):  # the caller may reuse its list
            change = msgspec.structs.replace(change, events=tuple(change.events))
        rows = encode_rows(change.events)
        turn = None if change.end is None else change.end.turn
        if turn is not None and turn.size > HUGE:
            return self._write_large(lease, change, rows, turn.values)
        return self._write(lease, change, rows, {} if turn is None else cut_values(turn.values))

    async def _write_large(self, lease: Lease, change: RunChange, rows: Any, values: Mapping[bytes, bytes]) -> Written:
        contents = await self.live.loop.run_in_executor(self._pool, cut_values, values)
        return await self._write(lease, change, rows, contents)

    def _write(self, lease: Lease, change: RunChange, rows: Any, contents: runs.Contents) -> asyncio.Future[Written]:
        live = self.live
        size = size_of_rows(rows)
        total = size + change.size
        is_end = change.end is not None
        key = (lease.scope, lease.thread_id)

        def after(written: Written) -> None:
            if written.batch.events or is_end:
                live.publish(lease, written.batch, size, ended=is_end)

        # The event loop is told of a stale lease, and other processes of events only: nobody waits for the rest.
        future = self.writer.submit(
            self._run_writes,
            runs.WriteItem(lease, change, rows, contents, change.after),
            key=key,
            after=after,
            changed=(lambda _: (key,)) if change.events or is_end else None,
            is_short=total <= SHORT,
            size=total,
        )
        if future.done():
            self._disown_stale(lease, future)
        else:
            future.add_done_callback(partial(self._disown_stale, lease))
        return future

    def _disown_stale(self, lease: Lease, future: asyncio.Future[Any]) -> None:
        if not future.cancelled() and isinstance(future.exception(), StaleLease) and self._live is not None:
            self._live.disown(lease)

    async def take_over(
        self, owner: str, seconds: float, *, only: RunKey | None = None, limit: int = 100
    ) -> Sequence[Taken]:
        live = self.live
        lock, tokens = self.database.hold(owner), set[str]()

        def own(taken: Sequence[Taken]) -> None:
            for one in taken:
                live.own(one.lease)

        return await self.writer.submit(
            run_one(lambda tx: runs.take_over(tx, owner, seconds, only, limit, lock, tokens)),
            after=own,
            changed=lambda taken: [(one.lease.scope, one.lease.thread_id) for one in taken],
        )

    async def tell(self, run: RunKey, message: Message) -> RunRecord:
        live, key = self.live, (run.scope, run.thread_id)
        lock = self.database.hold(message.viewer) if isinstance(message, Watch) else None
        is_watch = isinstance(message, Watch)
        return await self.writer.submit(
            run_one(lambda tx: runs.tell(tx, run, message, lock)),
            key=key,
            after=None if is_watch else lambda _: live.wake_control(key),
            changed=None if is_watch else lambda _: (key,),
            is_short=True,
        )

    async def open_runs(self, scope: str | None = None) -> Sequence[RunRecord]:
        try:
            return await self._read(reads.list_open_runs, scope)
        except NotFound:  # an id that the database cannot store
            return []

    # Threads and files

    async def amend(self, scope: str, thread_id: str, change: Amendment) -> ThreadSummary:
        slot, key = self.database.slot, (scope, thread_id)
        contents: runs.Contents = {}
        size = 0
        if isinstance(change, NewTurns):
            for turn in change.turns.values():  # one call each: a slice of the work
                contents |= await self.live.loop.run_in_executor(self._pool, cut_values, turn.values)
                size += turn.size
        elif isinstance(change, ThreadUpdate):
            size = change.size
        is_compaction = isinstance(change, Compaction)

        def amend(tx: Tx) -> ThreadSummary:
            self._make_room(tx, size)
            threads.amend(tx, slot, scope, thread_id, change, contents)
            return reads.read_summary(tx, scope, thread_id)[0]

        return await self.writer.submit(
            run_one(amend),
            key=key,
            after=(lambda _: self._removed((key,))) if is_compaction else None,
            changed=(lambda _: (key,)) if is_compaction else None,
            is_short=isinstance(change, ThreadUpdate) and size <= SHORT,
            size=size,
        )

    async def delete(self, scope: str, target: Target) -> None:
        slot = self.database.slot
        attempts = 0

        def delete(tx: Tx) -> Sequence[ThreadKey]:
            nonlocal attempts
            attempts += 1
            try:
                return threads.delete(tx, slot, scope, target)
            except NotFound:
                if attempts == 1:
                    raise
                return ()  # an earlier commit's answer was lost

        await self.writer.submit(run_one(delete), after=self._removed, changed=lambda keys: keys)

    def _removed(self, keys: Sequence[ThreadKey]) -> None:
        """Tell readers that the log of threads is another one, and free the space of the old one."""
        if self._live is None or self._writer is None:
            return
        for key in keys:
            self._live.invalidate(key)
        self._has_trash = True
        self._writer.rest_soon()

    def _rest(self) -> bool:
        """Tidy up, on the writer's thread while no jobs wait. Return whether there is more to do."""
        database = self._database
        if database is None:
            return False
        if self._has_trash:
            with database.transaction() as tx:
                self._has_trash = threads.empty_trash(tx)
            return True
        return database.rest()

    async def put_file(
        self,
        scope: str,
        data: bytes,
        *,
        media_type: str,
        filename: str | None = None,
        thread_id: str | None = None,
        quotas: Quotas | None = None,
    ) -> FileRecord:
        slot = self.database.slot
        check_ids(scope, thread_id or "")
        file_id = await self.live.loop.run_in_executor(self._pool, hash_blob, scope, data, media_type, filename)

        def put(tx: Tx) -> FileRecord:
            self._make_room(tx, len(data))
            file = FileRecord(
                scope=scope,
                file_id=file_id,
                media_type=media_type,
                filename=filename,
                size=len(data),
                created_at=tx.now,
                is_kept=thread_id is None,
            )
            return threads.put_file(tx, slot, file, data, thread_id, quotas)

        return await self.writer.submit(run_one(put), size=len(data))

    async def sweep(self, retention: Retention, *, limit: int = 100) -> Swept:
        slot = self.database.slot
        swept, _ = await self.writer.submit(
            run_one(lambda tx: threads.sweep(tx, slot, retention, limit)),
            after=lambda found: self._removed(found[1]),
            changed=lambda found: found[1],
        )
        while await self.transact(threads.empty_trash):
            pass
        return swept

    async def restore(self, archive: Archive, *, replace: bool = False) -> None:
        slot, live = self.database.slot, self.live
        new = await live.loop.run_in_executor(self._pool, sql_restore.prepare, archive)
        keys = () if new.key is None else (new.key,)

        def invalidate(_: None) -> None:
            for key in keys:
                live.invalidate(key)

        await self.writer.submit(
            run_one(lambda tx: sql_restore.restore(tx, slot, new, replace=replace)),
            key=new.key,
            after=invalidate,
            changed=lambda _: keys,
            size=new.size,
        )


def _release(pool: ThreadPoolExecutor, database: Database) -> None:
    pool.shutdown()
    database.close()


def _read_now(database: Database, function: Callable[..., T], args: Sequence[Any]) -> T:
    """Call a function with a transaction that reads. An outage is waited for."""
    deadline = time.monotonic() + database.patience
    pause = 0.01
    while True:
        try:
            with database.reading() as tx:
                return function(tx, *args)
        except UnicodeEncodeError as error:
            raise _no_such_id() from error
        except Outage:
            if time.monotonic() >= deadline:
                raise
        time.sleep(pause)
        pause = min(2 * pause, 0.2)


def _no_such_id() -> NotFound:
    return NotFound("the id contains a lone surrogate, which no stored id does")
