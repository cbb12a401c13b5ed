"""docs/deploying.md shows the files of deploy/ as they are, and their numbers belong together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "deploying.md").read_text()
BLOCKS = re.findall(r"^```\w*\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
FILES = {path.name: path.read_text() for path in (ROOT / "deploy").iterdir() if path.is_file()}


@pytest.mark.parametrize("name", FILES)
def test_the_document_shows_the_file(name: str) -> None:
    assert FILES[name] in BLOCKS


def number(pattern: str, name: str) -> float:
    (found,) = set(re.findall(pattern, FILES[name]))
    return float(found)


def test_every_supervisor_waits_for_longer_than_the_drain_which_is_as_long_as_the_longest_run() -> None:
    from aguila.server import Limits, Timing

    drain = number(r"drain=(\d+)", "service.py")
    assert drain >= number(r"run_seconds=(\d+)", "service.py")
    least = drain + Timing().cancel_grace + Timing().store_patience
    sleep = number(r"sleep: \{seconds: (\d+)\}", "kubernetes.yaml")
    waits = [
        number(r"stop_grace_period: (\d+)s", "compose.yaml"),
        number(r"TimeoutStopSec=(\d+)", "aguila.service"),
        number(r"TimeoutStopSec=(\d+)", "aguila@.service"),
        number(r"graceful_timeout = (\d+)", "gunicorn.conf.py"),
        number(r"terminationGracePeriodSeconds: (\d+)", "kubernetes.yaml") - sleep,
    ]
    assert [wait for wait in waits if wait < least + 10] == []
    assert number(r"client_max_body_size (\d+)m", "nginx.conf") * 2**20 > max(Limits().upload, Limits().body)
