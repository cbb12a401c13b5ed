"""``PostgresStore``: the event log in a PostgreSQL database, which processes on many machines share.

Writes are grouped: all that wait are one transaction. Leases are checked in the transaction that writes, with the
database's clock. Other processes learn of a change by NOTIFY (``wakeups``); while readers wait, the database is also
polled, in case a notification is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from aguila.errors import MissingExtra
from aguila.store.locations import describe_postgres
from aguila.store.records import ThreadKey
from aguila.store.sql.store import SQLStore

if TYPE_CHECKING:
    from aguila.store.postgres.engine import PostgresDatabase

Wakeups = Literal["listen", "poll"]

_POLL_SECONDS: dict[Wakeups, float] = {"listen": 0.75, "poll": 0.15}


class PostgresStore(SQLStore):
    """A store in a PostgreSQL database (15 or later). Needs the ``postgres`` extra.

    ``dsn`` is a URL with the options of libpq; with several hosts, the one that accepts writes is used. ``schema`` has
    the tables; it is created when the store opens, unless ``migrate`` is false. ``pool`` is the number of connections
    that reads share; three more are used for writes and notifications.

    ``wakeups="poll"`` is for poolers in transaction mode (PgBouncer) and servers without LISTEN: it uses no session
    state, so a dead process is found by its leases only.

    A call raises ``StoreUnavailable`` if the server is away for longer than ``patience`` seconds. Until then it waits,
    connects again and continues. The clock of the database judges leases; ``clock`` replaces it in tests.
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "aguila",
        pool: int = 8,
        wakeups: Wakeups = "listen",
        patience: float = 5.0,
        migrate: bool = True,
        poll_seconds: float | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        super().__init__()
        try:
            import psycopg  # noqa: F401 # pyright: ignore[reportUnusedImport]
        except ImportError as error:
            raise MissingExtra("postgres", "psycopg") from error
        from aguila.store.postgres.connection import parse_url
        from aguila.store.postgres.schema import check_schema_name

        parse_url(dsn)
        if wakeups not in ("listen", "poll"):
            raise ValueError(f'wakeups is {wakeups!r}; use "listen" or "poll"')
        if pool < 1:
            raise ValueError(f"pool is {pool}; a store needs at least one connection")
        self._dsn = dsn
        self._schema = check_schema_name(schema)
        self.readers = pool
        self.poll_seconds = _POLL_SECONDS[wakeups] if poll_seconds is None else poll_seconds
        self._options: dict[str, Any] = {
            "schema": schema,
            "wakeups": wakeups,
            "patience": patience,
            "migrates": migrate,
            "clock": clock,
        }

    @property
    def location(self) -> str:
        return describe_postgres(self._dsn, self._schema)

    async def migrate(self) -> tuple[int, int]:
        """Create the schema unless it exists; return its version before and after. Raises ``StoreUnavailable``."""
        return await asyncio.to_thread(self._make_database(lambda _: None).migrate)

    def _make_database(self, on_change: Callable[[Sequence[ThreadKey]], None]) -> PostgresDatabase:
        from aguila.store.postgres.engine import PostgresDatabase

        return PostgresDatabase(self._dsn, on_change=on_change, **self._options)
