"""The wheel, built once for all tests of this folder in one process, and environments that it is installed into."""

import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python"]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="session")
def packages(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the extras below and a new project need: pip reads the index once for all environments."""
    folder = tmp_path_factory.mktemp("packages")
    constraints = ROOT / "requirements" / "constraints.txt"
    what = [
        "-q",
        "-d",
        str(folder),
        "-c",
        str(constraints),
        f"{wheel}[aiohttp,cli,client,server]",
        "pytest",
        "setuptools",
    ]
    subprocess.run([*PIP, sys.executable, "download", *what], check=True, capture_output=True, text=True)
    return folder


@pytest.fixture(scope="session")
def installed(wheel: Path, packages: Path) -> Callable[..., Path]:
    """Make an environment by ``pip install 'aguila[extra]'``, with nothing else in it. Returns its Python."""

    def install(home: Path, extra: str = "") -> Path:
        venv.create(home, symlinks=True)
        python = home / "bin" / "python"
        options = ["-q", "--no-compile", "--no-index", "--find-links", str(packages)]
        what = f"{wheel}[{extra}]" if extra else str(wheel)
        subprocess.run([*PIP, str(python), "install", *options, what], check=True, capture_output=True, text=True)
        return python

    return install


@pytest.fixture(scope="session")
def packages_of() -> Callable[[Path], set[str]]:
    """List the names of the packages that an environment has."""

    def names(python: Path) -> set[str]:
        command = [*PIP, str(python), "list", "--format=freeze"]
        listed = subprocess.run(command, check=True, capture_output=True, text=True)
        return {line.split("==")[0].lower() for line in listed.stdout.split() if "==" in line}

    return names
