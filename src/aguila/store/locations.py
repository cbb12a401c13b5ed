"""Make a store from its location: a path, ``sqlite:///path`` or ``postgresql://...``. The server and the CLI use it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from aguila.store.base import Store
from aguila.store.sqlite.store import SQLiteStore

_SQLITE: Final = "sqlite:///"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")  # of two letters or more, so C:// is a path
_PASSWORD: Final = re.compile(r"(://[^:/?#@]*:)[^/?#]*(?=@)")


def make_store(location: str | os.PathLike[str], *, busy_seconds: float = 5.0) -> Store:
    """Make the store at a location. Raises ``ValueError`` if no store has such a location.

    As in SQLAlchemy, the path follows ``sqlite:///``: ``sqlite:///threads.db`` is relative, ``sqlite:////var/threads.db``
    is absolute. ``busy_seconds`` is how long a call may wait for a store that is locked or away.
    """
    path = sqlite_path(location)
    if path is not None:
        return SQLiteStore(path, busy_seconds=busy_seconds)
    text = os.fspath(location)
    if text.startswith(("postgresql://", "postgres://")):
        from aguila.store.postgres.store import PostgresStore

        return PostgresStore(text, patience=busy_seconds)
    raise ValueError(
        f"no store for {describe_location(location)!r}; use a path, sqlite:///path or postgresql://user@host/database"
    )


def sqlite_path(location: str | os.PathLike[str]) -> Path | None:
    """Return the path of an SQLite file; None if the location is of another kind. Raises ``ValueError``."""
    text = os.fspath(location)
    if text in ("", ":memory:", "sqlite://", _SQLITE, _SQLITE + ":memory:"):
        raise ValueError(f"{text!r} names no file; give the path of an SQLite file")
    if text.startswith(_SQLITE):
        return Path(text.removeprefix(_SQLITE))
    return None if isinstance(location, str) and _SCHEME.match(text) is not None else Path(text)


def describe_location(location: str | os.PathLike[str]) -> str:
    """Return a location for messages, without its password."""
    return _PASSWORD.sub(r"\1***", os.fspath(location))
