"""``aguila store`` on PostgreSQL: a deployment moves there and back, and is the same through the API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from demo_store import Demo, aguila, seen
from serving import serving

from aguila import App
from aguila.cli.demo import agent
from aguila.store import PostgresStore


def test_a_deployment_moves_to_postgres_and_back(
    demo: Demo, tmp_path: Path, postgres: str, postgres_schema: str
) -> None:
    path, told, files = demo
    url = f"{postgres}?aguila_schema={postgres_schema}"
    copied = aguila("store", "copy", f"sqlite:///{path}", url)
    assert copied.exit_code == 0, copied.output
    app = App(agent, store=PostgresStore(postgres, schema=postgres_schema, patience=30.0), allow_anonymous=True)
    with serving(app) as server:
        assert comparable(seen(server, files)) == comparable(told)
    again = aguila("store", "copy", f"sqlite:///{path}", url)
    assert again.exit_code == 0, again.output  # equal threads are skipped
    back = tmp_path / "back.db"
    assert aguila("store", "copy", url, back).exit_code == 0
    checked = aguila("store", "check", back)
    assert checked.exit_code == 0, checked.output


def test_migrate_says_what_it_did(postgres: str, postgres_schema: str) -> None:
    url = f"{postgres}?aguila_schema={postgres_schema}"
    assert "schema 0 before, " in aguila("store", "migrate", url).output
    assert " already" in aguila("store", "migrate", url).output
    assert aguila("store", "migrate", "postgresql://nobody@127.0.0.1:1/none").exit_code == 2
    assert aguila("store", "migrate", "postgresql://x/y?aguila_color=red").exit_code == 2


def comparable(told: dict[str, Any]) -> dict[str, Any]:
    """Return what the API tells, without the order of threads, which is that of their last change."""
    threads = sorted(told["/threads"], key=lambda thread: thread["threadId"])
    return {**told, "/threads": threads}
