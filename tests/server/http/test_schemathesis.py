"""schemathesis makes requests from ``GET /openapi.json``, valid and invalid, and finds nothing wrong with the answers.

With AGUILA_SCHEMATHESIS=long (``make fuzz``) it makes more of them, also for the routes of each agent.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from serving import REPOSITORY, Server, serving

from aguila import App
from aguila.server import Principal

IS_LONG = os.environ.get("AGUILA_SCHEMATHESIS") == "long"
TOKEN = "Bearer ada"

CONFIG = """
seed = 1
continue-on-failure = true
warnings = false

[checks.positive_data_acceptance]
enabled = false # accepts_valid_requests knows which refusals judge the meaning

[[operations]] # older and incomplete shapes are read, too (docs/rules.md)
include-method = "POST"
include-path-regex = "^/$|^/agents/[^/]*$|/connect$|/run$|/suggest$"
checks.negative_data_rejection.enabled = false

[[operations]] # a Last-Event-ID overrides an invalid `after`
include-path-regex = "/events$"
checks.negative_data_rejection.enabled = false

[[operations]] # an export is empty after everything was deleted
include-path-regex = "/data$"
checks.use_after_free.enabled = false

[[operations]] # there is no transcription
include-path = ["/copilotkit", "/copilotkit/transcribe"]
checks.not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "503"]
"""

KNOWN_IDS = """
[parameters]
"path.agent" = "default"
"path.name" = "default"
"path.thread" = "thread"
"path.run" = "run"
"path.file" = "{file}"
"path.scope" = "ada"

[[operations]]
include-method = "DELETE"
exclude-path-regex = "/data$"
parameters = {{ "path.thread" = "gone", "path.file" = "gone" }}

[[operations]]
include-method = "DELETE"
include-path-regex = "/data$"
headers = {{ Authorization = "Bearer bob" }}

[[operations]]
include-path-regex = "/threads/clear$"
headers = {{ Authorization = "Bearer bob" }}
"""


async def agent(run: Any) -> Any:
    yield "Hello"
    if run.thread_id == "thread":
        await run.ask("Really?")


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "aguila")  # there are thousands of notices


def test_nothing_is_found_without_authentication(tmp_path: Path) -> None:
    with serving(
        App(agent, store=":memory:", allow_anonymous=True, copilotkit=True, page=True, heartbeat=0.1)
    ) as server:
        run_schemathesis(server, tmp_path, CONFIG, "--phases=fuzzing")


def test_nothing_is_found_with_authentication_and_a_stored_thread(tmp_path: Path) -> None:
    callers = {TOKEN: Principal(scope="ada", rights={"admin"}), "Bearer bob": Principal(scope="bob")}

    def authenticate(request: Any) -> Principal | None:
        return callers.get(request.headers.get("authorization", ""))

    with serving(
        App(agent, store=":memory:", authenticate=authenticate, copilotkit=True, metrics=True, heartbeat=0.1)
    ) as server:
        server.client.headers["Authorization"] = TOKEN
        server.events()
        file = server.post("/files", content=b"a file", headers={"Content-Type": "text/plain"}).json()["id"]
        for path in ("/admin/runs", "/admin/scopes", "/metrics"):
            assert server.get(path).status_code == 200, f"{path}: only refusals would be checked"
        config = CONFIG + KNOWN_IDS.format(file=file)
        header, phases = f"--header=Authorization:{TOKEN}", "--phases=coverage,stateful"
        run_schemathesis(server, tmp_path, config, header, phases, excluded="^/agents/|^/copilotkit")
        assert server.status_of("thread", "run") == "interrupt"
        assert server.get(f"/files/{file}").content == b"a file"


def run_schemathesis(server: Server, folder: Path, config: str, *arguments: str, excluded: str = "^/agents/") -> None:
    (folder / "schemathesis.toml").write_text(config)
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml", "run"]
    command += [f"{server.url}/openapi.json", "--no-color", *arguments]
    if IS_LONG:
        command += ["--phases=coverage,fuzzing,stateful", "--max-examples=100"]
    else:
        command += ["--max-examples=4", f"--exclude-path-regex={excluded}"]
    checks = REPOSITORY / "tests" / "support" / "schemathesis_checks.py"
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "SCHEMATHESIS_HOOKS": str(checks)}, capture_output=True, text=True
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
