"""What a container engine does with a Dockerfile, as far as that is possible without one.

The instructions run in a folder that stands for the root of the image, with a Python environment in place of the base
image. Absolute paths of the Dockerfile are below that folder.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

from processes.commands import Command

_NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def can_contain() -> bool:
    """Return whether this process may do what a container engine does: make namespaces and change its user."""
    if shutil.which("unshare") is None or shutil.which("setpriv") is None:
        return False
    return subprocess.run([*_NAMESPACES, "true"], capture_output=True, check=False).returncode == 0


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile: each its name and its arguments."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", "").splitlines()
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in joined) if name]


class Image:
    """The image of the Dockerfile in ``context``, built in the folder ``root``."""

    def __init__(self, root: Path, context: Path, **environment: str) -> None:
        self.root = root
        self.workdir = root
        self.user = "0"
        self.volumes: list[Path] = []
        self.command: list[str] = []
        programs = _make_python(root / "usr" / "local")
        self.environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": "/", "PYTHONPATH": "", **environment}
        for name, rest in instructions(context / "Dockerfile"):
            self._apply(name, rest, context)

    def _apply(self, name: str, rest: str, context: Path) -> None:
        match name:
            case "FROM":
                assert rest.startswith("python:"), rest
            case "WORKDIR":
                self.workdir = self._place(rest)
                self.workdir.mkdir(parents=True)
            case "COPY":
                source, target = rest.split()
                shutil.copytree(context / source, self.workdir / target, dirs_exist_ok=True)
            case "RUN":
                self._run(re.sub(r"(?<= )/", f"{self.root}/", rest))
            case "ENV":
                for word in rest.split():
                    variable, _, value = word.partition("=")
                    self.environment[variable] = str(self._place(value)) if value.startswith("/") else value
            case "USER":
                self.user = rest
            case "VOLUME":
                self.volumes.append(self._place(rest))
            case "EXPOSE":
                pass
            case "CMD":
                self.command = json.loads(rest)
            case _:
                raise AssertionError(f"{name} of the Dockerfile is not known here; add it")

    def _place(self, path: str) -> Path:
        return self.root / path.removeprefix("/")

    def _run(self, script: str) -> None:
        command = ["/bin/sh", "-ec", script]
        done = subprocess.run(command, cwd=self.workdir, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self, port: int, log: Path, **environment: str) -> Container:
        """Run the command with nothing writable but the volumes, as process 1 and the user of the image."""
        return Container(self, port, log, environment)


class Container(Command):
    """A process of an image, in namespaces of its own."""

    def __init__(self, image: Image, port: int, log: Path, environment: Mapping[str, str]) -> None:
        volumes = " && ".join(f"mount --bind {volume} {volume}" for volume in image.volumes)
        read = "-all,+dac_read_search"  # the Python of this machine may be readable by root only
        user = f"setpriv --reuid={image.user} --regid={image.user} --clear-groups --no-new-privs"
        user += f" --inh-caps={read} --ambient-caps={read} --bounding-set={read}"
        script = f'{volumes} && mount -o remount,bind,ro / && cd {image.workdir} && exec {user} "$@"'
        command = [*_NAMESPACES, "/bin/sh", "-ec", script, "sh", *image.command]
        super().__init__(command, port, log, "/readyz", {**image.environment, **environment})

    @property
    def first(self) -> int:
        """The process of the command, as this machine numbers it."""
        return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text())


def _make_python(home: Path) -> Path:
    """Make an environment with Python and pip; return the folder of its programs."""
    venv.create(home, symlinks=True)
    pip = home / "bin" / "pip"
    pip.write_text(f'#!/bin/sh\nexec {sys.executable} -m pip --python {home}/bin/python "$@"\n')
    pip.chmod(0o755)
    return pip.parent
