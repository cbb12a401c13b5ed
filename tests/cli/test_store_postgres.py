"""``aguila store`` on PostgreSQL: ``migrate``, ``check`` and ``stats``. ``test_store.py`` copies to it and back."""

from __future__ import annotations

import json
import shlex
from urllib.parse import urlsplit

import pytest
from serving import serving
from stores.demo_store import Demo, aguila, seen
from stores.postgres_admin import connect
from typer.testing import CliRunner

from aguila import App
from aguila.cli.commands import commands
from aguila.cli.demo import agent
from aguila.store import PostgresStore
from aguila.store.locations import describe_location, make_store
from aguila.store.sql.schema import VERSION


def test_migrate_says_what_it_did(postgres: str, postgres_schema: str) -> None:
    url = f"{postgres}?aguila_schema={postgres_schema}"
    assert "schema 0 before, " in aguila("store", "migrate", url).output
    assert " already" in aguila("store", "migrate", url).output
    assert aguila("store", "migrate", "postgresql://nobody@127.0.0.1:1/none").exit_code == 2
    assert aguila("store", "migrate", "postgresql://x/y?aguila_color=red").exit_code == 2


THREAD = "(SELECT key FROM {schema}.threads WHERE thread_id = '%s')"
BRANCHES, OPEN, STEPS = THREAD % "branches", THREAD % "open", THREAD % "steps"

DAMAGE = {
    f"DELETE FROM {{schema}}.log WHERE place >> 32 = {BRANCHES} AND first = 1": "continues with event",
    f"UPDATE {{schema}}.threads SET last = last + 3 WHERE key = {THREAD % 'text'}": "the log ends with event",
    f"UPDATE {{schema}}.threads SET bytes = bytes + 1 WHERE key = {THREAD % 'image'}": "and its row says",
    "DELETE FROM {schema}.members": "the hashes of its metadata do not match",
    f"UPDATE {{schema}}.log SET events = '[]' WHERE place >> 32 = {STEPS} AND first = 1": "is not a JSON object",
    f"UPDATE {{schema}}.runs SET outcome = 'fine' WHERE thread = {OPEN}": "has the outcome 'fine'",
    f"UPDATE {{schema}}.interrupts SET claimed_by = 'r' WHERE thread = {OPEN}": "is open, but claimed by",
    f"UPDATE {{schema}}.interrupts SET claimed_by = 'x' WHERE thread = {THREAD % 'interrupt'}": "settled by run 'x'",
    f"UPDATE {{schema}}.contents SET body = '{{}}' WHERE thread = {BRANCHES}": "does not match its digest",
    "UPDATE {schema}.file_parts SET data = 'changed'": "does not match its id",
    "UPDATE {schema}.files SET size = 1": "and its row says 1",
    "DELETE FROM {schema}.holds": "belongs to no thread and was not stored without one",
    "UPDATE {schema}.usage SET bytes = bytes + 1 WHERE kind = 0": "bytes; its quotas count",
    "UPDATE {schema}.usage SET threads = 0 WHERE kind = 1": "its quotas count 0 threads",
    "INSERT INTO {schema}.details (thread) VALUES (9999)": "details: 1 rows belong to no thread",
    "UPDATE {schema}.threads SET position = 1": "two threads at position 1",
}


def test_check_and_stats_on_postgres(demo: Demo, postgres: str, postgres_schema: str) -> None:
    path, told, files = demo
    url = f"{postgres}?aguila_schema={postgres_schema}"
    for command in ("check", "stats"):
        missing = aguila("store", command, url)
        assert (missing.exit_code, "there is no store" in missing.stderr) == (2, True), missing.output
    assert aguila("threads", "list", "--store", url).exit_code == 2
    assert aguila("store", "copy", path, url).exit_code == 0
    one, other = (aguila("threads", "export", "--store", place) for place in (path, url))
    assert (one.stdout_bytes, other.exit_code) == (other.stdout_bytes, 0)
    app = App(agent, store=PostgresStore(postgres, schema=postgres_schema, patience=30.0), allow_anonymous=True)
    with serving(app) as server:
        seen(server, files)  # stores projections
        server.events(thread_id="new", run_id="r", messages=[{"id": "m", "role": "user", "content": "Show me text"}])
        assert server.client.delete("/threads/new").status_code == 204
    done = aguila("store", "check", url)
    assert (done.exit_code, done.stdout) == (0, "")
    one, other = (json.loads(aguila("store", "stats", place, "--json").stdout) for place in (path, url))
    names = ("threads", "runs", "events", "contents", "content_bytes", "open_interrupts", "files", "file_bytes")
    assert {name: one[name] for name in names} == {name: other[name] for name in names}
    assert other["threads"] == len(told["/threads"])
    execute(postgres, [statement.replace("{schema}", postgres_schema) for statement in DAMAGE])
    done = aguila("store", "check", url)
    assert done.exit_code == 1
    assert [message for message in DAMAGE.values() if message not in done.stdout] == []
    done = aguila("store", "check", url, "--recount")
    assert "quotas" not in done.stdout
    refused = aguila("store", "compact", url)
    assert (refused.exit_code, "VACUUM FULL" in refused.stderr) == (2, True)


