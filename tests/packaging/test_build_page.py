"""When the build of a wheel runs npm, and its message if it cannot."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, for a clone that has no build yet. Every command that it runs fails the test."""
    spec = importlib.util.spec_from_file_location("build_page", ROOT / "scripts" / "build_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ASSETS", tmp_path / "assets")
    monkeypatch.setattr(module, "STAMP", tmp_path / "assets" / "sources.sha256")

    def run(*_: Any, **__: Any) -> None:
        pytest.fail("a command was run")

    monkeypatch.setattr(subprocess, "run", run)
    return module


class Output:
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def display_warning(self, message: str) -> None:
        self.warnings.append(message)


def initialize(script: ModuleType, version: str) -> list[str]:
    """Run the hook as hatchling does, and return its warnings."""
    hook, output = script.BuildHook.__new__(script.BuildHook), Output()
    script.BuildHook.app = output
    hook.initialize(version, {})
    return output.warnings


def test_an_editable_install_never_runs_npm(script: ModuleType) -> None:
    assert initialize(script, "editable") == []


def test_without_npm_a_wheel_is_built_with_one_line_about_the_page(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    (warning,) = initialize(script, "standard")
    assert warning.startswith("npm not found: the page is not built. Install Node")
    assert "\n" not in warning


@pytest.mark.parametrize(("ci", "status"), [("true", 1), ("", 0)])
def test_make_web_without_npm_fails_only_in_ci(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ci: str, status: int
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(sys, "argv", ["build_page.py"])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == status
    assert "npm not found" in capsys.readouterr().err


def test_a_build_of_the_same_sources_is_kept(script: ModuleType) -> None:
    script.STAMP.parent.mkdir()
    script.STAMP.write_text(script.hash_sources())
    script.build()
