"""The threads of a store that were used last.

``history`` decides how the messages of an input change a thread. With ``"server"``, a known id keeps its message, and
messages that the client omits stay. With ``"client"``, the client's messages replace the thread's from the first one
that both have (``merge``). A run that names a ``parentRunId`` branches off there. No run changes the view at the end of
another run. A thread is read by the current setting: turns that another setting wrote are computed again.
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
from aguila.server.config.options import HistoryMode, UnknownHistory
from aguila.server.threads.thread import OwnRun, Thread
from aguila.server.threads.turn import UnusableTurn
from aguila.server.threads.view import View
from aguila.store import NewTurns, Store
from aguila.store import Turn as StoredTurn

_log = logging.getLogger("aguila.server")

_Key = tuple[str, str]


class Threads:
    """The threads of a store.

    The most recently used ones are cached: at most ``max_threads``, and as many as need ``max_bytes``, but at least
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
        self._threads: OrderedDict[_Key, Thread] = OrderedDict()
        self._sizes: dict[_Key, int] = {}
        self.cached_bytes = 0
        """About the bytes that the cached threads need."""
        self._saving: set[asyncio.Task[None]] = set()

    async def at(self, scope: str, thread_id: str, run_id: str | None = None, *, with_known: bool = False) -> View:
        """Return the view of a thread at a run, or at its latest run. See ``Thread.at``.

        Raises ``NotFound`` if the scope has no such thread or run.
        """
        key = (scope, thread_id)
        was_replaced = False
        uses_stored = True
        while True:
            thread = self._find(key, uses_stored=uses_stored)
            try:
                async with thread.lock:
                    view = await thread.at(run_id, with_known=with_known)
                    self._save_later(key, thread)
            except NotFound:
                if thread.last == 0:  # otherwise requests for unknown threads would fill the cache
                    self.forget(*key)
                raise
            except CursorExpired:
                # The thread was deleted and created again.
                self.forget(*key)
                if was_replaced:
                    raise
                was_replaced = True
            except UnusableTurn as error:
                self.forget(*key)
                if not uses_stored:
                    raise
                self._report(key, error)
                uses_stored = False
            else:
                self._evict(key)
                return view

    async def before(
        self, scope: str, thread_id: str, run_id: str, parent: str | None, *, with_known: bool = False
    ) -> View | None:
        """Return the branch that a new run continues: up to ``parent``, or to the latest run if that is None.

        Return None if the thread is new, or if ``parent`` is the new run itself, which then continues no run.
        """
        if parent == run_id:
            return None
        try:
            return await self.at(scope, thread_id, parent, with_known=with_known)
        except NotFound:
            return None

    async def close_run(self, run: OwnRun, events: Sequence[bytes]) -> StoredTurn | None:
        """Reduce a run whose last events are about to be stored with its end; return its turn as it is stored.

        If that fails, call ``forget``. Return None if the turn cannot be stored, and for a large run: the next reader
        reduces it, so that its memory is not needed a second time. Raises ``StoreError``.
        """
        if run.sent is None:
            return None
        key = (run.lease.scope, run.lease.thread_id)
        try:
            for uses_stored in (True, False):
                thread = self._find(key, uses_stored=uses_stored)
                try:
                    async with thread.lock:
                        turn = await thread.close(run, events)
                        self._save_later(key, thread)
                except (CursorExpired, UnusableTurn) as error:
                    self._report(key, error)
                    self.forget(*key)
                else:
                    self._evict(key)
                    return turn
        except BaseException:
            self.forget(*key)
            raise
        return None

    async def wait_until_saved(self) -> None:
        """Wait until the turns that readers have computed are stored."""
        while self._saving:
            await asyncio.wait(list(self._saving))

    def forget(self, scope: str, thread_id: str) -> None:
        """Drop a thread from the cache."""
        if self._threads.pop((scope, thread_id), None) is not None:
            self.cached_bytes -= self._sizes.pop((scope, thread_id), 0)

    def _find(self, key: _Key, *, uses_stored: bool) -> Thread:
        thread = self._threads.get(key)
        if thread is None:
            warn = partial(self._warn_of_thread, key[1])
            history, unknown = self._history, self._unknown_history
            thread = Thread(self.store, *key, history, unknown, warn, uses_stored=uses_stored)
            self._threads[key] = thread
        self._threads.move_to_end(key)
        return thread

    def _warn_of_thread(self, thread_id: str, notice: Notice) -> None:
        """Report a notice about a thread. A reader is in no run; the run that is being closed names itself."""
        with use_log_context(thread_id) if log_context.get() is None else nullcontext():
            self._warn(notice)

    def _evict(self, key: _Key) -> None:
        """Count the bytes of a thread that was read, and drop others if there are too many."""
        threads = self._threads
        if key in threads:  # the thread may have been dropped meanwhile
            size = threads[key].size
            self.cached_bytes += size - self._sizes.get(key, 0)
            self._sizes[key] = size
        while len(threads) > 1 and (len(threads) > self._max_threads or self.cached_bytes > self._max_bytes):
            self.cached_bytes -= self._sizes.pop(threads.popitem(last=False)[0], 0)

    def _save_later(self, key: _Key, thread: Thread) -> None:
        """Store the turns of runs that were closed without one. The caller does not wait for that."""
        turns, thread.unsaved = thread.unsaved, {}
        if turns:
            task = asyncio.get_running_loop().create_task(self._save(key, turns))
            self._saving.add(task)
            task.add_done_callback(self._saving.discard)

    async def _save(self, key: _Key, turns: Mapping[str, StoredTurn]) -> None:
        try:
            await self.store.amend(*key, NewTurns(turns))
        except StoreError:
            self.forget(*key)  # the store lacks values that the thread takes to be stored

    def _report(self, key: _Key, error: Exception) -> None:
        what = f"a stored turn cannot be used, and is computed again: {error}"
        log_event(_log, logging.WARNING, what, thread=key[1])
