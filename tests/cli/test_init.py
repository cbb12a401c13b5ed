"""``aguila init``: what it writes, and where it refuses to. tests/packaging runs the project from a wheel."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aguila.cli.commands import commands

FILES = {"agent.py", "test_agent.py", "pyproject.toml", "Dockerfile", "README.md", ".gitignore"}


def init(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(commands, ["init", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_a_new_directory_gets_a_project_and_the_next_commands_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, said, _ = init("my shops/Book Shop")
    folder = tmp_path / "my shops" / "Book Shop"
    assert status == 0
    assert {path.name for path in folder.iterdir()} == FILES
    assert "  cd 'my shops/Book Shop'\n  pip install -e '.[test]'\n  pytest\n  aguila serve agent --open\n" in said
    assert tomllib.loads((folder / "pyproject.toml").read_text())["project"]["name"] == "book-shop"
    assert not [path for path in folder.iterdir() if "PROJECT_NAME" in path.read_text()]


@pytest.mark.parametrize(
    ("folder", "name"), [("aguila", "my-agent"), ("Pytest", "my-agent"), ("日本", "my-agent"), ("a_b.c", "a-b-c")]
)
def test_a_project_never_has_the_name_of_what_it_depends_on(tmp_path: Path, folder: str, name: str) -> None:
    assert init(str(tmp_path / folder))[0] == 0
    assert tomllib.loads((tmp_path / folder / "pyproject.toml").read_text())["project"]["name"] == name


def test_the_current_directory_may_have_a_repository_and_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".gitignore").write_text("mine\n")
    status, said, _ = init()
    assert (status, "cd " in said) == (0, False)
    assert (tmp_path / ".gitignore").read_text() == "mine\n"


def test_a_directory_with_files_is_left_alone(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "c.py", "d.py"):
        (tmp_path / name).touch()
    status, _, said = init(str(tmp_path))
    assert status == 2
    assert said == (
        f"aguila init: {tmp_path} is not empty (it has a.py, b.py, c.py, ...); "
        "name a new directory: aguila init my-agent\n"
    )
    assert len(list(tmp_path.iterdir())) == 4


def test_a_file_and_a_directory_that_cannot_be_made_are_errors(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert init(str(tmp_path / "file")) == (2, "", f"aguila init: {tmp_path}/file is a file; name a directory\n")
    assert init(str(tmp_path / "file" / "deeper"))[0] == 2
