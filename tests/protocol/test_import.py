"""The cost of ``import aguila.protocol`` and the modules it imports. Each import runs in a fresh interpreter."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

REPORT = "import json, sys; json.dump(sorted(sys.modules), sys.stdout)"
# Processor time of the import alone: other work of the machine does not count.
MEASURE = "import time; t = time.process_time_ns(); import {module}; print(time.process_time_ns() - t)"
ROUNDS = 7


def run(code: str) -> str:
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return finished.stdout


def loaded_by(statement: str) -> set[str]:
    return {name.partition(".")[0] for name in json.loads(run(f"{statement}\n{REPORT}"))}


def test_the_wire_types_load_no_framework() -> None:
    loaded = loaded_by("import aguila.protocol")
    assert "msgspec" in loaded
    assert (
        loaded & {"pydantic", "pydantic_core", "starlette", "httpx2", "ag_ui", "google", "hypothesis", "asyncio"}
        == set()
    )


def test_the_official_bridge_loads_the_official_package_only_when_it_is_used() -> None:
    code = "from aguila.codec.official import is_official; assert not is_official(object())"
    assert loaded_by(code) & {"pydantic", "ag_ui"} == set()
    used = "from aguila.codec.official import to_official as o; import aguila.protocol as p; o(p.TextPart(text=''))"
    assert loaded_by(used) >= {"pydantic", "ag_ui"}


def test_importing_the_testing_package_loads_no_hypothesis() -> None:
    assert "hypothesis" not in loaded_by("import aguila.testing")


def test_the_wire_types_import_in_under_a_third_of_the_official_ones() -> None:
    ours = MEASURE.format(module="aguila.protocol")
    theirs = MEASURE.format(module="ag_ui.core")
    # alternating and best of several, so that a busy moment of the machine hits both or neither
    times = [(int(run(ours)), int(run(theirs))) for _ in range(ROUNDS)]
    best_ours, best_theirs = (min(column) for column in zip(*times, strict=True))
    assert best_ours * 3 < best_theirs, f"{best_ours / 1e6:.1f} ms against {best_theirs / 1e6:.1f} ms"


@pytest.mark.parametrize(
    ("code", "package", "extra"),
    [
        ("from aguila import App", "python_multipart", "server"),
        ("from aguila import Client; Client('http://localhost')", "httpx2", "client"),
    ],
)
def test_without_its_extra_a_name_says_only_what_to_install(code: str, package: str, extra: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None\n{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.count("Traceback") == 1, done.stderr
    install = f"install it with: pip install 'aguila[{extra}]' (in a clone: '.[{extra}]')"
    assert done.stderr.splitlines()[-1] == f"aguila.errors.MissingExtra: this needs {package}; {install}"
