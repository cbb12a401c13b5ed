"""What one process of ``aguila serve`` needs on PostgreSQL: memory, processor, connections and storage.

Processor time is that of the processes, so that other load on the machine does not count. The table of
docs/deploying.md comes from ``python -m benchmarks sizing``.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.postgres import database, find_programs

VIEWERS = 1000
THREADS = 10
"""How many threads the viewers follow."""
RUNS = 200
DELTAS = 80
RATE = 4
"""Deltas a second of each run."""

SERVICE = """
import asyncio, os
from aguila import App
from aguila.server import Limits

async def agent(run):
    if run.forwarded_props == "wait":
        await asyncio.Event().wait()
    for number in range({deltas}):
        await asyncio.sleep(1 / {rate})
        yield f"word {{number}} "

app = App(agent, store=os.environ["DSN"], limits=Limits(runs_per_scope=10_000), allow_anonymous=True)
"""


class Server:
    """``aguila serve`` on a database of its own."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, dsn: str) -> None:
        self._process = process
        self.port = port
        self._dsn = dsn

    @property
    def memory(self) -> float:
        """Resident megabytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1000

    @property
    def cpu(self) -> float:
        """Seconds of processor time."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def query(self, sql: str) -> int:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            found = connection.execute(sql.encode()).fetchone()
            assert found is not None
            return int(found[0])

    @property
    def connections(self) -> int:
        """Those that the process has to the database."""
        return self.query("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'aguila%'")

    @property
    def stored(self) -> int:
        """Bytes of the tables and their indexes."""
        return self.query(
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
            " WHERE relkind = 'r' AND relnamespace = 'aguila'::regnamespace"
        )


@contextmanager
def served() -> Generator[Server]:
    with ExitStack() as stack:
        dsn = stack.enter_context(database())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "sized.py").write_text(SERVICE.format(deltas=DELTAS, rate=RATE))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        command = [sys.executable, "-m", "aguila", "serve", "sized:app", "--port", str(port), "--log-level", "error"]
        process = subprocess.Popen(command, cwd=folder, env={**os.environ, "DSN": dsn}, stdout=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.kill)
        wait_until_ready(process, port)
        yield Server(process, port, dsn)


def wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz"):
                return
        except OSError:
            continue
    raise RuntimeError("the server did not start")


async def request(port: int, method: str, path: str, body: Any = None) -> tuple[asyncio.StreamReader, Any]:
    """Send a request; return once the head of the response has come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
    answer = await reader.readuntil(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200"), answer
    return reader, writer


async def run(port: int, name: str, **members: Any) -> tuple[asyncio.StreamReader, Any]:
    """Start a run; return once its first event has come."""
    message = {"id": "m", "role": "user", "content": "Hello"}
    body = {"threadId": name, "runId": "r", "messages": [message], "protocolVersion": "1.1", **members}
    reader, writer = await request(port, "POST", "/", body)
    await reader.readuntil(b"RUN_STARTED")
    return reader, writer


async def finish(reader: asyncio.StreamReader) -> None:
    await reader.readuntil(b"RUN_FINISHED")


async def measure(server: Server) -> list[tuple[str, float, str]]:
    warm = [await run(server.port, f"warm {number}") for number in range(20)]
    await asyncio.gather(*(finish(reader) for reader, _ in warm))
    found = [("memory of a process", server.memory, "MB")]
    open_streams = [await run(server.port, f"idle{number}", forwardedProps="wait") for number in range(THREADS)]
    for number in range(VIEWERS - THREADS):
        open_streams.append(await request(server.port, "GET", f"/threads/idle{number % THREADS}/events"))
    found.append((f"memory with {VIEWERS:,} idle viewers", server.memory, "MB"))
    before, stored = server.cpu, server.stored
    running = [await run(server.port, f"run {number}") for number in range(RUNS)]
    ends = asyncio.gather(*(finish(reader) for reader, _ in running))
    await asyncio.sleep(DELTAS / RATE / 2)
    found.append((f"memory with {RUNS} running runs besides", server.memory, "MB"))
    connections = server.connections
    await ends
    cores = (server.cpu - before) / (DELTAS / RATE)
    found.append((f"processor for {RUNS} runs of {RATE} deltas a second", cores, "cores"))
    found.append(("connections to the database", connections, ""))
    found.append((f"storage of a run of {DELTAS} deltas", (server.stored - stored) / RUNS / 1000, "KB"))
    for _, writer in [*warm, *open_streams, *running]:
        writer.close()
    return found


def rows() -> list[dict[str, Any]]:
    if find_programs() is None and "AGUILA_POSTGRES" not in os.environ:
        print("PostgreSQL is not installed: the sizing is left out", file=sys.stderr)
        return []
    with served() as server:
        found = asyncio.run(measure(server))
    return [{"name": f"sizing: {name}", "value": value, "unit": unit} for name, value, unit in found]
