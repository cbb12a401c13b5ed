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

INTEROP = Path(__file__).resolve().parents[2] / "interop"
FOLDER = INTEROP / "node"

CLIENTS = FOLDER.parent / "clients"
"""Every published generation of @ag-ui/client, as ``client-0-0-45``."""


def node_path(folder: Path = FOLDER) -> str:
    """Return the node binary; the packages of a folder are installed if they were not."""
    node = shutil.which("node")
    if node is None:
        _unavailable("node is not installed")
    _install_packages(folder)
    return node


def run_node(script: str, input: str, *, timeout: float = 120, folder: Path = FOLDER) -> str:
    """What a script of a folder, by default tests/interop/node, writes to stdout when it is given ``input``."""
    command = [node_path(folder), str(folder / script)]
    done = subprocess.run(
        command, input=input, capture_output=True, encoding="utf-8", timeout=timeout, cwd=folder, check=False
    )
    if done.returncode:
        pytest.fail(f"{script} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return done.stdout


def _install_packages(folder: Path) -> None:
    installed = folder / "node_modules" / ".package-lock.json"  # npm writes it last
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
        done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=False)
        if done.returncode:
            _unavailable(f"npm ci failed in {folder}:\n{done.stderr[-2000:]}")


def _unavailable(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
