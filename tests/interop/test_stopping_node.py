"""The official client, in Node, stops a run: what ``abortRun`` does, and the lines of docs/frontends.md that cancel."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from processes.node import run_node
from serving import Held, serving
from waiting import wait_until

from aguila import App

PAGE = Path(__file__).parents[2] / "docs" / "frontends.md"


def test_abort_run_only_disconnects_and_the_lines_of_the_document_cancel() -> None:
    held = Held()
    code = re.search(r"^```ts\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert code is not None

    with serving(App(held, allow_anonymous=True)) as server:
        threads = {"stock": "stock", "cancelling": "cancelling"}
        run_node("stopping.mjs", json.dumps({"url": server.url, "code": code[1], "threads": threads}))

        def status(thread: str) -> Any:
            return [run["status"] for run in server.get(f"/threads/{thread}").json()["runs"]]

        wait_until(lambda: status("cancelling") == ["cancelled"])
        assert status("stock") == ["running"]
        (stock,) = (run["runId"] for run in server.get("/threads/stock").json()["runs"])
        held.gate(stock).open()
        wait_until(lambda: status("stock") == ["success"])