def test_a_command_says_what_a_schema_of_another_version_needs(postgres: str, postgres_schema: str) -> None:
    url = f"{postgres}?aguila_schema={postgres_schema}"
    tried = (("store", "check", url), ("store", "stats", url), ("threads", "list", "--store", url))

    def says(words: str) -> list[bool]:
        return [words in (done := aguila(*command)).stderr and done.exit_code == 2 for command in tried]

    command = f"aguila store migrate {shlex.quote(describe_location(url))}"
    assert says(f"there is no store in schema '{postgres_schema}' of this database; name another") == [True] * 3
    assert says(f"or create it with: {command}\n") == [True] * 3
    assert aguila("store", "migrate", url).exit_code == 0
    execute(postgres, [f"UPDATE {postgres_schema}.schema_info SET version = version + 1"])
    assert says(f"knows version {VERSION}: use a newer Aguila\n") == [True] * 3


def test_a_role_without_a_permission_is_told_which(
    demo: Demo, postgres: str, postgres_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGUILA_SERVE", "")  # serve sets it for its workers
    role, schema = f"{postgres_schema}_role", postgres_schema
    owner = f"{postgres}?aguila_schema={schema}"
    parts = urlsplit(postgres)
    reader = (
        parts._replace(netloc=f"{role}:secret@{parts.netloc.rpartition('@')[2]}").geturl() + f"?aguila_schema={schema}"
    )
    exported = aguila("threads", "export", "text", "--store", demo[0])
    done = CliRunner().invoke(commands, ["threads", "import", "-", "--store", owner], input=exported.stdout_bytes)
    assert done.exit_code == 0, done.output
    grants = [f"CREATE ROLE {role} LOGIN PASSWORD 'secret'", f"GRANT USAGE ON SCHEMA {schema} TO {role}"]
    grants += [f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}"]
    execute(postgres, grants)
    try:
        for command in (
            ("threads", "list", "--store", reader),
            ("threads", "show", "text", "--store", reader),
            ("threads", "export", "--store", reader),
            ("store", "stats", reader),
            ("store", "check", reader),
        ):
            assert aguila(*command).exit_code == 0, command
        for command, status in {
            ("threads", "delete", "text", "--yes", "--store", reader): 2,
            ("store", "check", reader, "--recount"): 2,
            ("serve", "--port", "0", "--store", reader): 1,
        }.items():
            done = aguila(*command)
            *warnings, line = done.output.splitlines()
            assert all("password" in warning for warning in warnings), done.output  # in argv, which serve warns of
            assert done.exit_code == status
            assert line.startswith(
                f"aguila {' '.join(command[: 1 if status == 1 else 2])}: PostgreSQL: permission denied for "
            )
            assert "; grant the role of the store SELECT, INSERT" in line
        # The permissions of the document are enough.
        grants = [f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}"]
        grants += [f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}"]
        execute(postgres, grants)
        with serving(
            App(agent, store=make_store(reader, busy_seconds=30.0, migrate=False), allow_anonymous=True)
        ) as server:
            messages = [{"id": "m", "role": "user", "content": "Show me text"}]
            assert server.events(thread_id="new", run_id="r", messages=messages)[-1]["type"] == "RUN_FINISHED"
        assert aguila("threads", "delete", "text", "new", "--yes", "--store", reader).exit_code == 0
        assert aguila("store", "check", reader, "--recount").exit_code == 0
    finally:
        execute(postgres, [f"DROP OWNED BY {role}", f"DROP ROLE {role}"])


def test_a_store_is_copied_to_another_schema_of_its_database(demo: Demo, postgres: str, postgres_schema: str) -> None:
    one, other = (f"{postgres}?aguila_schema={postgres_schema}{name}" for name in ("", "_copy"))
    exported = aguila("threads", "export", "text", "--store", demo[0])
    done = CliRunner().invoke(commands, ["threads", "import", "-", "--store", one], input=exported.stdout_bytes)
    assert done.exit_code == 0, done.output
    done = aguila("store", "copy", one, other)
    assert (done.exit_code, "1 added" in done.stderr) == (0, True), done.output
    refused = aguila("store", "copy", one, one)
    assert (refused.exit_code, "name another one to copy to" in refused.stderr) == (2, True), refused.output


def execute(dsn: str, statements: list[str]) -> None:
    """Change rows by hand."""
    with connect(dsn) as db:
        for statement in statements:
            assert db.execute(statement).rowcount != 0, statement  # type: ignore[arg-type]
