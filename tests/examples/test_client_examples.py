"""The examples of the client, as real processes against the demo, which is one too."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes.commands import Command, aguila_serve
from processes.forked import run_script
from serving import REPOSITORY
from waiting import DEADLINE


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    with aguila_serve(tmp_path_factory.mktemp("demo")) as server:
        yield server


def run_example(name: str, demo: Command, folder: Path) -> list[str]:
    return run_script(REPOSITORY / "examples" / name, folder, AGUILA_URL=demo.url).splitlines()


def test_09_a_client_streams_answers_uploads_and_sees_failure(demo: Command, tmp_path: Path) -> None:
    lines = run_example("09_client.py", demo, tmp_path)
    lines[3] = lines[3].partition(", of ")[0]  # the number of bytes depends on zlib
    assert lines == [
        "An agent writes text through its run, piece by piece, and everybody who watches sees it grow.",
        "Asked: Which colour shall it have?",
        "It will be green.",
        "You sent a PNG image, 3 by 2",
        "Failed: agent_error",
    ]


def test_10_functions_are_called_and_the_run_goes_on_with_their_answers(demo: Command, tmp_path: Path) -> None:
    assert run_example("10_client_tools.py", demo, tmp_path) == [
        "get_weather('demo', 'celsius')",
        'answered: {"city":"demo","degrees":24,"unit":"celsius"}',
        "answered: The user does not want that.",
        "Your front end answered: The user does not want that.",
    ]


def test_11_a_cut_stream_goes_on_and_a_left_run_is_joined(demo: Command, tmp_path: Path) -> None:
    survived, left, joined, ended = run_example("11_reconnect_and_attach.py", demo, tmp_path)
    cuts, _, text = survived.partition(" connections were cut: ")
    assert int(cuts) >= 2
    assert text == "An agent writes text through its run, piece by piece, and everybody who watches sees it grow."
    assert left == "left it at 3"
    assert joined == "joined it, and saw: 1 2 3 4 5 6 7 8 9"
    assert ended == "it ended as cancelled"


def test_12_an_agent_is_tested_by_pytest_alone(tmp_path: Path) -> None:
    example = REPOSITORY / "examples" / "12_testing_an_agent.py"
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", str(example)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_the_examples_are_short_and_say_how_to_run_them() -> None:
    names = sorted(
        path.name for path in (REPOSITORY / "examples").glob("*.py") if path.name[:2] in ("09", "10", "11", "12")
    )
    assert len(names) == 4
    for name in names:
        source = (REPOSITORY / "examples" / name).read_text()
        assert len(source.splitlines()) <= 70, name
        assert f"examples/{name}\n" in source
