"""Connections to PostgreSQL: how they are made, and when a silent one is given up.

With a synchronous standby, a server that has just restarted shows commits that the standby may not have yet. So a new
connection first commits a write of its own, which waits until the standby has everything before it.

A statement is never cancelled: a commit that waits for the synchronous standby would become visible before the standby
has it. A connection whose server is silent is closed instead, and the server finds out by itself.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qs, urlsplit

import psycopg
from psycopg import RawCursor, conninfo, errors
from psycopg.abc import PQGen
from psycopg.types.array import ListBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper, NumericBinaryLoader
from psycopg.types.string import StrBinaryDumper

from aguila.store.locations import OPTION_PREFIX, OPTIONS, describe_postgres
from aguila.store.postgres.errors import is_refused
from aguila.store.postgres.hosts import Settings, connect_to_first, split_hosts

T = TypeVar("T")

Wakeups = Literal["listen", "poll"]

LOCKED_MILLISECONDS = 2000
"""How long a transaction of a process that was suspended, or cut off, may hold its locks."""

_READING_LIMITS = {"idle_in_transaction_session_timeout": 30_000}
"""A transaction that only reads blocks nothing but vacuum."""

_KEEPALIVES = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
"""A connection that listens sends nothing: the operating system finds out that its server is gone."""

_COMMIT_ONCE = """
INSERT INTO {schema}.checks (key, at, body) VALUES (1, 0, '') ON CONFLICT (key) DO UPDATE SET at = excluded.at
"""

INCARNATION = "extract(epoch FROM pg_postmaster_start_time())::text"
"""An expression: when the server started."""

_LOOK_SECONDS = 0.5
"""How often a wait looks whether its server is silent for too long."""

_STATEMENTS = 500
"""Prepared statements of a connection. The store has about 150."""

_ESCAPES = "in a user name or password write %40 for @, %3A for :, %2F for / and %23 for #"


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is closed when its server sends and takes nothing for ``patience`` seconds."""

    patience: float = math.inf
    has_pipeline: bool = True
    """Whether transactions use the pipeline of the driver.

    Its last message may be a Flush after the Sync that ends a transaction. A pooler in transaction mode may have taken
    the session away by then: it gives the client another one, and waits for an answer that never comes.
    """

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Wait for the server. Raises ``TimeoutError`` if it is silent."""
        try:
            return super().wait(_watch(gen, self.patience), max(interval, _LOOK_SECONDS), timeout)
        except TimeoutError:
            self.close()
            raise


class _SumLoader(NumericBinaryLoader):
    """Load a sum of integers, which is a ``numeric``, as an ``int``."""

    def load(self, data: Any) -> Any:
        """Return the sum."""
        return int(super().load(data))


def _watch(gen: PQGen[T], patience: float) -> PQGen[T]:
    """Pass on what a generator of the driver waits for, until its socket is not ready for ``patience`` seconds."""
    until = time.monotonic() + patience
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                until = time.monotonic() + patience
            elif time.monotonic() > until:
                raise TimeoutError("the server does not answer")
            wanted = gen.send(ready)
    except StopIteration as stop:
        return stop.value


class Connector:
    """Makes the connections of a store.

    ``lock`` is the advisory lock that each of them holds, by which other processes see that this one lives; None if
    they cannot hold one, behind a pooler in transaction mode.
    """

    def __init__(self, url: str, *, schema: str, wakeups: Wakeups, patience: float) -> None:
        self.schema = schema
        self.location = describe_postgres(url, schema)
        self.is_pooled = wakeups == "poll"
        self.lock: int | None = None if self.is_pooled else secrets.randbits(63)
        self.incarnation = ""
        """When the server of the newest connection started: it granted the lock. Empty behind a pooler."""
        self.attempt_seconds = max(1.0, patience / 2)
        self.limits = {
            "idle_in_transaction_session_timeout": LOCKED_MILLISECONDS,
            "lock_timeout": min(LOCKED_MILLISECONDS, int(self.attempt_seconds * 800)),  # before the wait is given up
        }
        """Settings for transactions that hold locks, or wait for them."""
        self._hosts = split_hosts(parse_url(url))
        self._guard = Lock()

    def hold(self, owner: str) -> str | None:
        """Return the lock to store; None if there is none."""
        return None if self.lock is None else f"{self.lock}@{self.incarnation}"

    def connect(self, *, commits: bool = True, locks: bool = False) -> Connection:
        """Open a connection. Raises errors of the driver.

        ``commits``: wait until the synchronous standby, if there is one, has every commit that the connection can see.
        ``locks``: its transactions hold locks, so that the server soon ends one of a process that was suspended.
        """
        hosts = self._hosts
        if len(hosts) < 2:
            return self._connect_to(hosts[0], commits, locks)
        first, db = connect_to_first(hosts, lambda host: self._connect_to(host, commits, locks), is_refused)
        if first:  # this host is the primary now
            with self._guard:
                self._hosts = [hosts[first], *(host for host in hosts if host is not hosts[first])]
        return db

    def _connect_to(self, host: Settings, commits: bool, locks: bool) -> Connection:
        settings: dict[str, Any] = {
            "application_name": "aguila",
            "connect_timeout": math.ceil(self.attempt_seconds),
            **_KEEPALIVES,
            **host,
        }
        if len(self._hosts) > 1:
            settings.setdefault("target_session_attrs", "read-write")
        db = Connection.connect(
            **settings, autocommit=True, prepare_threshold=None if self.is_pooled else 0, cursor_factory=RawCursor
        )
        db.prepared_max = _STATEMENTS
        db.patience = self.attempt_seconds
        db.has_pipeline = not self.is_pooled
        # One type for each of our values, so that a statement is prepared once.
        db.adapters.register_dumper(int, Int8BinaryDumper)
        db.adapters.register_dumper(str, StrBinaryDumper)
        db.adapters.register_dumper(list, ListBinaryDumper)  # the text of an array of events is slow
        db.adapters.register_loader("numeric", _SumLoader)
        try:
            self._set_up(db, commits, locks)
        except BaseException:
            db.close()
            raise
        return db

    def _set_up(self, db: Connection, commits: bool, locks: bool) -> None:
        if self.lock is not None:  # a pooler in transaction mode keeps no session state, one in session mode no options
            limits = self.limits if locks else _READING_LIMITS
            statements = (
                "SET jit = off",  # no plan of ours is worth it
                *(f"SET {name} = {value}" for name, value in limits.items()),
                f"SELECT pg_advisory_lock_shared({self.lock}), {INCARNATION}",
            )
            cursor = db.execute("; ".join(statements).encode(), prepare=False)  # one round trip
            self.incarnation = cursor.set_result(-1).fetchall()[0][1]
        if commits:
            with suppress(errors.InsufficientPrivilege):  # of a role that only reads, as commands do
                db.execute(_COMMIT_ONCE.format(schema=self.schema).encode(), prepare=False)


def parse_url(url: str) -> Mapping[str, Any]:
    """Return the parameters of a URL. Raises ``ValueError`` if it cannot work, with what to change."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres") or not url.startswith(f"{parts.scheme}://"):
        raise ValueError("PostgresStore needs a URL: postgresql://user@host/database")
    if "@" in parts.path or parts.fragment:  # the rest of a password that was not escaped
        raise ValueError(f"the PostgreSQL URL cannot be split into its parts; {_ESCAPES}")
    for name in parse_qs(parts.query, keep_blank_values=True):
        if name in OPTIONS or name.startswith(OPTION_PREFIX):
            option = name.removeprefix(OPTION_PREFIX)
            raise ValueError(
                f"{name} is no parameter of PostgreSQL; pass {option}= to PostgresStore, or write "
                f"{OPTION_PREFIX}{option}= in the URL of App(store=) and --store"
            )
    try:
        settings = conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        if "query parameter" in str(error):
            raise ValueError(f"the PostgreSQL URL has an {str(error).strip()}; use those of libpq") from None
        raise ValueError(
            f"the PostgreSQL URL cannot be split into its parts; {_ESCAPES}"
        ) from None  # may quote secrets
    if not all(port.isdecimal() for port in str(settings.get("port", "")).split(",") if port):
        raise ValueError(f"a port of the PostgreSQL URL is not a number; {_ESCAPES}")
    return settings


def drop(db: Connection) -> None:
    """Close a connection, whatever its state."""
    with suppress(psycopg.Error, OSError):
        db.close()
