"""Build the page from web/ into the package: for ``make web``, ``make run``, and hatchling, which uses it as a hook.

A build whose sources have not changed is kept. An editable install builds nothing.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WEB = ROOT / "web"
ASSETS = ROOT / "src" / "aguila" / "server" / "frontends" / "page" / "assets"
STAMP = ASSETS / "sources.sha256"
MISSING_NPM = "npm not found: the page is not built. Install Node 20.19 or later, then run `make web`."


class BuildFailed(Exception):
    """The page cannot be built; the message says why."""


def hash_sources() -> str:
    """Hash everything that a build depends on."""
    digest = hashlib.sha256()
    names = ["index.html", "package-lock.json", "package.json", "tsconfig.json", "vite.config.ts"]
    for path in [*(WEB / name for name in names), *sorted((WEB / "src").rglob("*"))]:
        if path.is_file():
            digest.update(f"{path.relative_to(WEB)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def is_built() -> bool:
    """Return whether the package has a build of these sources."""
    return STAMP.is_file() and STAMP.read_text() == hash_sources()


def build() -> None:
    """Install the packages of web/ and build. Raise ``BuildFailed``."""
    if is_built():
        return
    npm = shutil.which("npm")
    if npm is None:
        raise BuildFailed(MISSING_NPM)
    with (Path(tempfile.gettempdir()) / f"aguila-page-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes may build at the same time
        if is_built():
            return
        sources = hash_sources()
        _install(npm)
        with tempfile.TemporaryDirectory(prefix="page-", dir=ASSETS.parent) as folder:
            output = Path(folder) / "assets"
            _run([npm, "run", "--silent", "build", "--", "--outDir", str(output), "--logLevel", "warn"])
            (output / STAMP.name).write_text(sources)
            if ASSETS.exists():
                ASSETS.rename(Path(folder) / "previous")
            output.rename(ASSETS)


def _install(npm: str) -> None:
    """Install the packages of the lock file, if it has changed since."""
    installed, wanted = WEB / "node_modules" / ".installed", (WEB / "package-lock.json").read_text()
    if not installed.is_file() or installed.read_text() != wanted:
        _run([npm, "ci", "--no-audit", "--no-fund", "--loglevel=error"])
        installed.write_text(wanted)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=WEB, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise BuildFailed(f"`{' '.join(command)}` failed in {WEB}:\n{done.stdout}")


def main() -> None:
    """Build, or say with ``--is-built`` whether that is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--is-built", action="store_true", help="build nothing; the exit status tells")
    if parser.parse_args().is_built:
        sys.exit(0 if is_built() else 1)
    try:
        build()
    except BuildFailed as error:
        missing_is_fatal = os.environ.get("CI") == "true"
        print(error, file=sys.stderr)
        sys.exit(1 if missing_is_fatal or str(error) != MISSING_NPM else 0)


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ModuleNotFoundError:  # not called by hatchling
    pass
else:

    class BuildHook(BuildHookInterface):
        """Builds the page before a wheel or an sdist. Without Node they have no page, unless they got a built one."""

        def initialize(self, version: str, build_data: dict[str, object]) -> None:
            if version == "editable" or (ASSETS.joinpath("index.html").is_file() and not WEB.is_dir()):
                return
            try:
                build()
            except BuildFailed as error:
                if str(error) != MISSING_NPM:
                    raise
                self.app.display_warning(str(error))


if __name__ == "__main__":
    main()
