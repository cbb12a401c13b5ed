"""Servers that are cut off from the database, and from each other, by the network.

Each server is in a network namespace of its own, where the machine allows it. Elsewhere it reaches the database through
a proxy that can be frozen; ``make faults`` tests both.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from faults.database_link import DatabaseLink
from faults.kit import LONG, PATIENCE, Valve, Viewer, act, events_of, terminal
from serving import REPOSITORY
from stores.postgres_cluster import Cluster, find_programs, make_folder
from waiting import DEADLINE, wait_until, wait_until_async

from aguila.store import PostgresStore, RunChange, RunEnd

pytestmark = pytest.mark.anyio

SUPPORT = REPOSITORY / "tests" / "support"


class Place(ABC):
    """Where a server runs: it reaches the database by one link, which can be cut."""

    host: str
    """The address of a server in this place."""

    @abstractmethod
    def dsn(self, cluster: Cluster) -> str:
        """Return the DSN of a database as seen from here."""

    @abstractmethod
    def command(self, *arguments: str) -> list[str]:
        """Return the command that runs Python here."""

    @abstractmethod
    def cut(self) -> None:
        """Let nothing pass to or from the database, without closing anything."""

    @abstractmethod
    def heal(self) -> None:
        """Let everything pass again."""

    @abstractmethod
    def remove(self) -> None: ...


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Namespace(Place):
    """A network namespace with two links to this machine: to the database, and for the clients of a server."""

    def __init__(self) -> None:
        self.name = f"aguila{secrets.token_hex(3)}"
        part = 4 * secrets.randbelow(2**14)  # a network of four addresses: rarely that of another test or place
        ip("netns", "add", self.name)
        self._near, self._database, _ = self._link("db", "10.213", part)
        _, _, self.host = self._link("web", "10.214", part)

    def _link(self, name: str, network: str, part: int) -> tuple[str, str, str]:
        """Make a link; return the name of its near end, and the addresses of the near and the far end."""
        near = f"v{secrets.token_hex(4)}"
        here, there = (f"{network}.{number // 256}.{number % 256}" for number in (part + 1, part + 2))
        ip("link", "add", near, "type", "veth", "peer", "name", name, "netns", self.name)
        ip("addr", "add", f"{here}/30", "dev", near)
        ip("link", "set", near, "up")
        ip("-n", self.name, "addr", "add", f"{there}/30", "dev", name)
        ip("-n", self.name, "link", "set", name, "up")
        return near, here, there

    def dsn(self, cluster: Cluster) -> str:
        return f"postgresql://aguila@{self._database}:{cluster.port}/postgres"

    def command(self, *arguments: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, sys.executable, *arguments]

    def cut(self) -> None:
        ip("link", "set", self._near, "down")

    def heal(self) -> None:
        ip("link", "set", self._near, "up")

    def remove(self) -> None:
        ip("netns", "del", self.name)

    def can_reach(self, host: str, port: int) -> bool:
        """Return whether a program here can connect to an address."""
        probe = f"import socket; socket.create_connection(({host!r}, {port}), timeout=5)"
        return subprocess.run(self.command("-c", probe), check=False, capture_output=True).returncode == 0


class Proxied(Place):
    """A link to the database through a proxy on the loopback address."""

    host = "127.0.0.1"

    def __init__(self) -> None:
        self._link: DatabaseLink | None = None

    def dsn(self, cluster: Cluster) -> str:
        self._link = DatabaseLink(cluster.port)
        return self._link.dsn()

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, *arguments]

    def cut(self) -> None:
        assert self._link is not None
        self._link.freeze()

    def heal(self) -> None:
        assert self._link is not None
        self._link.thaw()

    def remove(self) -> None:
        if self._link is not None:
            self._link.close()


@pytest.fixture(params=["namespace", "proxy"] if LONG else ["namespace"])
def make_place(request: pytest.FixtureRequest) -> Iterator[Callable[[], Place]]:
    """A function that makes places: namespaces, or proxies where there can be none."""
    with ExitStack() as made:

        def make() -> Place:
            try:
                place: Place = Namespace() if request.param == "namespace" else Proxied()
            except (OSError, subprocess.CalledProcessError):  # no program ip, or no right to make a namespace
                place = Proxied()
            made.callback(place.remove)
            return place

        yield make


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    if find_programs() is None:
        assert os.environ.get("CI") != "true", "PostgreSQL is not installed"
        pytest.skip("PostgreSQL is not installed")
    place = make_folder()
    cluster = Cluster(place / "node", listen_addresses="*")
    cluster.create()
    with (cluster.data / "pg_hba.conf").open("a") as file:
        file.write("host all all 10.213.0.0/16 trust\n")
    cluster.start()
    yield cluster
    cluster.stop()
    shutil.rmtree(place, ignore_errors=True)


def start(command: list[str], output: Path) -> subprocess.Popen[bytes]:
    with output.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=file)


class Server:
    """A server with its agents in a place."""

    count = 0

    def __init__(self, place: Place, cluster: Cluster, folder: Path) -> None:
        Server.count += 1
        self.host = place.host
        port = folder / f"port-{Server.count}"
        settings = {
            "folder": str(folder),
            "port": str(port),
            "host": place.host,
            "postgres": {"dsn": place.dsn(cluster), "patience": PATIENCE},
            "app": {"timing": {"lease": 60.0, "store_patience": PATIENCE}},
        }
        log = folder / f"server-{Server.count}.log"
        self._process = start(place.command(str(SUPPORT / "faults" / "app.py"), json.dumps(settings)), log)

        def is_up() -> bool:
            assert self._process.poll() is None, log.read_text()
            return port.exists() and port.read_text().endswith("\n")

        try:
            wait_until(is_up, PATIENCE)
        except BaseException:
            self.stop()
            raise
        self.port = int(port.read_text())

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


async def test_a_server_that_is_cut_off_loses_its_run_and_nothing_else(
    make_place: Callable[[], Place], cluster: Cluster
):
    place = make_place()
    store = PostgresStore(cluster.dsn, patience=30.0)
    await store.open()
    output = Path(cluster.folder, "appended")
    process = start(
        place.command(str(SUPPORT / "stores" / "postgres_appender.py"), place.dsn(cluster), "aguila"), output
    )
    try:

        def printed() -> list[str]:
            assert process.poll() in (None, 0)
            return output.read_text().splitlines()

        await asyncio.to_thread(wait_until, lambda: len(printed()) > 20)
        place.cut()
        await asyncio.sleep(0.5)  # shorter than its lease and its patience
        place.heal()
        count = len(printed())
        await asyncio.to_thread(wait_until, lambda: len(printed()) > count + 20)
        place.cut()
        async with asyncio.timeout(DEADLINE):
            while not (taken := await store.take_over("other", 30)):  # noqa: ASYNC110 - the lease is in the database
                await asyncio.sleep(0.05)
        change = RunChange(events=[b'{"n":"lost"}'], end=RunEnd(outcome="error"))
        ended = (await store.write(taken[0].lease, change)).batch
        place.heal()
        await asyncio.to_thread(wait_until, lambda: printed()[-1] == "stale")
        stored = [int(line) for line in printed() if line.isdigit()]
        assert stored == list(range(2, len(stored) + 2))
        events = [event for batch in (await store.read("a", "t", limit=100_000)).batches for event in batch.events]
        assert events[: len(stored) + 1] == [b'{"n":%d}' % number for number in range(1, len(stored) + 2)]
        assert len(events) - len(stored) in (2, 3)  # one append may have been committed without an answer
        assert ended.last == len(events)
        assert events[-1] == b'{"n":"lost"}'
    finally:
        process.kill()
        process.wait()
        await store.close()


async def test_servers_that_cannot_reach_each_other_share_runs(
    make_place: Callable[[], Place], cluster: Cluster, tmp_path: Path
):
    """The database is all that servers need. A viewer on a server that is cut off from it catches up afterwards."""
    places = [make_place(), make_place()]
    servers: list[Server] = []
    try:
        for place in places:
            servers.append(await asyncio.to_thread(Server, place, cluster, tmp_path))
        owner, other = servers
        if isinstance(places[1], Namespace):
            assert not places[1].can_reach(owner.host, owner.port)
        valve = Valve(tmp_path, "valve")
        near, far = Viewer("t", host=owner.host), Viewer("t", host=other.host)
        running = asyncio.create_task(near.post(owner.port, act("talk", "t", count=60, valve=valve.name)))
        valve.open_to(20)
        await wait_until_async(lambda: count_texts(near) >= 20)
        following = asyncio.create_task(far.follow(other.port))
        await wait_until_async(lambda: count_texts(far) >= 20)
        places[1].cut()
        valve.open_to(40)
        await wait_until_async(lambda: count_texts(near) >= 40)
        assert count_texts(far) < 40
        places[1].heal()
        await wait_until_async(lambda: count_texts(far) >= 40)
        valve.open()
        await asyncio.gather(running, following)
        assert near.frames == far.frames
        assert terminal(events_of(far.frames))[0]["type"] == "RUN_FINISHED"
        await cancel_from(other, owner)
    finally:
        for server in servers:
            server.stop()


def count_texts(viewer: Viewer) -> int:
    """Return how many pieces of ``talk`` a viewer has seen."""
    return sum(event.get("delta", "").count(":") for event in events_of(viewer.frames))


async def cancel_from(other: Server, owner: Server) -> None:
    """Start a run that never ends on one server; cancel it on the other."""
    viewer = Viewer("endless", host=owner.host)
    running = asyncio.create_task(viewer.post(owner.port, act("talk", "endless", count=10**6, pause=0.05)))
    await wait_until_async(lambda: viewer.frames)
    url = f"http://{other.host}:{other.port}/threads/endless/runs/run/cancel"
    answer: Any = await asyncio.to_thread(httpx2.post, url, headers={"host": "localhost"}, trust_env=False)
    assert answer.status_code in (200, 202), answer.text
    await running
    assert len(terminal(events_of(viewer.frames))) == 1
