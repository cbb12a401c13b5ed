"""Make ``store.sql`` and ``documents.json``. It needs Aguila of commit 7e4615b0, whose schema is 17:

PYTHONPATH=src:tests/support python make.py FOLDER
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from serving import serving
from stores.legacy_store import IMAGE, OPEN, SCOPES, authenticate, documents_of

from aguila import App
from aguila.server.threads.compaction import compact_events
from aguila.store import NewRun, RunEnd, SQLiteStore


async def agent(run: Any) -> None:
    """Show the feature that the last message names, with small outputs."""
    feature = run.user_text.split(" ")[0]
    async with run.text() as text:
        await text.write("I was asked: ")
        await text.write(run.user_text)
    if feature == "state":
        run.state = {**(run.state or {}), "count": len(run.messages), "list": [{"n": 1.5}, None, "ñ"]}
        run.session = {"visits": run.session.get("visits", 0) + 1, "image": IMAGE}
    if feature == "question":
        paid = await run.once("pay", lambda: {"receipt": "r-77"})
        colour = await run.ask("Which colour?", key="colour")
        await run.say(f"{paid['receipt']} in {colour}")
    if feature == "two":
        await run.ask_all(["First?", "Second?"])
    if feature == "approval":
        approval = await run.approve("send_mail", {"to": "ada"})
        await approval.call.result({"sent": approval.approved})
    if feature == "tools":
        async with run.stream_tool_call("weather") as call:
            await call.args('{"city":"Oslo"}')
        await call.result("7 degrees")
        await run.tool_call("offered", {"x": 1})
    if feature == "subagent":
        async with run.subagent("helper") as helper:
            await helper.say("I am helping")
    if feature == "reasoning":
        async with run.reasoning() as thought:
            await thought.write("Hmm")
        await run.activity("plan", {"steps": ["one"]})
        await run.custom("note", {"a": [1, 2]})
    if feature == "fail":
        raise RuntimeError("failed on purpose")


def user(name: str, content: Any) -> dict[str, Any]:
    return {"id": name, "role": "user", "content": content}


def fill(server: Any, scope: str) -> list[str]:
    """Store threads of every kind; return the ids of the files."""
    for feature in ("tools", "subagent", "reasoning", "fail") if scope == "ana" else ("tools",):
        tools = [{"name": "offered", "description": "d" * 300, "parameters": {"type": "object"}}]
        server.events(thread_id=feature, run_id="r", messages=[user("m", f"{feature} please")], tools=tools)
    # Branches from one history, with a file in base64; then an edited history
    part = {"type": "image", "source": {"type": "data", "value": IMAGE, "mimeType": "image/png"}}
    messages = [user("m1", [part, {"type": "text", "text": "an image"}])]
    server.events(thread_id="branches", run_id="r1", messages=messages)
    for name, parent in (("r2", "r1"), ("r3", "r1"), ("r4", "r2")):
        messages = [*messages, user(f"m-{name}", "text " + "x" * 400)]
        server.events(thread_id="branches", run_id=name, messages=messages, parentRunId=parent)
    server.events(thread_id="branches", run_id="r5", messages=[*messages[:-1], user("m-r5", "a cut history")])
    edited = [messages[0], user("m-r2", "edited " + "y" * 300), user("m-r6", "text after an edit")]
    server.events(thread_id="branches", run_id="r6", messages=edited)
    server.client.patch("/threads/branches", json={"title": "Ramas", "metadata": {"k": [1], "colour": "red"}})
    if scope != "ana":
        return upload(server)
    # State and session, grown over runs; the history of the client grows by every answer
    history: list[dict[str, Any]] = []
    for number in range(5):
        history = [*history, user(f"s{number}", f"state {number} " + "z" * 500)]
        context = [{"description": "about", "value": "v" * 400}]
        server.events(thread_id="state", run_id=f"r{number}", messages=history, context=context)
        history = server.get("/threads/state").json()["messages"]
    # Questions: answered, cancelled, open, partly answered
    for thread, answer in (
        ("answered", {"status": "resolved", "payload": "red"}),
        ("gave-up", {"status": "cancelled"}),
    ):
        asking = [user("m", "question")]
        server.events(thread_id=thread, run_id="asks", messages=asking)
        (asked,) = server.get(f"/threads/{thread}").json()["interrupts"]
        server.events(
            thread_id=thread, run_id="answers", messages=asking, resume=[{"interruptId": asked["id"], **answer}]
        )
    server.events(thread_id="asks", run_id="r", messages=[user("m", "question")])
    server.events(thread_id="asks-two", run_id="r", messages=[user("m", "two")])
    server.events(thread_id="approval", run_id="r", messages=[user("m", "approval")])
    (asked,) = server.get("/threads/approval").json()["interrupts"]
    resume = [
        {"interruptId": asked["id"], "status": "resolved", "payload": {"approved": True, "editedArgs": {"to": "bo"}}}
    ]
    server.events(thread_id="approval", run_id="r2", messages=[user("m", "approval")], resume=resume)
    # Removed threads: their ids start above the old numbers
    for thread in ("again", "gone"):
        server.events(thread_id=thread, run_id="old", messages=[user("m", "removed later")])
        assert server.delete(f"/threads/{thread}").status_code == 204
    server.events(thread_id="again", run_id="new", messages=[user("m", "text")])
    server.client.patch("/threads/again", json={"archived": True})
    for number in range(2):
        server.events(
            thread_id="compacted", run_id=f"r{number}", messages=[user(f"m{number}", "tools and " + "long " * 5)]
        )
    return upload(server)


def upload(server: Any) -> list[str]:
    """Upload files for a thread, for none, and for one that never runs."""
    files: list[str] = []
    for query, content in (("?threadId=tools", b"held by a thread"), ("", b"kept"), ("?threadId=never-ran", b"early")):
        headers = {"content-type": "text/plain", "content-disposition": 'attachment; filename="f.txt"'}
        uploaded = server.post(f"/files{query}", content=content, headers=headers)
        assert uploaded.status_code == 201, uploaded.text
        files.append(uploaded.json()["id"])
    return files


async def compact(path: Path) -> None:
    """Compact the runs of one thread."""
    store = SQLiteStore(path)
    await store.open()
    count = 0
    for run in await store.compactable(-1.0, 1000):
        if run.thread_id == "compacted":
            batches = await store.read(run.scope, run.thread_id, run.first - 1, until=run.last)
            await store.compact_run(run, compact_events([event for batch in batches for event in batch.events]))
            count += 1
    assert count == 2, count
    await store.close()


async def leave_open(path: Path) -> None:
    """Begin a run that claims a question, has an effect, and does not end."""
    store = SQLiteStore(path)
    await store.open()
    for run_id, claims in (("asks", []), ("left", ["q"])):
        started = b'{"type":"RUN_STARTED","threadId":"%b","runId":"%b"}' % (OPEN.encode(), run_id.encode())
        body = b'{"threadId":"%b","runId":"%b","messages":[]}' % (OPEN.encode(), run_id.encode())
        lease, _ = await store.begin(
            NewRun("ana", OPEN, run_id, "a dead server", 30.0, body, "f", [started], claims=claims)
        )
        await store.record(lease, run_id, "done", b'"an effect"')
        if not claims:
            finished = b'{"type":"RUN_FINISHED","threadId":"%b","runId":"asks"}' % OPEN.encode()
            await store.append(
                lease,
                [finished],
                end=RunEnd(outcome="interrupt", interrupts=[("q", b'{"id":"q","reason":"input_required"}')]),
            )
    await store.close()


def dump(path: Path) -> str:
    """Return a file as SQL text. A blob of UTF-8 is written as text."""

    def literal(value: Any) -> str:
        if value is None or isinstance(value, int | float):
            return "NULL" if value is None else repr(value)
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return f"X'{value.hex()}'"
        return f"X'{value.hex()}'" if "\0" in text or not value else f"CAST({literal(text)} AS BLOB)"

    lines = ["BEGIN;"]
    with closing(sqlite3.connect(path)) as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        assert version == 17, version
        objects = db.execute(
            "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        tables = [one for one in objects if one[0] == "table"]
        for _, _, sql in tables:
            lines.append(sql + ";")
        for _, name, _ in tables:
            if name in ("peers", "checks"):
                continue
            for row in db.execute(f"SELECT * FROM {name}"):
                lines.append(f"INSERT INTO {name} VALUES ({', '.join(map(literal, row))});")
        for kind, _, sql in objects:
            if kind != "table":
                lines.append(sql + ";")
    return "\n".join([*lines, f"PRAGMA user_version = {version};", "COMMIT;", ""])


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "old.db"
        files: dict[str, list[str]] = {}

        def app() -> App:
            return App(agent, store=SQLiteStore(path), authenticate=authenticate)

        with serving(app()) as server:
            for scope in SCOPES:
                files[scope] = fill(server.peer(**{"x-user": scope}), scope)
        asyncio.run(compact(path))
        with serving(app()) as server:
            peers = {scope: server.peer(**{"x-user": scope}) for scope in SCOPES}
            documents = documents_of(peers, files)
            assert documents == documents_of(peers, files)
        asyncio.run(leave_open(path))
        (folder / "store.sql").write_text(dump(path).replace(IMAGE, "<image>"), encoding="utf-8")
        parts = [f'"files": {json.dumps(files)}']
        for scope, found in documents.items():
            lines = [f"{json.dumps(name)}: {json.dumps(one, ensure_ascii=False)}" for name, one in found.items()]
            parts.append(f'"{scope}": {{\n' + ",\n".join(lines) + "\n}")
        (folder / "documents.json").write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
