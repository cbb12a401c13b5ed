"""The options of ``aguila serve`` from the environment and from a file: the same values, the same refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from processes.commands import aguila_serve
from serve_options import AGENT, GIVEN, app_options, written
from typer.testing import CliRunner

from aguila.cli.commands import commands
from aguila.cli.options.settings import key_of, variable_of

SERVE: Any = typer.main.get_command(commands).commands["serve"]
PARAMS = {param.name: param for param in SERVE.params if param.name not in ("store", "help")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(AGENT)
    return tmp_path


def refusal(*words: str, **environment: str) -> str:
    """Run a ``serve`` that is refused before it serves, and return its message."""
    done = CliRunner().invoke(commands, ["serve", *words], env={"COLUMNS": "400", **environment})
    assert done.exit_code in (1, 2), done.output
    return " ".join(done.output.replace("│", " ").split())


def in_toml(option: str) -> str:
    text, value = GIVEN[option]
    value = text if option == "store" else value if isinstance(value, bool | list) else text
    return f"{option.replace('_', '-')} = {json.dumps(value)}\n"


def test_every_option_shows_its_variable_in_the_help() -> None:
    assert len(PARAMS) == 30
    # Without its lines and spaces: typer reads the width of the terminal once for all tests of a process.
    shown = re.sub(r"[\s│]", "", CliRunner().invoke(commands, ["serve", "--help"], env={"COLUMNS": "250"}).output)
    for param in PARAMS.values():
        assert f"[envvar:{variable_of(param)}]" in shown
    assert variable_of(PARAMS["front_end"]) == "AGUILA_FOR"
    assert variable_of(PARAMS["target"]) == "AGUILA_TARGET"


@pytest.mark.parametrize("option", GIVEN)
def test_a_variable_and_a_key_of_the_file_are_the_option(
    folder: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    expected = app_options(folder, monkeypatch, *written(option))
    text = GIVEN[option][0] or "true"
    variable = "AGUILA_" + option.upper()
    assert app_options(folder, monkeypatch, environment={variable: text}) == expected
    (folder / "aguila.toml").write_text(in_toml(option))
    assert app_options(folder, monkeypatch, "--config", "aguila.toml") == expected


def test_an_argument_wins_over_a_variable_and_a_variable_over_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "aguila.toml").write_text('drain = 1\nbusy = "queue"\nhistory = "server"\npage = false\nstore = "f.db"')
    environment = {"AGUILA_CONFIG": "aguila.toml", "AGUILA_DRAIN": "2", "AGUILA_BUSY": "reject", "AGUILA_PAGE": "true"}
    found = app_options(folder, monkeypatch, "--drain", "3", environment=environment)
    assert (found["drain"], found["busy"], found["history"], found["page"]) == (3, "reject", "server", True)
    assert found["store"] == str(folder / "f.db")
    environment["AGUILA_STORE"] = "e.db"
    assert app_options(folder, monkeypatch, environment=environment)["store"] == str(folder / "e.db")
    environment["AGUILA_STORE"] = "e.db"
    found = app_options(folder, monkeypatch, "--store", "a.db", environment=environment)
    assert found["store"] == str(folder / "a.db")


def test_a_variable_has_one_value_per_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"AGUILA_CORS_ORIGIN": "http://a\nhttp://b\n", "AGUILA_HEADER": ""}
    found = app_options(folder, monkeypatch, environment=environment)
    assert found["cors_origins"] == ["http://a", "http://b"]
    assert "headers_allowed" not in found  # an empty variable is not set
    found = app_options(
        folder,
        monkeypatch,
        target="http://127.0.0.1:9/agent",
        environment={"AGUILA_UPSTREAM_HEADER": "Authorization: Bearer x"},
    )
    assert found["store"] == str(folder / "aguila.db")


def test_a_server_is_configured_by_the_environment_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGUILA_TARGET", "mine:other")
    monkeypatch.setenv("AGUILA_JSON_LOGS", "1")
    monkeypatch.setenv("AGUILA_STORE", "kept.db")
    with aguila_serve(folder) as server:
        assert "Another one" in server.post("/", json=RUN).text
        assert f"mine:other at {server.url}, threads in {folder / 'kept.db'}" in server.log
        assert '"logger"' in server.log


RUN = {"threadId": "t", "runId": "r", "messages": [], "tools": [], "context": [], "state": {}, "forwardedProps": {}}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("drian = 5", "aguila.toml has drian, which is no option of serve; did you mean drain?"),
        ("cors_origin = ['http://a']", "did you mean cors-origin?"),
        ("x = 1", "see aguila serve --help for the names, without dashes"),
        ("config = 'other.toml'", "aguila.toml has config, which is no option of serve"),
        ("cors-origin = 'http://a'", 'cors-origin in aguila.toml has to be an array, such as ["..."]'),
        ("drain = [5]", "drain in aguila.toml has to be one value, not an array"),
        ("drain = ", "aguila.toml is not TOML: Invalid value (at end of document)"),
        ("drain = -1", "'--drain'"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_key(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    monkeypatch.chdir(folder)
    (folder / "aguila.toml").write_text(text)
    assert says in refusal("--config", "aguila.toml")
    assert "cannot read other.toml: No such file" in refusal("--config", "other.toml")


def test_what_an_app_says_itself_is_refused_from_everywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "whole.py").write_text("import aguila\n\nasync def agent(run): ...\n\napp = aguila.App(agent)\n")
    (folder / "aguila.toml").write_text("history = 'server'")
    monkeypatch.chdir(folder)
    found = refusal("whole:app", "--config", "aguila.toml", "--debug", AGUILA_DRAIN="5")
    assert found.endswith("pass these to App(...): history in aguila.toml, AGUILA_DRAIN, --debug")


def test_the_variable_that_kubernetes_sets_is_explained() -> None:
    found = refusal(AGUILA_PORT="tcp://10.96.0.7:8000")
    assert "Kubernetes sets AGUILA_PORT in the pods beside a Service that is named aguila" in found


def test_the_name_of_each_key_is_that_of_the_option() -> None:
    assert [key_of(PARAMS[name]) for name in ("front_end", "page", "tools", "target")] == [
        "for",
        "page",
        "tools",
        "target",
    ]
