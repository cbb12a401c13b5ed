"""gunicorn and ``uvicorn --workers`` as hosts of an app, whose workers add up their metrics."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from deployed import CLIENTS, DEPLOY, HEADERS, load, says, write_service
from httpx2 import Client
from metrics import samples
from ports import free_port
from processes.commands import Command
from serving import Background
from waiting import wait_until

PROGRAMS = Path(sys.executable).parent
GUNICORN = ["gunicorn", "--config", str(DEPLOY / "gunicorn.conf.py")]
HOSTS = {
    "gunicorn": [*GUNICORN, "--bind", "127.0.0.1:{port}", "service:app"],
    "gunicorn's own worker": [*GUNICORN, "--worker-class", "asgi", "--bind", "127.0.0.1:{port}", "service:app"],
    "uvicorn": ["uvicorn", "--workers", "2", "--port", "{port}", "--no-access-log", "workers:app"],
}
LONG = "word " * 60
METRICS = """
from aguila.server import Metrics

app = App(
    agent,
    metrics=Metrics(folder="metrics", authenticate=lambda request: "prometheus"),
"""


def workers_of(pid: int) -> list[Path]:
    """Return the folders in /proc of the workers; Python's own helper of such processes is none."""
    folders = [Path("/proc", one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [folder for folder in folders if b"resource_tracker" not in (folder / "cmdline").read_bytes()]


@pytest.mark.parametrize("host", HOSTS)
def test_sighup_replaces_the_workers_and_sigterm_drains_them_without_a_lost_run(host: str, tmp_path: Path) -> None:
    write_service(tmp_path)
    service = tmp_path / "service.py"
    service.write_text(service.read_text().replace("\napp = App(\n    agent,\n", METRICS))
    (tmp_path / "workers.py").write_text("from service import app\n\napp.has_siblings = True\n")
    port = free_port()
    program, *arguments = (word.format(port=port) for word in HOSTS[host])
    environment = {"AGUILA_STORE": "threads.db", "TOKENS": '{"token-of-ada": "ada"}', "HOME": str(tmp_path)}
    server = Command([str(PROGRAMS / program), *arguments], port, tmp_path, "/readyz", environment)
    try:
        with Client(base_url=server.url, headers=HEADERS) as client:
            workers = workers_of(server.process.pid)
            with Background(lambda: says(client, LONG, "long")) as long, load(server.url) as said:
                wait_until(lambda: len(said) > CLIENTS)
                server.process.send_signal(signal.SIGHUP)
                wait_until(lambda: not any(worker.exists() for worker in workers))
            assert long.result() == "I hear: " + LONG
            assert len(said) > CLIENTS
            # Those of the workers that are gone are counted, too.
            ended = "aguila_run_ended_total success"
            wait_until(lambda: samples(client.get("/metrics").text)[ended] == len(said) + 1)
            with Background(lambda: says(client, LONG, "last")) as last:
                wait_until(lambda: client.get("/threads/last").status_code == 200)
                assert server.terminate() in (0, -signal.SIGTERM)
                assert last.result() == "I hear: " + LONG
    finally:
        server.stop()
