"""What depends on the packages of others, tried with the newest release that pip finds and not with the pinned one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from environments import REPOSITORY

HOOK_ORDER = REPOSITORY / "tests" / "frameworks" / "pydantic_ai" / "test_hook_order.py"


def command(*arguments: str | Path, folder: Path) -> str:
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif("AGUILA_PEERS" not in os.environ, reason="make peers tries it; set AGUILA_PEERS to try it here")
def test_the_newest_pydantic_ai_calls_its_hooks_in_the_order_that_we_depend_on(tmp_path: Path) -> None:
    python = tmp_path / "environment" / "bin" / "python"
    command(sys.executable, "-m", "venv", "--without-pip", tmp_path / "environment", folder=tmp_path)
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check")
    command(*pip, "pydantic-ai-slim<3", "pytest", folder=tmp_path)
    test = tmp_path / HOOK_ORDER.name
    test.write_text(HOOK_ORDER.read_text())  # away from the settings and the packages of this repository
    print(command(python, "-m", "pytest", "-q", test, folder=tmp_path))
    version = "from importlib.metadata import version; print(version('pydantic-ai-slim'))"
    print("pydantic-ai-slim", command(python, "-c", version, folder=tmp_path))
