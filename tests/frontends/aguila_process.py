"""``aguila serve`` in a process of its own, with an SQLite file, that can be killed and started again on its port."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx2
from ports import free_port
from waiting import wait_until


class AguilaProcess:
    """The demo agent, served by the command line, to pages of one other origin if it is given.

    ``app`` is served instead, with its own options; it finds the store in ``AGUILA_STORE``.
    """

    def __init__(self, folder: Path, origin: str | None, *options: str, app: str | None = None) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        cors = [] if origin is None else ["--cors-origin", origin]
        store = str(folder / "threads.db")
        self._options = ["--store", store, *cors, "--drain", "0", *options] if app is None else [app]
        self._environment = {**os.environ, "AGUILA_STORE": store} if app is not None else None
        self._log = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by stop()
        self._client = httpx2.Client(base_url=self.url, timeout=60, trust_env=False)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "aguila", "serve", "--port", str(self.port), *self._options]
        self._process = subprocess.Popen(
            command,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            cwd=Path(__file__).parent if self._environment is not None else None,
            env=self._environment,
        )
        wait_until(self._answers)

    def restart(self) -> None:
        """Kill the process and start it again with the same file and port."""
        self.kill()
        self.start()

    def get(self, path: str) -> Any:
        response = self._client.get(path)
        response.raise_for_status()
        return response.json()

    def is_running(self, thread_id: str) -> bool:
        """Return whether the thread has a run in progress."""
        return any(run["status"] == "running" for run in self.get(f"/threads/{thread_id}")["runs"])

    def log(self) -> str:
        """Return the output of the process so far."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def stop(self) -> None:
        self.kill()
        self._client.close()
        self._log.close()

    def kill(self) -> None:
        """Kill the process."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(60)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        try:
            return self._client.get("/healthz").status_code == 200
        except httpx2.TransportError:
            return False
