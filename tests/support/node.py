"""The Node peers of the interop tests: where node is, and how a script of tests/interop/node is run.

Without node a test is skipped with the reason, but fails where CI=true: there a missing peer is a broken build.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NoReturn

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "interop" / "node"


def node_path() -> str:
    """The node binary; its packages are installed if they were not."""
    node = shutil.which("node")
    if node is None:
        _unavailable("node is not installed")
    _install_packages()
    return node


def run_node(script: str, input: str, *, timeout: float = 120) -> str:
    """What a script of tests/interop/node writes to stdout when it is given ``input``."""
    command = [node_path(), str(FOLDER / script)]
    done = subprocess.run(
        command, input=input, capture_output=True, encoding="utf-8", timeout=timeout, cwd=FOLDER, check=False
    )
    if done.returncode:
        pytest.fail(f"{script} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return done.stdout


def _install_packages() -> None:
    installed = FOLDER / "node_modules" / ".package-lock.json"  # npm writes it last
    if installed.exists():
        return
    with (Path(tempfile.gettempdir()) / "aguila-npm-ci.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may find the packages missing at once
        if installed.exists():
            return
        npm = shutil.which("npm")
        if npm is None:
            _unavailable("npm is not installed")
        command = [npm, "ci", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=FOLDER, capture_output=True, encoding="utf-8", check=False)
        if done.returncode:
            _unavailable(f"npm ci failed in {FOLDER}:\n{done.stderr[-2000:]}")


def _unavailable(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
