"""The schema of every SQL store, as each database reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

VERSION: Final = 100
"""The version of ``schema.sql``. Older files have the version of their last migration, at most 16."""

SQLITE_TYPES: Final[Mapping[str, str]] = {
    "KEY": "INTEGER PRIMARY KEY",
    "INT": "INTEGER",
    "REAL": "REAL",
    "TEXT": "TEXT",
    "BLOB": "BLOB",
    "FLAG": "INTEGER",
}


def read_schema(types: Mapping[str, str]) -> list[str]:
    """Return the statements that create the schema, with these types and without comments."""
    text = re.sub("--.*", "", files("aguila.store.sql").joinpath("schema.sql").read_text())
    words = re.compile(rf"\b({'|'.join(types)})\b")
    found: list[str] = []
    for statement in text.split(";"):
        if statement.strip():
            # "PRIMARY KEY" is not the type KEY.
            parts = re.split(r"(PRIMARY KEY)", statement.strip())
            found.append(
                "".join(one if one == "PRIMARY KEY" else words.sub(lambda word: types[word[0]], one) for one in parts)
            )
    return found


def sqlite_schema() -> list[str]:
    """Return the statements that create the schema in SQLite."""
    return [statement.replace("aguila.", "") for statement in read_schema(SQLITE_TYPES)]
