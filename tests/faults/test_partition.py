"""A server that is cut off from the database by the network, in a network namespace of its own."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from postgres_cluster import Cluster, find_programs, make_folder
from serving import REPOSITORY
from waiting import DEADLINE, wait_until

from aguila.store import PostgresStore, RunEnd

pytestmark = pytest.mark.anyio


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Namespace:
    """A network namespace that is joined to this machine by one link, which can be taken down."""

    def __init__(self) -> None:
        self.name = f"aguila{secrets.token_hex(3)}"
        self.near = f"v{secrets.token_hex(4)}"
        part = 1 + secrets.randbelow(250)
        self.host = f"10.213.{part}.1"
        ip("netns", "add", self.name)
        ip("link", "add", self.near, "type", "veth", "peer", "name", "far", "netns", self.name)
        ip("addr", "add", f"{self.host}/24", "dev", self.near)
        ip("link", "set", self.near, "up")
        ip("-n", self.name, "addr", "add", f"10.213.{part}.2/24", "dev", "far")
        ip("-n", self.name, "link", "set", "far", "up")

    def cut(self) -> None:
        ip("link", "set", self.near, "down")

    def heal(self) -> None:
        ip("link", "set", self.near, "up")

    def remove(self) -> None:
        ip("netns", "del", self.name)


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    if find_programs() is None or os.getuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs PostgreSQL, root and the program ip; test_postgres.py cuts links by a proxy")
    try:
        found = Namespace()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this machine allows no network namespaces: {error.stderr.decode().strip()}")
    yield found
    found.remove()


@pytest.fixture
def cluster(namespace: Namespace) -> Iterator[Cluster]:
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
        return subprocess.Popen(command, stdout=file)


async def test_a_server_that_is_cut_off_loses_its_run_and_nothing_else(namespace: Namespace, cluster: Cluster):
    store = PostgresStore(cluster.dsn, patience=30.0)
    await store.open()
    far = f"postgresql://aguila@{namespace.host}:{cluster.port}/postgres"
    script = REPOSITORY / "tests" / "support" / "postgres_appender.py"
    command = ["ip", "netns", "exec", namespace.name, sys.executable, str(script), far, "aguila"]
    output = Path(cluster.folder, "appended")
    process = start(command, output)
    try:

        def printed() -> list[str]:
            assert process.poll() in (None, 0)
            return output.read_text().splitlines()

        await asyncio.to_thread(wait_until, lambda: len(printed()) > 20)
        namespace.cut()
        await asyncio.sleep(0.5)  # shorter than its lease and its patience
        namespace.heal()
        count = len(printed())
        await asyncio.to_thread(wait_until, lambda: len(printed()) > count + 20)
        namespace.cut()
        async with asyncio.timeout(DEADLINE):
            while not (found := await store.expired()):  # noqa: ASYNC110 - the lease is in the database
                await asyncio.sleep(0.05)
        lease = await store.take_over(found[0], owner="other", lease_seconds=30)
        assert lease is not None
        ended = await store.append(lease, [b'{"n":"lost"}'], end=RunEnd(outcome="error"))
        namespace.heal()
        await asyncio.to_thread(wait_until, lambda: printed()[-1] == "stale")
        stored = [int(line) for line in printed() if line.isdigit()]
        assert stored == list(range(2, len(stored) + 2))
        events = [event for batch in await store.read("a", "t", limit=100_000) for event in batch.events]
        assert events[: len(stored) + 1] == [b'{"n":%d}' % number for number in range(1, len(stored) + 2)]
        assert len(events) - len(stored) in (2, 3)  # one append may have been committed without an answer
        assert ended.last == len(events)
        assert events[-1] == b'{"n":"lost"}'
    finally:
        process.kill()
        process.wait()
        await store.close()
