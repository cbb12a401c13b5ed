"""Make a store from its location: a path, ``sqlite:///path`` or ``postgresql://...``. The server and the CLI use it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from aguila.store.contract import Store
from aguila.store.sqlite.store import SQLiteStore

MEMORY: Final = ":memory:"
"""The location of a store in memory, for a server: no other process could open it."""
_SQLITE: Final = "sqlite:///"
OPTION_PREFIX: Final = "aguila_"
OPTIONS: Final = ("schema", "wakeups", "pool")
"""The options of ``PostgresStore`` that a URL may have, each with the prefix."""
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")  # two letters or more, so C:// is a path
_PASSWORD: Final = re.compile(r"(://[^:/?#@]*:)[^/?#]*(?=@)|([?&](?:ssl)?password=)[^&#]*")


def make_store(
    location: str | os.PathLike[str],
    *,
    busy_seconds: float = 5.0,
    migrate: bool = True,
) -> Store:
    """Make the store at a location. Raises ``ValueError`` if no store has such a location.

    As in SQLAlchemy, the path follows ``sqlite:///``: ``sqlite:///threads.db`` is relative, ``sqlite:////var/threads.db``
    is absolute. Its option is a parameter: ``sqlite:///threads.db?durability=power`` syncs each commit. Options of
    ``PostgresStore`` are parameters of its URL: ``?aguila_schema=...&aguila_wakeups=poll``.
    ``busy_seconds`` is how long a call may wait for a store that is locked or away.
    ``migrate`` is for PostgreSQL: whether opening the store creates or upgrades its schema.
    """
    path = sqlite_path(location)
    text = os.fspath(location)
    if path is not None:
        return SQLiteStore(path, busy_seconds=busy_seconds, **_sqlite_options(text))
    if text.startswith(("postgresql://", "postgres://")):
        from aguila.store.postgres.store import PostgresStore

        dsn, options = _take_options(text)
        return PostgresStore(dsn, patience=busy_seconds, migrate=migrate, **options)
    raise ValueError(
        f"no store for {describe_location(location)!r}; use a path, sqlite:///path or postgresql://user@host/database"
    )


def _take_options(dsn: str) -> tuple[str, dict[str, Any]]:
    """Return a DSN without the parameters that are options of the store. Raises ``ValueError``."""
    base, _, text = dsn.partition("?")
    query = parse_qsl(text, keep_blank_values=True)
    given = {name.removeprefix(OPTION_PREFIX): value for name, value in query if name.startswith(OPTION_PREFIX)}
    if unknown := given.keys() - set(OPTIONS):
        raise ValueError(f"unknown option {OPTION_PREFIX}{min(unknown)} of a store; use schema, wakeups or pool")
    options: dict[str, Any] = dict(given)
    if "pool" in given:
        if not given["pool"].isdecimal():
            raise ValueError(f"{OPTION_PREFIX}pool is {given['pool']!r}; give a number of connections")
        options["pool"] = int(given["pool"])
    rest = urlencode([(name, value) for name, value in query if not name.startswith(OPTION_PREFIX)])
    return f"{base}?{rest}" if rest else base, options


def _sqlite_options(location: str) -> dict[str, Any]:
    """Return the parameters of an SQLite URL. Raises ``ValueError``."""
    query = location.partition("?")[2] if location.startswith(_SQLITE) else ""
    options = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := options.keys() - {"durability"}:
        raise ValueError(f"unknown option {min(unknown)} of an SQLite store; use durability")
    return options


def sqlite_path(location: str | os.PathLike[str]) -> Path | None:
    """Return the path of an SQLite file; None if the location is of another kind. Raises ``ValueError``."""
    text = os.fspath(location)
    is_url = text.startswith(_SQLITE)
    name = text.removeprefix(_SQLITE).partition("?")[0] if is_url else text
    if name in ("", MEMORY, "sqlite://"):
        raise ValueError(f"{text!r} names no file; give the path of an SQLite file")
    if is_url:
        return Path(name)
    if "?durability=" in text:
        raise ValueError(f"{text!r} is a path; options need a URL: {_SQLITE}{text}")
    return None if isinstance(location, str) and _SCHEME.match(text) is not None else Path(text)


def describe_location(location: str | os.PathLike[str]) -> str:
    """Return a location for messages, without its password."""
    return _PASSWORD.sub(r"\1\2***", os.fspath(location))


def describe_postgres(dsn: str, schema: str) -> str:
    """Return the location of a schema for messages, as ``--store`` accepts it, without its password."""
    shown = describe_location(dsn)
    return shown if schema == "aguila" else f"{shown}{'&' if '?' in shown else '?'}aguila_schema={schema}"
