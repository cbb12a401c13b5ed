"""Run Python programs in processes that are forked from one that has already imported what they need.

Starting Python and importing Aguila takes longer than most of these programs do.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from waiting import DEADLINE

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "processes.forked",
        "aguila.chat",
        "aguila.cli.chat",
        "aguila.cli.check",
        "aguila.cli.commands",
        "aguila.cli.convert",
        "aguila.cli.record",
        "aguila.cli.replay",
        "aguila.client.transports.httpx2",
        "aguila.codec.protobuf",
        "aguila.server",
        "aguila.store.sqlite.store",
        "aguila.testing.recordings",
        "uvicorn.lifespan.on",
        "uvicorn.loops.auto",
        "uvicorn.protocols.http.auto",
        "uvicorn.protocols.websockets.auto",
    ]
)


class ForkedProcess:
    """The part of ``subprocess.Popen`` that tests use. It leads a process group of its own.

    ``command`` is ``["-m", module, ...]`` or ``[script, ...]``, after ``"-W", "error"`` or not. The standard streams
    are files.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, streams: Sequence[Path], environment: Mapping[str, str]
    ) -> None:
        self._command = list(command)
        arguments = (self._command, folder, list(streams), dict(environment))
        self._process = _CONTEXT.Process(target=_main, args=arguments)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        status = self._process.exitcode
        if status is None:
            raise subprocess.TimeoutExpired(self._command, timeout or 0.0)
        return status

    def send_signal(self, number: int) -> None:
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def aguila(*arguments: str, folder: Path | None = None, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run a command of Aguila to its end, in this folder."""
    return run(["-m", "aguila", *arguments], folder or Path.cwd(), stdin)


def run_script(path: Path, folder: Path, *arguments: str, **environment: str) -> str:
    """Run a script to its end, in this folder; return what it prints. It must succeed without a warning."""
    done = run(["-W", "error", str(path), *arguments], folder, environment=environment)
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
    return done.stdout.decode()


def run(
    command: Sequence[str], folder: Path, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end, in this folder."""
    with tempfile.TemporaryDirectory() as place:
        streams = [Path(place, name) for name in ("stdin", "stdout", "stderr")]
        streams[0].write_bytes(stdin)
        process = ForkedProcess(command, folder, streams, {**os.environ, **(environment or {})})
        try:
            status = process.wait(DEADLINE)
        finally:
            process.kill()
        return subprocess.CompletedProcess(command, status, streams[1].read_bytes(), streams[2].read_bytes())


def _main(command: list[str], folder: Path, streams: list[Path], environment: dict[str, str]) -> None:
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a runner in the background ignores it
    for number, path in enumerate(streams):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND if number else os.O_RDONLY, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.BufferedWriter(io.FileIO(number, "w", closefd=False)), "utf-8", line_buffering=True)
        for number in (1, 2)
    )
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:0] = [one for one in environment.get("PYTHONPATH", "").split(os.pathsep) if one and one not in sys.path]
    if command[:2] == ["-W", "error"]:
        warnings.simplefilter("error")
        command = command[2:]
    if command[0] == "-m":
        sys.path.insert(0, str(folder))
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(command[0]).parent))
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")
