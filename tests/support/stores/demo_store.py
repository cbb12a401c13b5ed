"""A SQLite store that holds every feature of the demo, and the responses of the API about it."""

from __future__ import annotations

import base64
import random
from pathlib import Path
from typing import Any

from serving import Server, serving
from typer.testing import CliRunner

from aguila import App
from aguila.cli.commands import commands
from aguila.cli.demo import FEATURES, agent
from aguila.store import SQLiteStore

Demo = tuple[Path, dict[str, Any], list[str]]
"""The store, the responses of the API about it, and the ids of its files."""


def served(path: Path) -> Any:
    return serving(App(agent, store=SQLiteStore(path), allow_anonymous=True))


def user(name: str, content: Any) -> dict[str, Any]:
    return {"id": name, "role": "user", "content": content}


def show_features(server: Server) -> list[str]:
    """Run every feature of the demo, branches, answered and open interrupts and files; return the ids of the files."""
    for feature in FEATURES:
        if feature != "slow":
            server.events(thread_id=feature, run_id="r", messages=[user("m", f"Show me {feature}")])
    found = server.get("/threads/interrupt").json()["interrupts"]
    answer = [{"interruptId": found[0]["id"], "status": "resolved", "payload": {"colour": "red"}}]
    messages = [user("m", "Show me interrupt")]
    server.events(thread_id="interrupt", run_id="r2", messages=messages, resume=answer)
    found = server.get("/threads/approval").json()["interrupts"]
    answer = [{"interruptId": found[0]["id"], "status": "resolved", "payload": {"approved": True}}]
    server.events(thread_id="approval", run_id="r2", messages=[user("m", "Show me approval")], resume=answer)
    server.events(thread_id="open", run_id="r", messages=[user("m", "Show me interrupt")])
    image = base64.b64encode(random.Random(1).randbytes(60_000)).decode()
    part = {"type": "image", "source": {"type": "data", "value": image, "mimeType": "image/png"}}
    messages = [user("m1", [part, {"type": "text", "text": "an image"}])]
    server.events(thread_id="branches", run_id="r1", messages=messages)
    for name, parent in (("r2", "r1"), ("r3", "r1"), ("r4", "r2")):
        messages = [*messages, user(f"m-{name}", "Show me text " + "x" * 3000)]
        server.events(thread_id="branches", run_id=name, messages=messages, parentRunId=parent)
    server.events(thread_id="branches", run_id="r5", messages=[*messages[:-1], user("m-r5", "a cut history")])
    assert server.get("/threads/branches/runs/r5").json()["parentRunId"] is not None
    assert server.client.patch("/threads/branches", json={"title": "Ramas", "metadata": {"k": [1]}}).status_code == 200
    assert server.client.patch("/threads/text", json={"archived": True}).status_code == 200
    uploaded = server.post("/files?threadId=image", content=b"report", headers={"content-type": "text/plain"})
    return [uploaded.json()["id"]]


def seen(server: Server, files: list[str]) -> dict[str, Any]:
    """Return the responses of the API."""
    threads = server.get("/threads?limit=100").json()
    found: dict[str, Any] = {"/threads": threads["threads"]}
    for summary in threads["threads"]:
        path = f"/threads/{summary['threadId']}"
        found[path] = server.get(path).json()
        for run in found[path]["runs"]:
            run_path = f"{path}/runs/{run['runId']}"
            found[f"{path}?run={run['runId']}"] = server.get(f"{path}?run={run['runId']}").json()
            found[run_path] = server.get(run_path).json()
            found[f"{run_path}/input"] = server.get(f"{run_path}/input").json()
            with server.stream("GET", f"{run_path}/events") as stream:
                found[f"{run_path}/events"] = stream.frames()
        found[f"{path}/events"] = server.get(f"{path}/events?times=true&protocolVersion=1.1").text
        found[f"{path} joined"] = server.events(
            path="/connect", thread_id=summary["threadId"], run_id="joins", messages=[]
        )
    for query in ("archived=true", "metadataKey=k"):
        found[f"/threads?{query}"] = [one["threadId"] for one in server.get(f"/threads?{query}").json()["threads"]]
    for file in files:
        found[file] = server.get(f"/files/{file}").content
    return found


def aguila(*arguments: object) -> Any:
    return CliRunner().invoke(commands, [str(argument) for argument in arguments])
