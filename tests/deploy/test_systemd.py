"""The units of deploy/: systemd accepts them, and what they start serves."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from deployed import DEPLOY, HEADERS, says, write_service
from httpx2 import Client
from ports import free_port
from processes.commands import Command

UNITS = ["aguila.service", "aguila@.service"]


def require(program: str, package: str) -> str:
    found = shutil.which(program)
    if found is None:
        reason = f"{program} is not installed: apt-get install {package}"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    assert found is not None
    return found


def settings(unit: str, name: str) -> list[str]:
    """Return the values of one setting of a unit, in its order."""
    lines = (DEPLOY / unit).read_text().splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{name}=")]


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_finds_nothing_wrong(unit: str, tmp_path: Path) -> None:
    # systemd looks for the programs, which are not installed here.
    text = (DEPLOY / unit).read_text().replace("/srv/agent/.venv/bin/aguila", "/bin/true")
    (tmp_path / unit).write_text(text.replace("/usr/bin/curl", "/bin/true"))
    command = [require("systemd-analyze", "systemd"), "verify", "--man=no", tmp_path / unit.replace("@.", "@8001.")]
    if "@" in unit:
        (tmp_path / unit).rename(tmp_path / "aguila@8001.service")
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS)
def test_a_stop_does_not_signal_the_workers_twice(unit: str) -> None:
    assert settings(unit, "KillMode") == ["mixed"]


def test_nginx_passes_requests_to_the_ports_of_the_units() -> None:
    first = (DEPLOY / "aguila@.service").read_text().splitlines()[0]
    ports = [word.partition("@")[2] for word in first.split() if word.startswith("aguila@8")]
    assert [f"server 127.0.0.1:{port} max_fails=0;" in (DEPLOY / "nginx.conf").read_text() for port in ports] == [
        True
    ] * 2


def test_a_unit_starts_a_process_and_waits_until_it_is_ready(tmp_path: Path) -> None:
    write_service(tmp_path)
    port = free_port()
    (environment,) = settings("aguila@.service", "Environment")
    given = dict(word.split("=") for word in environment.replace("%i", str(port)).split())
    given |= {"AGUILA_STORE": "threads.db", "TOKENS": '{"token-of-ada": "ada"}'}
    (start,) = settings("aguila@.service", "ExecStart")
    (ready,) = settings("aguila@.service", "ExecStartPost")
    program, *arguments = shlex.split(start)
    assert Path(program).name == "aguila"
    service = Command([sys.executable, "-m", "aguila", *arguments], port, tmp_path, "/healthz", given)
    try:
        require("curl", "curl")
        assert subprocess.run(shlex.split(ready.replace("%i", str(port)))).returncode == 0
        with Client(base_url=service.url, headers=HEADERS) as client:
            assert says(client, "one", "thread") == "I hear: one "
    finally:
        service.stop()
