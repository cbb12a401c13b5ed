"""Wake-ups between processes with LISTEN and NOTIFY.

A notification names the threads that changed and carries no data: the receiver reads the database. NOTIFY takes a lock
that all commits with a NOTIFY share. So it is sent after the commit of a flush, in a transaction of its own. One is
sent at a time: threads that change meanwhile are in the next notification. That transaction does not wait for the disk
or a standby, because the changes that it announces are durable. If a notification is lost, the next poll makes up for
it.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import inf
from threading import Condition, Event, Thread

import msgspec
import psycopg

from aguila.codec.json.bounded_floats import json_decoder
from aguila.store.postgres.connection import Connection, Connector, drop
from aguila.store.postgres.errors import is_outage

_log = logging.getLogger("aguila.store")

ThreadKey = tuple[str, str]

_NOTIFY = "SELECT pg_notify($1, $2)"

_MAX_PAYLOAD = 7900
"""Bytes of a notification; PostgreSQL allows 7999."""

_PAUSE = 0.25
"""Seconds between two attempts to connect."""


class _Notice(msgspec.Struct, array_like=True):
    """A notification: the lock of its sender, and the threads that changed. No threads: any may have changed."""

    sender: int
    keys: list[ThreadKey]


_decoder = json_decoder(_Notice)


class Wakeups:
    """Send and receive notifications, on two threads with a connection each.

    ``on_change`` is called on the listening thread with the threads that changed, or with none if any may have.
    """

    def __init__(self, connector: Connector, on_change: Callable[[Sequence[ThreadKey]], None]) -> None:
        self._connector = connector
        self.on_change = on_change
        self._channel = f"{connector.schema}_wakeups"
        self._changed: set[ThreadKey] = set()
        self._condition = Condition()
        self._is_closed = False
        self._listener: Connection | None = None
        self._threads = [
            Thread(target=work, name=f"aguila-store-{name}", daemon=True)
            for name, work in (("listen", self._listen), ("notify", self._notify))
        ]
        self.is_listening = Event()

    def open(self) -> None:
        """Start to listen."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Send pending notifications and stop listening."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
            if self._listener is not None:
                _interrupt(self._listener)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(1.0)  # a thread that waits for a silent server ends later

    def send(self, keys: Iterable[ThreadKey]) -> None:
        """Tell other processes that these threads changed."""
        with self._condition:
            self._changed.update(keys)
            self._condition.notify()

    def _notify(self) -> None:
        db: Connection | None = None
        while True:
            with self._condition:
                while not self._changed and not self._is_closed:
                    self._condition.wait()
                keys, self._changed = list(self._changed), set()
            if not keys:
                break
            sender = self._connector.lock or 0
            payload = msgspec.json.encode(_Notice(sender, keys))
            if len(payload) > _MAX_PAYLOAD:
                payload = msgspec.json.encode(_Notice(sender, []))
            try:
                if db is None or db.closed:
                    db = self._connect()
                db.execute(_NOTIFY, (self._channel, payload.decode()))
            except (psycopg.Error, OSError) as error:  # the others poll
                _log.debug("cannot send a wake-up: %s", error)
                self._pause()
        if db is not None:
            drop(db)

    def _listen(self) -> None:
        while not self._is_closed:
            db: Connection | None = None
            try:
                db = self._connect()
                db.execute(f"LISTEN {self._channel}".encode())
                db.patience = inf
                with self._condition:
                    if self._is_closed:
                        return
                    self._listener = db
                self.is_listening.set()
                self.on_change(())  # notifications may have been missed until now
                for notice in db.notifies():
                    self._receive(notice.payload)
            except (psycopg.Error, OSError) as error:  # polling goes on until the server is back
                if not is_outage(error):
                    _log.warning("cannot listen for wake-ups, polling instead: %s", error)
                self._pause()
            finally:
                self.is_listening.clear()
                with self._condition:
                    self._listener = None
                if db is not None:
                    drop(db)

    def _pause(self) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._is_closed, _PAUSE)

    def _connect(self) -> Connection:
        db = self._connector.connect(commits=False)
        db.execute("SET synchronous_commit TO off")
        return db

    def _receive(self, payload: str) -> None:
        try:
            notice = _decoder.decode(payload)
        except (msgspec.MsgspecError, UnicodeError):
            return  # any user of the database can send to the channel
        if notice.sender != self._connector.lock:
            self.on_change(notice.keys)


def _interrupt(db: Connection) -> None:
    """End the wait of another thread for a connection: to close it would free what that thread uses."""
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(db.fileno())) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)
