"""The store of ``aguila serve`` that the environment names, so that no password stands in the command line."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from pathlib import Path
from urllib.parse import urlsplit

from aguila.store.locations import MEMORY, sqlite_path

DEFAULT_STORE = "aguila.db"
LOCATION = "AGUILA_STORE"
FILE = "AGUILA_STORE_FILE"


def store_from_environment(environment: MutableMapping[str, str]) -> str | None:
    """Return the store that ``AGUILA_STORE``, or the file that ``AGUILA_STORE_FILE`` names, contains; None if neither.

    ``AGUILA_STORE`` is removed, so that no subprocess of an agent inherits it. Raises ``ValueError``.
    """
    location = environment.pop(LOCATION, None) or None
    file = environment.get(FILE) or None
    if location is not None and file is not None:
        raise ValueError(f"{LOCATION} and {FILE} are both set; set one of them")
    if file is not None:
        try:
            location = Path(file).read_text().strip()
        except OSError as error:
            raise ValueError(f"cannot read {file}, the file of {FILE}: {error.strerror}") from None
        if not location:
            raise ValueError(f"{file}, the file of {FILE}, is empty; it has to contain the location of a store")
    return None if location is None else absolute_location(location)


def names_store(environment: Mapping[str, str]) -> bool:
    """Return whether the environment names a store."""
    return bool(environment.get(LOCATION) or environment.get(FILE))


def absolute_location(location: str) -> str:
    """Return a location that is the same in every directory. Raises ``ValueError``."""
    path = None if location == MEMORY else sqlite_path(location)
    if path is None:
        return location
    _, mark, options = location.partition("?") if location.startswith("sqlite:///") else ("", "", "")
    return f"sqlite:///{path.resolve()}?{options}" if mark else str(path.resolve())


def has_password(location: str) -> bool:
    """Return whether a location contains a password."""
    return "://" in location and (urlsplit(location).password is not None or "password=" in urlsplit(location).query)
