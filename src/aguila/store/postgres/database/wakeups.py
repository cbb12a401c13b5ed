"""Wake-ups between processes with LISTEN and NOTIFY.

A notification names the threads that changed and carries no data: the receiver reads the database. NOTIFY takes a lock
that all commits with a NOTIFY share. So it is sent after the commit of a flush, in a transaction of its own. One is
sent at a time: threads that change meanwhile are in the next notification. That transaction does not wait for the disk
or a standby, because the changes that it announces are durable. If a notification is lost, the next poll makes up for
it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from aguila.codec.json.bounded_floats import json_decoder
from aguila.store.feed import ThreadKey
from aguila.store.postgres.database.connections import MAX_PAUSE, Database, is_outage

_log = logging.getLogger("aguila.store")

_NOTIFY = "SELECT pg_notify($1, $2)"

_MAX_PAYLOAD = 7900
"""Bytes of a notification; PostgreSQL allows 7999."""


class _Notice(msgspec.Struct, array_like=True):
    """A notification: the lock of its sender, and the threads that changed. No threads: any may have changed."""

    sender: int
    keys: list[ThreadKey]


_decoder = json_decoder(_Notice)


class Wakeups:
    """Send and receive notifications. ``on_change`` gets the threads that changed, or none if any may have."""

    def __init__(self, database: Database, on_change: Callable[[Sequence[ThreadKey]], None]) -> None:
        self._database = database
        self._on_change = on_change
        self._channel = f"{database.schema}_wakeups"
        self._changed: set[ThreadKey] = set()
        self._db: Any = None  # listens, and sends
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._is_closed = False
        self.is_listening = asyncio.Event()

    def open(self) -> None:
        """Start to listen."""
        self._listening = asyncio.get_running_loop().create_task(self._listen(), name="aguila-store-listen")

    async def close(self) -> None:
        """Send pending notifications and stop listening."""
        self._start_sending()
        self._is_closed = True
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=1.0)
        for task in (self._sending, self._listening):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])

    def notify(self, keys: Iterable[ThreadKey], *, delay: float = 0.0) -> None:
        """Tell other processes that these threads changed, after ``delay`` seconds at the latest."""
        self._changed.update(keys)
        if delay == 0.0:
            self._start_sending()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(delay, self._start_sending)

    def _start_sending(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sending is None and self._changed and not self._is_closed:
            self._sending = asyncio.get_running_loop().create_task(self._send(), name="aguila-store-notify")

    async def _send(self) -> None:
        try:
            while self._changed:
                keys, self._changed = list(self._changed), set()
                payload = msgspec.json.encode(_Notice(self._database.lock or 0, keys))
                if len(payload) > _MAX_PAYLOAD:
                    payload = msgspec.json.encode(_Notice(self._database.lock or 0, []))
                db = self._db
                if db is None:
                    _log.debug("cannot send a wake-up while there is no connection")  # the others poll
                    continue
                try:
                    await self._database.guard(db, db.fetch(_NOTIFY, self._channel, payload.decode()))
                except Exception as error:  # noqa: BLE001 - the others poll
                    _log.debug("cannot send a wake-up: %s", error)
        finally:
            self._sending = None

    async def _listen(self) -> None:
        while True:
            try:
                db = await self._database.connect(reads=False)
            except Exception as error:  # noqa: BLE001 - polling goes on until the server is back
                if not is_outage(error):
                    _log.warning("cannot listen for wake-ups, polling instead: %s", error)
                await asyncio.sleep(MAX_PAUSE)
                continue
            ended = asyncio.Event()
            try:
                db.add_termination_listener(partial(_set, ended))
                await db.execute("SET synchronous_commit TO off")
                await db.add_listener(self._channel, self._receive)
                self._db = db
                self.is_listening.set()
                self._on_change(())  # notifications may have been missed until now
                await ended.wait()
            except Exception as error:  # noqa: BLE001 - connect again
                _log.debug("cannot listen for wake-ups: %s", error)
            finally:
                self._db = None
                self.is_listening.clear()
                db.terminate()

    def _receive(self, _db: Any, _process: int, _channel: str, payload: str) -> None:
        try:
            notice = _decoder.decode(payload)
        except (msgspec.MsgspecError, UnicodeError):
            return  # any user of the database can send to the channel
        if notice.sender != self._database.lock:
            self._on_change(notice.keys)


def _set(event: asyncio.Event, _db: Any) -> None:
    event.set()
