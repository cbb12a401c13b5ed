"""``aguila doctor`` without a URL: this machine and the store."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
from math import inf
from pathlib import Path
from typing import Any

import pytest
from ports import free_port
from serving import serving
from typer.testing import CliRunner

from aguila import App
from aguila.cli.commands import commands
from aguila.cli.doctor import stores
from aguila.cli.doctor.checks import Check
from aguila.cli.doctor.stores import FAR_BEHIND, check_settings, check_space, check_writes
from aguila.store import SQLiteStore
from aguila.store.sql.schema import VERSION


def doctor(*words: object) -> tuple[int, dict[str, dict[str, Any]]]:
    """Run the command; return its exit status, and the checks by name."""
    port = [] if "--port" in words else ["--port", str(free_port())]
    done = CliRunner().invoke(commands, ["doctor", "--json", *port, *map(str, words)])
    checks = [json.loads(line) for line in done.stdout.splitlines()]
    return done.exit_code, {check["name"]: check for check in checks}


async def agent(run: Any) -> Any:
    yield "hello"


@pytest.fixture(autouse=True)
def any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a slow disk, or a full one, be no finding."""
    monkeypatch.setattr(stores, "SLOW_WRITE", inf)
    monkeypatch.setattr(stores, "LOW_SPACE", 0)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    async def create() -> Path:
        async with SQLiteStore(tmp_path / "threads.db") as store:
            return store.path

    return asyncio.run(create())


def test_all_is_well(store: Path) -> None:
    done = CliRunner().invoke(commands, ["doctor", "--store", str(store), "--port", str(free_port())])
    assert (done.exit_code, done.stdout.endswith("\nall well\n")) == (0, True), done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("ok: versions: aguila ")
    assert any(line.startswith("ok: lag: a write takes ") for line in lines)
    assert f"ok: store: {store}, schema {VERSION}" in lines


def test_durability_is_that_of_the_location(store: Path) -> None:
    assert "not the loss of power" in doctor("--store", store)[1]["durability"]["text"]
    status, checks = doctor("--store", f"sqlite:///{store}?durability=power")
    assert (status, checks["durability"]["text"]) == (0, "events survive the loss of power")


def test_a_store_that_does_not_exist_is_not_created(tmp_path: Path) -> None:
    status, checks = doctor("--store", tmp_path / "new.db")
    assert (status, "aguila serve creates it" in checks["store"]["text"]) == (0, True)
    assert list(tmp_path.iterdir()) == []
    assert doctor("--store", ":memory:")[0] == 0


def test_a_store_that_cannot_be_used_is_a_finding_with_a_fix(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "new.db"
    status, checks = doctor("--store", missing)
    assert (status, f"mkdir -p {missing.parent}" in checks["store"]["fix"]) == (1, True)

    (tmp_path / "text.db").write_text("no database")
    assert "not a database" in doctor("--store", tmp_path / "text.db")[1]["store"]["text"]

    old = sqlite3.connect(tmp_path / "old.db")
    old.execute("PRAGMA user_version = 17")
    old.close()
    status, checks = doctor("--store", tmp_path / "old.db")
    assert (status, f"aguila store copy {tmp_path}/old.db NEW" in checks["store"]["fix"]) == (1, True)

    assert "postgresql://user@host/database" in doctor("--store", "mysql://host/x")[1]["store"]["fix"]


def test_a_store_on_postgres(postgres: str, postgres_schema: str) -> None:
    url = f"{postgres}?aguila_schema={postgres_schema}"
    assert "aguila store migrate" in doctor("--store", url)[1]["store"]["fix"]
    CliRunner().invoke(commands, ["store", "migrate", url])
    _, checks = doctor("--store", url)
    assert checks["store"]["ok"]
    assert checks["lag"]["ok"]
    assert "synchronous_commit " in checks["durability"]["text"]  # that of a server for tests may be off


def test_a_port_in_use_is_a_finding_unless_a_server_of_ours_has_it(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        status, checks = doctor("--store", ":memory:", "--port", other.getsockname()[1])
    assert (status, "--port 0" in checks["port"]["fix"]) == (1, True)
    with serving(App(agent, store=":memory:")) as server:
        status, checks = doctor("--store", ":memory:", "--port", server.url.rpartition(":")[2])
    assert (status, "a server answers" in checks["port"]["text"]) == (0, True)


def is_well(check: Check) -> bool:
    return check.fix is None


def test_what_counts_as_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "LOW_SPACE", 1000)
    assert is_well(check_space(tmp_path, 1000))
    assert not is_well(check_space(tmp_path, 999))
    monkeypatch.setattr(stores, "SLOW_WRITE", 0.25)
    assert is_well(check_writes([0.001, 0.001, 9.0]))  # one slow write is none
    assert not is_well(check_writes([0.3, 0.3, 0.3]))
    assert [is_well(found) for found in check_settings("17.2", "on", "on", 0, 0.0)] == [True]
    assert [is_well(found) for found in check_settings("17.2", "on", "remote_apply", 2, FAR_BEHIND)] == [True, True]
    assert [is_well(found) for found in check_settings("17.2", "on", "off", 1, FAR_BEHIND * 2)] == [False, False]
    assert [is_well(found) for found in check_settings("17.2", "off", "on", 0, 0.0)] == [False]
