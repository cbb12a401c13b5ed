"""Read threads as projections: their messages, state and last run along one branch.

``history`` decides how the messages of an input change the thread. With ``"server"``, a known id keeps its message, and
messages that the client omits stay. With ``"client"``, the client's messages replace the thread's from the first one
that both have (``merge``). A run that names a ``parentRunId`` branches off there. No run changes the projection at the
end of another run. A thread is read by the current setting: projections that another setting wrote are computed again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial

from aguila.codec.logs import log_context, log_event, use_log_context
from aguila.codec.notices import Notice, Warn, log_notice
from aguila.errors import CursorExpired, NotFound, StoreError
from aguila.protocol import Message
from aguila.server.config.options import HistoryMode, UnknownHistory
from aguila.server.threads.branch_reducer import LastRun
from aguila.server.threads.projection_values import OwnRun, Projection, ThreadLog
from aguila.server.threads.run_changes import UnusableProjection
from aguila.server.threads.thread_reader import MAX_CACHED_ENDS, ThreadReader
from aguila.store import RunProjection, Store, ThreadSummary

__all__ = ["MAX_CACHED_ENDS", "LastRun", "OwnRun", "Projection", "Projections"]

_log = logging.getLogger("aguila.server")


class Projections:
    """The projections of a store's threads.

    The most recently used threads are cached: at most ``max_threads``, and as many as need ``max_bytes``, but at least
    one.
    """

    def __init__(
        self,
        store: Store,
        *,
        history: HistoryMode = "client",
        unknown_history: UnknownHistory = "keep",
        max_threads: int = 256,
        max_bytes: int = 64 * 1024 * 1024,
        warn: Warn = log_notice,
    ) -> None:
        self.store = store
        self._history: HistoryMode = history
        self._unknown_history: UnknownHistory = unknown_history
        self._max_threads = max_threads
        self._max_bytes = max_bytes
        self._warn = warn
        self._threads: OrderedDict[tuple[str, str], ThreadReader] = OrderedDict()
        self._sizes: dict[tuple[str, str], int] = {}
        self.cached_bytes = 0
        """About the bytes that the cached threads need."""
        self._saving: set[asyncio.Task[None]] = set()

    async def load(
        self, scope: str, thread_id: str, run_id: str | None = None, *, with_known: bool = False
    ) -> Projection:
        """Return the thread along the branch to a run, or to its latest run, with all events stored by now.

        ``with_known`` loads ``Projection.known``. Raises ``NotFound`` if the scope has no such thread or run.
        """
        return (await self._read(scope, thread_id, run_id, with_known))[1]

    async def load_before(
        self, scope: str, thread_id: str, run_id: str, parent: str | None, *, with_known: bool = False
    ) -> Projection | None:
        """Return the branch that a new run continues: up to ``parent``, or to the latest run if that is None.

        Return None if the thread is new, or if ``parent`` is the new run itself, which then continues no run.
        """
        if parent == run_id:
            return None
        try:
            return await self.load(scope, thread_id, parent, with_known=with_known)
        except NotFound:
            return None

    async def load_initial_messages(self, scope: str, thread_id: str, run_id: str) -> Sequence[Message]:
        """Return the messages that a run started with: those of its projection that it has not created.

        Raises ``NotFound`` if the scope has no such thread or run.
        """
        thread, view = await self._read(scope, thread_id, run_id, False)
        created = thread.creators.all_created_by(run_id)
        return [message for message in view.conversation.messages if message.id not in created]

    async def close_run(self, run: OwnRun, events: Sequence[bytes]) -> RunProjection | None:
        """Return the projection after a run whose last events are about to be appended with its end.

        Of a large run only the runs before it are projected, so that its memory is not needed a second time. It is
        projected with the next run, or when the thread is read. If the append fails, call ``forget``. Return None if
        the projection cannot be stored. Raises ``StoreError``.
        """
        key = (run.lease.scope, run.lease.thread_id)
        if run.sent is None and run.first == 1:
            return None
        try:
            for uses_stored in (True, False):
                try:
                    thread = self._find_before(key, run) if uses_stored else None
                    if thread is None or not await thread.feed_whole(run, events):
                        summary = await self.store.thread(*key)
                        thread = self._find_reader(key, summary, uses_stored=uses_stored)
                        async with thread.lock:
                            if thread.last > summary.last:
                                return None  # another caller has closed the run
                            if run.sent is None:
                                await thread.catch_up(run.first - 1, runs=summary.runs - 1)
                            else:
                                await thread.catch_up(summary.last, runs=summary.runs - 1, run=run)
                                await thread.feed(events, run)
                    found = thread.take_projections()
                    projection = found.pop(run.lease.run_id, None)
                    if found:
                        self._save_later(key, found)
                    self._evict(key)
                    return projection
                except UnusableProjection as error:
                    self._report(key, error)
                    self.forget(*key)
            return None
        except BaseException:
            self.forget(*key)
            raise

    async def wait_until_saved(self) -> None:
        """Wait until the projections that readers have computed are stored."""
        while self._saving:
            await asyncio.wait(list(self._saving))

    def forget(self, scope: str, thread_id: str) -> None:
        """Drop a thread from the cache."""
        if self._threads.pop((scope, thread_id), None) is not None:
            self.cached_bytes -= self._sizes.pop((scope, thread_id), 0)

    async def _read(
        self, scope: str, thread_id: str, run_id: str | None, with_known: bool
    ) -> tuple[ThreadReader, Projection]:
        key = (scope, thread_id)
        attempts = 0
        uses_stored = True
        while True:
            summary = await self.store.thread(scope, thread_id)
            thread = self._find_reader(key, summary, uses_stored=uses_stored)
            try:
                async with thread.lock:
                    if thread.last > summary.last:
                        continue  # the run in progress is being closed, and its last events are not stored yet
                    await thread.catch_up(summary.last, runs=summary.runs - summary.is_running)
                    view = await thread.project(run_id, with_known=with_known)
                    found = thread.take_projections()
            except CursorExpired:
                # The thread was deleted and created again while it was read.
                self.forget(*key)
                attempts += 1
                if attempts > 1:
                    raise
                continue
            except UnusableProjection as error:
                self.forget(*key)
                if not uses_stored:
                    raise
                self._report(key, error)
                uses_stored = False
                continue
            if found:
                self._save_later(key, found)
            self._evict(key)
            return thread, view

    def _find_before(self, key: tuple[str, str], run: OwnRun) -> ThreadReader | None:
        """Return the reader of a thread that has read the runs before this one; None if the store must be read."""
        thread = self._threads.get(key)
        if thread is None and run.first == 1:
            thread = self._threads[key] = self._create_reader(key, None)
        if thread is None or thread.last != run.first - 1:
            return None
        self._threads.move_to_end(key)
        return thread

    def _find_reader(self, key: tuple[str, str], summary: ThreadSummary, *, uses_stored: bool) -> ThreadReader:
        thread = self._threads.get(key)
        # A deleted thread may have been created again under the same id.
        if thread is None or thread.created_at not in (None, summary.created_at) or thread.last > summary.last:
            thread = self._threads[key] = self._create_reader(key, summary.created_at, uses_stored=uses_stored)
        thread.created_at = summary.created_at
        self._threads.move_to_end(key)
        return thread

    def _create_reader(
        self, key: tuple[str, str], created_at: float | None, *, uses_stored: bool = True
    ) -> ThreadReader:
        log = ThreadLog(self.store, *key)
        warn = partial(self._warn_of_thread, key[1])
        return ThreadReader(log, created_at, self._history, self._unknown_history, warn, uses_stored=uses_stored)

    def _warn_of_thread(self, thread_id: str, notice: Notice) -> None:
        """Report a notice about a thread. A reader is in no run; the run that is being closed names itself."""
        with use_log_context(thread_id) if log_context.get() is None else nullcontext():
            self._warn(notice)

    def _evict(self, key: tuple[str, str]) -> None:
        """Count the bytes of a thread that was read, and drop others if there are too many."""
        threads = self._threads
        if key in threads:  # the thread may have been dropped meanwhile
            size = threads[key].size
            self.cached_bytes += size - self._sizes.get(key, 0)
            self._sizes[key] = size
        while len(threads) > 1 and (len(threads) > self._max_threads or self.cached_bytes > self._max_bytes):
            self.cached_bytes -= self._sizes.pop(threads.popitem(last=False)[0], 0)

    def _save_later(self, key: tuple[str, str], found: Mapping[str, RunProjection]) -> None:
        """Store the projections of runs that were closed without one. The caller does not wait for that."""
        task = asyncio.get_running_loop().create_task(self._save(key, found))
        self._saving.add(task)
        task.add_done_callback(self._saving.discard)

    async def _save(self, key: tuple[str, str], found: Mapping[str, RunProjection]) -> None:
        try:
            await self.store.save_projections(*key, found)
        except StoreError:
            self.forget(*key)  # the store lacks values that the reader takes to be stored

    def _report(self, key: tuple[str, str], error: UnusableProjection) -> None:
        what = f"a stored projection cannot be used, and is computed again: {error}"
        log_event(_log, logging.WARNING, what, thread=key[1])
