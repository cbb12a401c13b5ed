"""deploy/compose.yaml: valid by the schema of Compose, and what it starts serves. There is no container engine here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from deployed import DEPLOY, HEADERS, says, write_service
from httpx2 import Client
from image import instructions
from ports import free_port
from processes.commands import Command
from ruamel.yaml import YAML

COMPOSE: dict[str, Any] = YAML(typ="safe").load(DEPLOY / "compose.yaml")
APPS = [COMPOSE["services"][name] for name in ("app-1", "app-2")]


def test_the_file_is_valid() -> None:
    program = Path(sys.executable).with_name("check-jsonschema")
    command = [program, "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_processes_are_contained_and_the_proxy_knows_both() -> None:
    for app in APPS:
        assert app["read_only"] is True
        assert app["cap_drop"] == ["ALL"]
        assert "ports" not in app  # X-Forwarded-For is trusted
    caddyfile = (DEPLOY / "Caddyfile").read_text()
    assert "reverse_proxy app-1:8000 app-2:8000 {" in caddyfile
    assert ("EXPOSE", "8000") in instructions(DEPLOY / "Dockerfile")


def test_its_environment_starts_a_process_that_its_health_check_finds_ready(
    tmp_path: Path, postgres: str, postgres_schema: str
) -> None:
    write_service(tmp_path)
    port = free_port()
    given = {
        "AGUILA_PORT": str(port),
        "AGUILA_STORE": f"{postgres}?aguila_schema={postgres_schema}",
        "TOKENS": '{"token-of-ada": "ada"}',
    }
    command = [sys.executable, "-m", "aguila", "serve"]
    app = Command(command, port, tmp_path, "/readyz", {**APPS[0]["environment"], "AGUILA_HOST": "0.0.0.0", **given})
    try:
        with Client(base_url=app.url, headers=HEADERS) as client:
            assert says(client, "one", "thread") == "I hear: one "
        _, _, *check = (word.replace("8000", str(port)) for word in APPS[0]["healthcheck"]["test"])
        assert subprocess.run([sys.executable, *check]).returncode == 0
        assert '"message": "run ended' in app.log
    finally:
        app.stop()
    assert subprocess.run([sys.executable, *check], stderr=subprocess.DEVNULL).returncode != 0
