"""Run a part of the tests on every declared version of Python that this machine has: for ``make pythons``.

An interpreter is found on PATH or among pyenv's. Each gets an environment of its own in ``.venv-pythons``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
ENVIRONMENTS: Final = ROOT / ".venv-pythons"


def main(tests: list[str]) -> int:
    """Test on each version; return the exit status."""
    results: dict[str, str] = {}
    for version in declared_versions():
        interpreter = find_interpreter(version)
        if interpreter is None:
            results[version] = "not on this machine"
            continue
        print(f"Python {version}: {interpreter}", flush=True)
        try:
            python, built = make_environment(version, interpreter)
            subprocess.run([python, "-m", "pytest", "-q", *tests], cwd=ROOT, check=True)
        except subprocess.CalledProcessError as error:
            results[version] = f"failed: {' '.join(map(str, error.cmd[:4]))} ..."
        else:
            results[version] = "passed" + (f"; built from source: {', '.join(built)}" if built else "")
    for version, result in results.items():
        print(f"Python {version}: {result}")
    return 1 if any(result.startswith("failed") for result in results.values()) else 0


def declared_versions() -> list[str]:
    """Return the versions in the classifiers, such as ``3.11``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    prefix = "Programming Language :: Python :: 3."
    return [f"3.{name.removeprefix(prefix)}" for name in project["classifiers"] if name.startswith(prefix)]


def find_interpreter(version: str) -> Path | None:
    """Return an interpreter of a version that runs: what PATH has may be a shim of pyenv for a version not chosen."""
    on_path = shutil.which(f"python{version}")
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [Path(on_path)] if on_path else []
    candidates += sorted((pyenv / "versions").glob(f"{version}.*/bin/python"), reverse=True)
    return next(
        (one for one in candidates if not subprocess.run([one, "--version"], capture_output=True).returncode), None
    )


def make_environment(version: str, interpreter: Path) -> tuple[Path, list[str]]:
    """Install what the tests need. Return the Python of the environment and the packages that had no wheel."""
    home = ENVIRONMENTS / version
    python, report = home / "bin" / "python", home / "installed.json"
    subprocess.run([interpreter, "-m", "venv", "--clear", home], check=True)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    requirements = ["-c", "requirements/constraints.txt", "-r", "requirements/test.txt", "-r", "requirements/check.txt"]
    subprocess.run([*pip, "--report", report, *requirements], cwd=ROOT, check=True)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", "."], cwd=ROOT, check=True)
    installed = json.loads(report.read_text())["install"]
    return python, [one["metadata"]["name"] for one in installed if not one["download_info"]["url"].endswith(".whl")]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
