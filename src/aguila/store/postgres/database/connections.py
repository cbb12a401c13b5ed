"""The connections of an open store, and the errors of PostgreSQL as errors of a store.

A call that fails because a connection was lost or the server is away is repeated until it succeeds or ``patience``
seconds have passed. So every call must be one that can be repeated: a read, or a write that recognises its own result.

With a synchronous standby, a server that has just restarted shows commits that the standby may not have yet. So a new
connection first commits a write of its own, which waits until the standby has everything before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from math import inf
from typing import Any, Literal, TypeVar

from aguila.errors import MissingExtra, NotFound, StoreUnavailable
from aguila.shield import run_shielded
from aguila.store.locations import describe_postgres
from aguila.store.postgres.database.hosts import Host, connect_to_first, list_hosts
from aguila.store.postgres.database.migrations import check_usable, in_schema, migrate, read_version

T = TypeVar("T")

Wakeups = Literal["listen", "poll"]

FIRST_PAUSE = 0.02
MAX_PAUSE = 0.25

_SLOWEST = 1024 * 1024
"""Bytes per second below which a transfer is taken for a lost connection."""

_OUTAGES = (
    "08",  # connection exception
    "25006",  # read-only transaction: a standby, or a primary that is being replaced
    "40001",  # serialisation failure
    "40P01",  # deadlock
    "53",  # insufficient resources: too many connections, disk full
    "55P03",  # lock not available
    "57",  # operator intervention: shutdown, starting up, terminated
    "58",  # system error
)
"""The SQLSTATEs (or their classes) of errors that are not the fault of the statement."""

_PERMISSIONS = (
    "grant the role of the store SELECT, INSERT, UPDATE and DELETE on the tables of its schema and USAGE on the schema "
    "and its sequences; to create the schema it needs CREATE on the database, and to upgrade it use its owner; see "
    "Permissions in docs/scaling.md"
)

_COMMIT_ONCE = """
INSERT INTO aguila.checks (key, at) VALUES (1, aguila.time_of(NULL)) ON CONFLICT (key) DO UPDATE SET at = excluded.at
"""


def load_driver() -> Any:
    """Import asyncpg. Raises ``MissingExtra``."""
    try:
        import asyncpg  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtra("postgres", "asyncpg") from error
    return asyncpg


def is_outage(error: BaseException) -> bool:
    """Return whether the server or the network caused an error, so that the call may succeed later."""
    driver = load_driver()
    if isinstance(error, driver.PostgresError):
        return str(getattr(error, "sqlstate", None) or "").startswith(_OUTAGES)
    return isinstance(error, OSError | TimeoutError | driver.InterfaceError | driver.InternalClientError) and not (
        isinstance(error, driver.DataError)
    )


def unavailable(error: BaseException) -> StoreUnavailable:
    """Convert an error to ``StoreUnavailable``."""
    reason = str(error) or type(error).__name__
    state = getattr(error, "sqlstate", None)
    advice = f"; {_PERMISSIONS}" if _is_refused(error) else ""
    return StoreUnavailable(f"PostgreSQL: {reason}" + ("" if state is None else f" ({state})") + advice)


def _is_refused(error: BaseException) -> bool:
    """Return whether the role of the store lacks a permission."""
    return isinstance(error, load_driver().InsufficientPrivilegeError)


def convert(error: Exception, *, writes: bool = False) -> Exception:
    """Return the exception to raise for an error that is no outage. ``writes``: the call stores its arguments."""
    driver = load_driver()
    if _is_refused(error):
        return unavailable(error)
    if isinstance(error, driver.UndefinedTableError | driver.UndefinedFunctionError | driver.InvalidSchemaNameError):
        return StoreUnavailable(
            f"the schema was changed or removed: {error}; if a newer Aguila has migrated it, restart with that version"
            "; otherwise run aguila store migrate with the URL of this store"
        )
    is_surrogate = isinstance(error, driver.DataError) and isinstance(error.__cause__, UnicodeEncodeError)
    if is_surrogate or isinstance(error, driver.CharacterNotInRepertoireError | driver.ProgramLimitExceededError):
        message = f"PostgreSQL cannot store a value: {error}"
        return ValueError(message) if writes else NotFound(message)
    return error


class Database:
    """A pool of connections. ``lock`` is the advisory lock that each of them holds; None if they cannot hold one."""

    def __init__(
        self, dsn: str, *, schema: str, connections: int, wakeups: Wakeups, patience: float, migrates: bool
    ) -> None:
        self.driver = load_driver()
        self.schema = schema
        self.patience = patience
        self.is_pooled = wakeups == "poll"
        self.lock: int | None = None if self.is_pooled else secrets.randbits(63)
        self.wrote_at = -inf
        self.location = describe_postgres(dsn, schema)
        self._dsn = dsn
        self._hosts = list_hosts(dsn)
        self._migrates = migrates
        self._connections = connections
        self._pool: Any = None
        self._attempt_seconds = max(1.0, patience / 2)
        self._sql: dict[str, str] = {}

    async def open(self) -> None:
        """Connect, and create or upgrade the schema. Raises ``StoreUnavailable``."""
        if self._migrates:
            await self.migrate()
        else:
            version, oldest = await self._once(lambda db: read_version(db, self.schema))
            check_usable(version, oldest, self.schema, self.location)
        self._pool = self.driver.create_pool(
            connect=self._connect_pooled, min_size=0, max_size=self._connections, reset=_keep_session,
            max_inactive_connection_lifetime=0,
        )  # fmt: skip
        await self._pool

    async def migrate(self) -> tuple[int, int]:
        """Create or upgrade the schema; return its version before and after. Raises ``StoreUnavailable``."""
        return await self._once(lambda db: migrate(db, self.schema))

    async def _once(self, use: Callable[[Any], Awaitable[T]]) -> T:
        """Call ``use`` with a connection of its own. Raises ``StoreUnavailable``."""
        db = await self.connect_first()
        try:
            return await use(db)
        except (self.driver.PostgresError, self.driver.InterfaceError, OSError) as error:
            raise unavailable(error) from error
        finally:
            await self.drop(db)

    async def connect_first(self) -> Any:
        """Open the first connection. Raises ``StoreUnavailable``."""
        try:
            return await self.retry(self._connect)
        except self.driver.PostgresError as error:  # no such user or database
            raise unavailable(error) from error

    async def close(self) -> None:
        """Close all connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                async with asyncio.timeout(1.0):
                    await pool.close()
            except TimeoutError:
                pool.terminate()

    async def _connect_pooled(self, *_: Any, **__: Any) -> Any:
        return await self.connect()

    async def connect(self, *, reads: bool = True) -> Any:
        """Open a connection. Raises errors of the driver.

        ``reads``: wait until the synchronous standby, if there is one, has every commit that the connection can see.
        """
        db = await self._connect()
        if not reads:
            return db
        try:
            await db.execute(self.sql(_COMMIT_ONCE), timeout=self._attempt_seconds)
        except BaseException:
            db.terminate()
            raise
        return db

    async def _connect(self) -> Any:
        if len(self._hosts) < 2:
            return await self._connect_to(None)
        host, db = await connect_to_first(self._hosts, self._connect_to, lambda error: not is_outage(error))
        if host != self._hosts[0]:  # this host is the primary now
            self._hosts = [host, *(one for one in self._hosts if one != host)]
        return db

    async def _connect_to(self, host: Host | None) -> Any:
        """Open a connection to one host, or to the hosts that the DSN names, and take the lock of this process."""
        settings = {"application_name": "aguila"}
        if not self.is_pooled:  # a pooler rejects settings that it does not know
            settings |= {"jit": "off", "idle_in_transaction_session_timeout": "30000"}
        options: dict[str, Any] = {} if host is None else {"host": host.name, "port": host.port}
        if host is not None and "target_session_attrs=" not in self._dsn:
            options["target_session_attrs"] = "read-write"
        try:
            db = await self.driver.connect(
                self._dsn,
                timeout=self._attempt_seconds,
                statement_cache_size=0 if self.is_pooled else 256,
                server_settings=settings,
                **options,
            )
        except socket.gaierror as error:
            name = ", ".join(one.name for one in (self._hosts if host is None else (host,)))
            raise ConnectionError(f"no address for host {name!r}: {error.strerror}") from error
        if self.lock is not None:
            try:
                await db.execute(f"SELECT pg_advisory_lock_shared({self.lock})", timeout=self._attempt_seconds)
            except BaseException:
                db.terminate()
                raise
        return db

    async def drop(self, db: Any) -> None:
        """Close a connection, without waiting for a server that does not answer."""
        try:
            await db.close(timeout=0.5)
        except (OSError, TimeoutError, self.driver.PostgresError, self.driver.InterfaceError):
            db.terminate()

    def sql(self, text: str) -> str:
        """Return a statement for the schema of this store."""
        found = self._sql.get(text)
        if found is None:
            found = self._sql[text] = in_schema(text, self.schema)
        return found

    async def fetch(self, text: str, *args: Any) -> list[Any]:
        """Run one statement in a transaction of its own; return its rows. It may be repeated."""
        return await self.run(lambda db: db.fetch(self.sql(text), *args))

    async def fetchrow(self, text: str, *args: Any) -> Any:
        """Run one statement as ``fetch`` does; return its first row, or None."""
        rows = await self.fetch(text, *args)
        return rows[0] if rows else None

    async def run(self, use: Callable[[Any], Awaitable[T]], isolation: str | None = None, size: int = 0) -> T:
        """Call ``use`` with a connection of the pool. It may be called again with another connection.

        ``isolation``: within a transaction. ``size``: the bytes that it moves, if there may be many.
        """
        # To cancel a statement, the driver opens another connection, and its errors reach no caller.
        return await self.retry(lambda: run_shielded(self.attempt(use, isolation, size), _ignore_outcome))

    async def remove(self, text: str, *args: Any) -> tuple[Any, bool]:
        """Run a statement that removes something; return its first row, and whether it is a repetition.

        A repetition finds nothing if the first attempt was committed and only its answer was lost.
        """
        attempts = 0

        async def remove_once(db: Any) -> Any:
            nonlocal attempts
            attempts += 1
            return await db.fetchrow(self.sql(text), *args)

        row = await self.run(remove_once)
        return row, attempts > 1

    async def transact(self, use: Callable[[Any], Awaitable[T]], size: int = 0) -> T:
        """Call ``use`` within a transaction. It may be called again."""
        return await self.run(use, "read_committed", size)

    async def attempt(self, use: Callable[[Any], Awaitable[T]], isolation: str | None = None, size: int = 0) -> T:
        """Call ``use`` once. Raises errors of the driver."""

        async def in_transaction(db: Any) -> T:
            async with db.transaction(isolation=isolation):
                return await use(db)

        # Behind a pooler, two messages outside a transaction may reach two servers.
        call = in_transaction if isolation is not None or self.is_pooled else use
        async with self._acquire() as db:
            return await self.guard(db, call(db), size)

    def note_write(self) -> None:
        """Record that the server has just answered a lane. Other statements may work while the log is locked."""
        self.wrote_at = time.monotonic()

    async def guard(self, db: Any, call: Awaitable[T], size: int = 0) -> T:
        """Await a call; drop the connection if the server does not answer in time, or accepts no writes any more."""
        is_late = False

        def drop() -> None:
            nonlocal is_late
            is_late = True
            with contextlib.suppress(self.driver.InterfaceError):  # the connection was lost in the same moment
                db.terminate()

        # Not asyncio.timeout(): the driver would ask the server to cancel the statement, and a commit that waits for
        # the synchronous standby would become visible before the standby has it.
        timer = asyncio.get_running_loop().call_later(self._attempt_seconds + size / _SLOWEST, drop)
        try:
            return await call
        except self.driver.ReadOnlySQLTransactionError:
            db.terminate()
            raise
        except Exception as error:
            if is_late:
                raise TimeoutError("the server does not answer") from error
            raise
        finally:
            timer.cancel()

    @asynccontextmanager
    async def _acquire(self) -> AsyncGenerator[Any]:
        pool = self._pool
        if pool is None:
            raise StoreUnavailable("the store is closed")
        try:
            async with pool.acquire(timeout=self.patience) as db:
                yield db
        except self.driver.InterfaceError as error:
            if self._pool is None:
                raise StoreUnavailable("the store is closed") from error
            raise

    async def retry(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call while the server is away, for ``patience`` seconds. Raises ``StoreUnavailable``."""
        deadline = time.monotonic() + self.patience
        pause = FIRST_PAUSE
        while True:
            try:
                return await call()
            except Exception as error:
                if not is_outage(error):
                    raise convert(error) from error
                if time.monotonic() + pause > deadline:
                    raise unavailable(error) from error
            await asyncio.sleep(pause)
            pause = min(pause * 2, MAX_PAUSE)

    def abandon(self) -> None:
        """Forget all connections after the event loop was closed."""
        self._pool = None


def _ignore_outcome(attempt: asyncio.Task[Any]) -> None:
    """Let an attempt finish whose caller was cancelled. Its error was for the caller."""
    attempt.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


async def _keep_session(db: Any) -> None:
    """Keep the advisory lock of a connection that returns to the pool."""


@contextlib.contextmanager
def outages_as_unavailable() -> Any:
    """Convert errors of the server and the network, and missing permissions, to ``StoreUnavailable``."""
    try:
        yield
    except Exception as error:
        if not is_outage(error) and not _is_refused(error):
            raise
        raise unavailable(error) from error
