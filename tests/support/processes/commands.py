"""Servers started by a command, each in its own process, on a free port of the loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
from ports import free_port
from serving import REPOSITORY, Peer
from waiting import DEADLINE, wait_until

from processes.forked import ForkedProcess


class Command(Peer):
    """A server that was started by a command. ``log`` is what it wrote, both streams together.

    A Python program is forked (see ``forked``), unless it starts others of its kind.
    """

    def __init__(
        self, command: Sequence[str], port: int, folder: Path, health: str, environment: dict[str, str]
    ) -> None:
        self._log = folder / f"server-{port}.log"
        environment = {**os.environ, **environment}
        if command[0] == sys.executable and not {"--workers", "--reload"}.intersection(command):
            streams = [Path(os.devnull), self._log, self._log]
            self.process = ForkedProcess(command[1:], folder, streams, environment)
        else:
            with self._log.open("wb") as out:
                self.process = subprocess.Popen(
                    command,
                    cwd=folder,
                    env=environment,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # so that its workers can be ended with it
                )
        super().__init__(f"http://127.0.0.1:{port}")
        self._health = health
        try:
            wait_until(self._answers)
        except BaseException:
            self.stop()
            raise

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log
        try:
            return self.get(self._health).status_code == 200
        except httpx2.TransportError:
            return False

    @property
    def log(self) -> str:
        return self._log.read_text()

    def terminate(self) -> int:
        """Ask the process to stop, as a supervisor does; return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE)

    @contextmanager
    def peer(self) -> Iterator[Peer]:
        """Another client, with connections of its own."""
        peer = Peer(self.url)
        try:
            yield peer
        finally:
            peer.close()

    def stop(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(DEADLINE)
        self.close()


@contextmanager
def aguila_serve(folder: Path, *arguments: str, command_name: str = "serve") -> Iterator[Command]:
    """``aguila serve``, or another command that serves, with these arguments, in a folder."""
    port = free_port()
    command = [sys.executable, "-m", "aguila", command_name, *arguments, "--port", str(port)]
    server = Command(command, port, folder, "/healthz", {})
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def example(name: str, folder: Path, health: str = "/healthz") -> Iterator[Command]:
    """An example, run as its docstring says, in a folder."""
    port = free_port()
    script = REPOSITORY / "examples" / name
    server = Command([sys.executable, str(script)], port, folder, health, {"PORT": str(port)})
    try:
        yield server
    finally:
        server.stop()
