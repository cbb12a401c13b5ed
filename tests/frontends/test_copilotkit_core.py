"""CopilotKit's own client, without a browser, straight to an app: REST and single endpoint."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from recipes import RECIPES
from serving import serving

from aguila import App
from aguila.store import SQLiteStore

PACKAGES = RECIPES / "copilotkit"
SCRIPT = Path(__file__).with_name("copilotkit_core.mjs")


async def agent(run: Any) -> None:
    if run.forwarded_props.get("toolChoice"):
        await run.tool_call("copilotkitSuggest", {"suggestions": [{"title": "One", "message": "First"}]})
        return
    run.state["seen"] = len(run.messages)
    await run.say(f"echo {run.messages[-1].content}")
    if run.messages[-1].content == "slow":
        await asyncio.Event().wait()


@pytest.mark.skipif(
    not (PACKAGES / "node_modules/@copilotkit/core").exists(), reason="only `make frontends` installs CopilotKit"
)
@pytest.mark.parametrize(("transport", "resolved"), [("rest", "rest"), ("auto", "rest"), ("single", "single")])
def test_copilotkits_client_needs_no_node_runtime(tmp_path: Path, transport: str, resolved: str) -> None:
    app = App(agent, store=SQLiteStore(tmp_path / "threads.db"), copilotkit=True, allow_anonymous=True)
    with serving(app) as server:
        command = ["node", str(SCRIPT), str(PACKAGES), f"{server.url}/copilotkit", transport]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        said = [["user", "Hello"], ["assistant", "echo Hello"]]
        assert json.loads(done.stdout) == {
            "errors": [],
            "transport": resolved,
            "agents": ["default"],
            "before": 0,
            "messages": said,
            "state": {"seen": 1},
            "joined": said,
            "isRunning": False,
            "suggestions": ["One"],
        }
        assert server.get("/threads").json()["threads"] == []  # the one is deleted, suggestions leave none
