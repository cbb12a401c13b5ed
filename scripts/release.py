"""Build what a release uploads, and try it as its users would: for ``make release``. It publishes nothing.

``--tag v0.1.0`` also checks that the version and the date of its changelog entry are those of a release.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import urllib.request
import venv
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
DIST: Final = ROOT / "dist"
BIN: Final = Path(sys.executable).parent
PAGE: Final = "aguila/server/frontends/page/assets/index.html"
PROJECT_SECONDS: Final = 120
"""How long it may take from the wheel to a new project whose page is served."""

PROMISES: Final = {
    "": "from aguila import Run, tool; from aguila.codec import decode; from aguila.store import MemoryStore",
    "server": "from aguila import App; App(lambda run: 'Hello', store=':memory:')",
    "client": "from aguila import ChatClient, Client; Client('http://localhost').close()",
    "http2": "from aguila.client.transports.httpx2 import HTTPX2Transport; HTTPX2Transport(http2=True)",
    "aiohttp": "from aguila.client.transports.aiohttp import AiohttpTransport",
    "cli": "from aguila.cli.commands import commands",
    "protobuf": "from aguila.codec.protobuf import ProtobufEncoder; ProtobufEncoder()",
    "official": "from aguila.codec.official import to_official; from aguila.protocol import RunErrorEvent;"
    "to_official(RunErrorEvent(message='x'))",
    "postgres": "from aguila.store import PostgresStore; import psycopg; psycopg.pq.version()",
    "testing": "from aguila.testing import strategies",
    "otel": "import opentelemetry.trace, aguila.telemetry",
    "models": "from aguila.frameworks import pydantic_ai",
    "all": "import aiohttp, ag_ui.core, h2, hypothesis, psycopg, typer; from aguila import App, Client",
}
"""Extra -> what can be done with it in an environment that has nothing else."""


class NotReady(Exception):
    """The release is not ready; the message says what to do."""


def main() -> int:
    """Build and try everything; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tag", help="the tag of the release, such as v0.1.0")
    tag = parser.parse_args().tag
    try:
        check_changelog(tag)
        wheel = build()
        with tempfile.TemporaryDirectory(prefix="aguila-release-") as folder:
            try_extras(wheel, Path(folder))
            try_runners(wheel, Path(folder))
            try_new_project(wheel, Path(folder))
    except NotReady as error:
        print(f"not ready to release: {error}", file=sys.stderr)
        return 1
    print(f"ready: {', '.join(path.name for path in sorted(DIST.iterdir()))} in {DIST}. Nothing was published.")
    return 0


def read_version() -> str:
    """Return the version that hatchling builds."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "src" / "aguila" / "__init__.py").read_text(), re.MULTILINE)
    if found is None:
        raise NotReady("src/aguila/__init__.py has no __version__")
    return found[1]


def check_changelog(tag: str | None) -> None:
    """Check that the first entry of the changelog is about this version; for a tag, that it has a date."""
    version = read_version()
    if tag is not None and tag != f"v{version}":
        raise NotReady(f"the tag is {tag}, but the version is {version}; tag v{version}, or change __version__")
    entry = re.search(r"^## \[(.+)\] - (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if entry is None or entry[1] != version:
        raise NotReady(
            f"the first entry of CHANGELOG.md is not about {version}; begin it with: ## [{version}] - <date>"
        )
    if tag is not None and re.fullmatch(r"\d{4}-\d\d-\d\d", entry[2]) is None:
        raise NotReady(
            f"the entry of {version} in CHANGELOG.md has the date {entry[2]!r}; write today's, as 2026-12-31"
        )
    print(f"changelog: {version}, {entry[2]}")


def build() -> Path:
    """Build the sdist, and the wheel from it. Check what is in them, and how PyPI will show them."""
    DIST.mkdir(exist_ok=True)
    for old in DIST.iterdir():
        old.unlink()
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST, ROOT)
    (sdist,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    with tarfile.open(sdist) as packed:
        if not any(name.endswith(f"/src/{PAGE}") for name in packed.getnames()):
            raise NotReady("the sdist lacks the page; install Node 20.19 or later")
    if PAGE not in zipfile.ZipFile(wheel).namelist():
        raise NotReady("the wheel lacks the page, but the sdist has it; see [tool.hatch.build] in pyproject.toml")
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    print(f"built {sdist.name} and {wheel.name}, with the page; twine finds nothing")
    return wheel


def try_extras(wheel: Path, folder: Path) -> None:
    """Install each extra into an empty environment and use what it promises."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    if extras.keys() != PROMISES.keys() - {""}:
        differing = ", ".join(sorted(extras.keys() ^ (PROMISES.keys() - {""})))
        raise NotReady(f"PROMISES in scripts/release.py and the extras of pyproject.toml differ: {differing}")
    for extra, promise in PROMISES.items():
        name = extra or "no extra"
        python = make_environment(folder / f"extra-{extra}", f"{wheel}[{extra}]" if extra else str(wheel))
        run(python, "-W", "error", "-c", promise)
        pip(python, "check")
        print(f"installed and used: {name}")


