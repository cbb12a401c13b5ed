"""Run pyright on the code of a user."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def pyright_findings(folder: Path, code: str) -> list[dict[str, Any]]:
    """Return the findings of pyright in a file with this code."""
    path = folder / "checked.py"
    path.write_text(code)
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return json.loads(done.stdout)["generalDiagnostics"]


def revealed(folder: Path, code: str) -> list[str]:
    """Return the types that ``reveal_type`` shows; nothing may be wrong."""
    found = pyright_findings(folder, code)
    wrong = [one["message"] for one in found if one["severity"] == "error"]
    assert not wrong, wrong
    return [one["message"].split(" is ", 1)[1].strip('"') for one in found if one["severity"] == "information"]
