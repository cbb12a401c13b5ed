"""Commands without an extra that they need: what is missing is named in one line, and the exit status says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from waiting import DEADLINE

_WITHOUT = """
import sys
sys.modules["google"] = sys.modules["google.protobuf"] = None
sys.argv[0] = "aguila"
from aguila.cli.main import main
main()
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "http://127.0.0.1:9/", "--protobuf"],
        ["record", "http://127.0.0.1:9/", "new.jsonl", "--protobuf"],
        ["chat", "http://127.0.0.1:9/", "-m", "x", "--protobuf"],
        ["convert", "x.jsonl", "x.pb"],
        ["compact", "x.jsonl", "x.pb"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_without_protobuf_what_needs_it_says_so_in_one_line(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"type":"RUN_STARTED","threadId":"t","runId":"r"}\n')
    command = [sys.executable, "-c", _WITHOUT, *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=DEADLINE, check=False)
    said = done.stderr.decode()
    assert done.returncode == 2, said
    install = "pip install 'aguila[protobuf]' (in a clone: '.[protobuf]')"
    assert said == f"aguila: this needs protobuf; install it with: {install}\n"