def try_runners(wheel: Path, folder: Path) -> None:
    """Run the command with uvx and pipx, from nothing but the wheel: its version, and the demo with its page."""
    for runner in (["uvx", "--from"], ["pipx", "run", "--spec"]):
        command = [BIN / runner[0], *runner[1:], f"{wheel}[cli]", "aguila"]
        said = run(*command, "--version", cwd=folder)
        if said.split()[-1] != read_version():
            raise NotReady(f"{' '.join(runner)} printed {said!r}")
        served = folder / f"served-by-{runner[0]}"
        served.mkdir()
        check_page(*command, "serve", "--port", "0", cwd=served)
        print(f"ran: {' '.join(runner)} '{wheel.name}[cli]' aguila serve")


def try_new_project(wheel: Path, folder: Path) -> None:
    """In an empty directory: install, ``aguila init``, its tests, ``aguila serve``, the page."""
    start = time.monotonic()
    python = make_environment(folder / "project-env", f"{wheel}[cli]")
    aguila = python.with_name("aguila")
    run(aguila, "init", "dice", cwd=folder)
    project = folder / "dice"
    pip(python, "install", "--quiet", "-e", f"{project}[test]")
    run(python, "-m", "pytest", "-q", cwd=project)
    check_page(aguila, "serve", "agent", "--port", "0", cwd=project)
    seconds = time.monotonic() - start
    if seconds > PROJECT_SECONDS:
        raise NotReady(f"a new project took {seconds:.0f} s, more than {PROJECT_SECONDS}")
    print(f"new project: installed, tested and served with its page in {seconds:.0f} s")


def check_page(*command: str | Path, cwd: Path) -> None:
    """Run ``aguila serve`` until its page was loaded. Raise ``NotReady`` if that fails."""
    server = subprocess.Popen(
        list(map(str, command)),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert server.stdout is not None
        url = next((found[0] for line in server.stdout if (found := re.search(r"http://127\.0\.0\.1:\d+", line))), None)
        if url is None:
            raise NotReady(f"{command[0]}: aguila serve ended before it printed its address")
        request = urllib.request.Request(url, headers={"accept": "text/html"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            page = answer.read().decode()
    finally:
        server.terminate()
        server.communicate(timeout=60)
    if "_page/" not in page:
        raise NotReady(f"{command[0]}: aguila serve shows no page: {page[:200]}")


def make_environment(home: Path, package: str) -> Path:
    """Install a package into a new environment and return its Python."""
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    pip(python, "install", "--quiet", package)
    return python


def pip(python: Path, *arguments: str) -> None:
    """Run pip for an environment."""
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, *arguments)


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command and return its output. Raise ``NotReady`` with the output if it fails."""
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise NotReady(f"this failed: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
