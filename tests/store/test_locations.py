"""Which store a location names."""

from pathlib import Path

import pytest

from aguila.store import PostgresStore, SQLiteStore
from aguila.store.locations import describe_location, make_store


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("threads.db", "threads.db"),
        (Path("threads.db"), "threads.db"),
        ("sqlite:///threads.db", "threads.db"),
        ("sqlite:////var/lib/threads.db", "/var/lib/threads.db"),
        ("sqlite:///threads.db?durability=power", "threads.db"),
        ("C://threads.db", "C:/threads.db"),
    ],
)
def test_a_path_or_an_sqlite_url_names_a_file(location: str | Path, path: str) -> None:
    store = make_store(location)
    assert isinstance(store, SQLiteStore)
    assert store.path == Path(path)
    assert store.location == str(Path(path).resolve())


@pytest.mark.parametrize(
    "location", ["", ":memory:", "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///?durability=power"]
)
def test_a_location_without_a_file_is_refused(location: str) -> None:
    with pytest.raises(ValueError, match="names no file"):
        make_store(location)


@pytest.mark.parametrize(
    ("options", "said"),
    [("durable=power", "unknown option durable of an SQLite store"), ("durability=disk", 'use "process" or "power"')],
)
def test_an_invalid_option_of_an_sqlite_url_is_refused(options: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_store(f"sqlite:///threads.db?{options}")


def test_an_option_after_a_path_is_refused() -> None:
    with pytest.raises(ValueError, match=r"options need a URL: sqlite:///threads\.db"):
        make_store("threads.db?durability=power")


def test_an_unknown_kind_of_store_is_refused_without_its_password() -> None:
    with pytest.raises(ValueError, match="no store for") as refused:
        make_store("mongodb://me:se:cr@et@host/db")
    assert "mongodb://me:***@host/db" in str(refused.value)


def test_a_location_without_a_password_is_described_as_it_is() -> None:
    for location in ("threads.db", "sqlite:///a@b:c.db", "postgresql://host/db", "postgresql://me@host/db"):
        assert describe_location(location) == location


@pytest.mark.parametrize(
    ("location", "described"),
    [
        ("postgresql:///app?host=/run&aguila_pool=2", "postgresql:///app?host=%2Frun"),
        ("postgresql://db/app?aguila_schema=aguila", "postgresql://db/app"),
        ("postgresql://db/app?aguila_schema=x", "postgresql://db/app?aguila_schema=x"),
        ("postgresql:///app?host=h&aguila_schema=x", "postgresql:///app?host=h&aguila_schema=x"),
    ],
)
def test_options_of_the_store_are_taken_from_its_url(location: str, described: str) -> None:
    store = make_store(location)
    assert isinstance(store, PostgresStore)
    assert store.location == described


def test_a_pool_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="aguila_pool is 'x'; give a number of connections"):
        make_store("postgresql://db/app?aguila_pool=x")
