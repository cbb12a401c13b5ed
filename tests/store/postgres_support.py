"""Test helpers for the internals of ``PostgresStore``."""

from __future__ import annotations

from typing import Any

from aguila.store import PostgresStore
from aguila.store.postgres.database.lanes import Session
from aguila.store.postgres.engine import Engine


def engine_of(store: PostgresStore) -> Engine:
    """Return the engine of an open store: the one private attribute that tests read."""
    return store._engine.get()


async def fetch(store: PostgresStore, sql: str, *args: Any) -> list[Any]:
    """Run a statement on the schema of a store."""
    return await engine_of(store).database.fetch(sql, *args)


class CutCommits:
    """Break the connection of a lane ``count`` times: after the statement was committed, or before it was sent."""

    def __init__(self, monkeypatch: Any, contains: str, *, after: bool, count: int = 1) -> None:
        self.cuts = 0
        self.calls = 0
        real = Session.fetch

        async def fetch(session: Session, sql: str, *args: Any) -> list[Any]:
            if contains not in sql:
                return await real(session, sql, *args)
            self.calls += 1
            if self.cuts >= count:
                return await real(session, sql, *args)
            self.cuts += 1
            if after:
                await real(session, sql, *args)
            await session.close()
            raise ConnectionResetError("cut by a test")

        monkeypatch.setattr(Session, "fetch", fetch)
