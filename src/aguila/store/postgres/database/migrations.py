"""Create and upgrade the schema with numbered SQL scripts.

``schema/NNNN_name.sql`` turns schema NNNN - 1 into NNNN. All missing scripts are applied in one transaction, under an
advisory lock: of several processes that start together, one migrates and the others wait.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from shlex import quote
from typing import Any, Final

from aguila.errors import StoreUnavailable

OLDEST: Final = 3
"""The oldest schema version whose Aguila can use the current schema. A script that breaks older ones raises it."""

# Not to_regclass(): it may not see a table that another session has just created.
_EXISTS = """
SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = 'migrations'
"""
_VERSION = "SELECT max(version), max(oldest) FROM aguila.migrations"


@cache
def scripts() -> dict[int, str]:
    """Return the scripts by their numbers."""
    folder = resources.files("aguila.store.postgres.database").joinpath("schema")
    found = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir() if file.name.endswith(".sql")}
    return {int(name[:4]): text for name, text in sorted(found.items())}


def newest() -> int:
    """Return the schema version that this Aguila writes."""
    return max(scripts())


def in_schema(sql: str, schema: str) -> str:
    """Return SQL that was written for the schema ``aguila``, for another one."""
    return sql if schema == "aguila" else sql.replace("aguila.", f"{schema}.")


def check_schema_name(schema: str) -> str:
    """Return the name of a schema. Raises ``ValueError`` unless it is a plain identifier, which needs no quotes."""
    if not re.fullmatch("[a-z_][a-z0-9_]{0,40}", schema) or schema.startswith("pg_"):
        raise ValueError(f"schema is {schema!r}; use up to 41 lower-case letters, digits and underscores")
    return schema


async def read_version(db: Any, schema: str) -> tuple[int, int]:
    """Return the version of the schema, and the oldest version of Aguila that can use it; (0, 0) if there is none."""
    if await db.fetchval(_EXISTS, schema) is None:
        return 0, 0
    row = await db.fetchrow(in_schema(_VERSION, schema))
    return row[0] or 0, row[1] or 0


def check_version(version: int, oldest: int, schema: str) -> None:
    """Raise ``StoreUnavailable`` if the schema is too new for this Aguila."""
    if oldest > newest():
        raise StoreUnavailable(
            f"schema {schema!r} has version {version}, which needs an Aguila that supports version {oldest}; this one "
            f"supports version {newest()}: use a newer Aguila"
        )


def check_usable(version: int, oldest: int, schema: str, location: str) -> None:
    """Raise ``StoreUnavailable`` unless this Aguila can use the schema as it is."""
    check_version(version, oldest, schema)
    command = f"aguila store migrate {quote(location)}"
    if version == 0:
        raise StoreUnavailable(
            f"there is no store in schema {schema!r} of this database; name another database, or another schema with "
            f"aguila_schema=..., or create it with: {command}"
        )
    if version < newest():
        raise StoreUnavailable(
            f"schema {schema!r} has version {version}, and this Aguila needs version {newest()}; run: {command}"
        )


def check_known(version: int, oldest: int, schema: str, location: str) -> None:
    """Raise ``StoreUnavailable`` unless this Aguila knows every table of the schema, as one that checks it must."""
    check_usable(version, oldest, schema, location)
    if version > newest():
        raise StoreUnavailable(
            f"schema {schema!r} has version {version}, and this Aguila knows version {newest()}: use a newer Aguila"
        )


async def migrate(db: Any, schema: str) -> tuple[int, int]:
    """Bring the schema up to date; return its version before and after.

    Raises ``StoreUnavailable`` if it is too new for this Aguila.
    """
    version, oldest = await read_version(db, schema)
    target = newest()
    check_version(version, oldest, schema)
    if version >= target:
        return version, version
    async with db.transaction():
        await db.execute("SELECT pg_advisory_xact_lock(hashtext($1))", f"{schema}.migrations")
        before, oldest = await read_version(db, schema)  # another process may have migrated meanwhile
        check_version(before, oldest, schema)
        if before == 0:
            await db.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            await db.execute(
                f"CREATE TABLE {schema}.migrations "
                "(version integer PRIMARY KEY, oldest integer NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
            )
        for number, script in scripts().items():
            if before < number:
                await db.execute(in_schema(script, schema))
                await db.execute(
                    f"INSERT INTO {schema}.migrations (version, oldest) VALUES ($1, $2)",  # noqa: S608 - an identifier
                    number,
                    min(OLDEST, number),
                )
    return before, max(before, target)
