"""The recipes of examples/frontends: install their packages, build their pages, serve the pages on the loopback.

``python tests/frontends/recipes.py`` builds them all, ahead of ``make frontends``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
RECIPES = REPOSITORY / "examples" / "frontends"
CHROMIUM = os.environ.get("AGUILA_CHROMIUM", "/usr/bin/chromium")


class MissingTool(Exception):
    """A tool that the pages need is not installed. The message says which, and how to install it."""


def require_tools() -> None:
    """Check for npm and Chromium before anything is downloaded."""
    if shutil.which("npm") is None:
        raise MissingTool("npm is not installed; the front ends need Node 20.19 or later (apt-get install nodejs npm)")
    if not Path(CHROMIUM).exists():
        raise MissingTool(f"{CHROMIUM} does not exist; apt-get install chromium, or set AGUILA_CHROMIUM")


def install(folder: Path) -> None:
    """Install the packages of a folder, unless its lock file is the one that they were installed from."""
    stamp = folder / "node_modules" / ".made-of"
    _if_changed(
        [folder / "package-lock.json"], stamp, lambda: _npm(folder, "ci", "--no-audit", "--no-fund", "--loglevel=error")
    )


def build(recipe: str) -> Path:
    """Install the packages of a recipe and build its page, each only if its sources have changed."""
    folder = RECIPES / recipe
    install(folder)
    sources = sorted(source for source in (folder / "src").rglob("*") if source.is_file())
    _if_changed(
        [folder / "package-lock.json", folder / "index.html", folder / "vite.config.ts", *sources],
        folder / "dist" / ".made-of",
        lambda: _npm(folder, "run", "build", "--", "--logLevel", "error"),
    )
    return folder / "dist"


def _if_changed(sources: list[Path], stamp: Path, make: Callable[[], None]) -> None:
    """Call ``make`` unless the stamp has the digest of the sources."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    make()
    stamp.write_text(digest)


def versions(recipe: str, *packages: str) -> str:
    """Return the versions of packages that the lock files of a recipe pin."""
    locked: dict[str, dict[str, str]] = {}
    for lock in (RECIPES / recipe / "runtime" / "package-lock.json", RECIPES / recipe / "package-lock.json"):
        if lock.exists():
            locked |= json.loads(lock.read_text())["packages"]
    return ", ".join(f"{package} {locked[f'node_modules/{package}']['version']}" for package in packages)


def _npm(folder: Path, *arguments: str) -> None:
    environment = {**os.environ, "CI": "true"}
    done = subprocess.run(
        ["npm", *arguments], cwd=folder, capture_output=True, encoding="utf-8", env=environment, check=False
    )
    if done.returncode:
        raise RuntimeError(f"npm {' '.join(arguments)} failed in {folder}:\n{(done.stdout + done.stderr)[-4000:]}")


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Write no access log."""


@contextmanager
def serving_page(folder: Path) -> Iterator[str]:
    """Serve a built page and yield its origin."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    for package in sorted(RECIPES.glob("*/package.json")):
        print(f"building {package.parent.relative_to(REPOSITORY)}", flush=True)
        build(package.parent.name)
