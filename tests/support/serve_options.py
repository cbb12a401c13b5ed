"""The options of ``aguila serve`` that set one of ``App``, with values, and what of them reaches the App."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pydantic.fields  # noqa: F401 - typer imports it on first use, which fails while sys.modules is replaced
import pytest
import uvicorn
from typer.testing import CliRunner

from aguila.cli import serve
from aguila.cli.commands import commands
from aguila.server import App
from aguila.store import Retention

AGENT = """
async def agent(run):
    yield "Hello from here"

async def other(run):
    return "Another one"

nothing = 5
"""

GIVEN: dict[str, tuple[str, Any]] = {
    "store": ("x.db", None),
    "history": ("server", "server"),
    "busy": ("queue", "queue"),
    "drain": ("4.5", 4.5),
    "keep_seconds": ("1005", Retention(max_age=1005.0)),
    "allowed_host": ("a.example", ["a.example"]),
    "cors_origin": ("http://a", ["http://a"]),
    "header": ("x-trace", ["x-trace"]),
    "copilotkit": ("", True),
    "copilotkit_path": ("/kit", "/kit"),
    "langgraph_interrupts": ("", True),
    "page": ("", True),
    "metrics": ("", True),
    "trace_url": ("https://jaeger.example/trace/{trace_id}", "https://jaeger.example/trace/{trace_id}"),
    "debug": ("", True),
}
"""A value for each option that an App has itself, as it is written and as it arrives."""


def written(option: str) -> list[str]:
    value = GIVEN[option][0]
    return ["--" + option.replace("_", "-"), *([value] if value else [])]


def app_options(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *words: str,
    target: str = "mine:agent",
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the options that ``aguila serve`` passes to the App."""
    built: list[dict[str, Any]] = []

    class Built(App):
        def __init__(self, agent: Any, **options: Any) -> None:
            built.append(options)
            super().__init__(agent, **options)

    def run(server: uvicorn.Server, sockets: list[socket.socket]) -> None:
        sockets[0].close()

    monkeypatch.chdir(folder)
    monkeypatch.setattr(serve, "App", Built)
    monkeypatch.setattr(uvicorn.Server, "run", run)
    monkeypatch.setattr(serve, "log_config", no_logs)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    done = CliRunner().invoke(commands, ["serve", target, "--port", "0", *words], env=environment)
    assert done.exit_code == 0, done.output
    return built[0]


def no_logs(**_: Any) -> None:
    """Leave the logging of the tests unchanged."""
