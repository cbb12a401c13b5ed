"""``python tests/peers/matrix.py [--check] [PEER ...]``: try every feature on every peer and write the tables.

``docs/peers.md`` has the servers of others, called by our client, and the clients of others, calling our server;
``docs/frameworks.md`` has the agents of frameworks behind ``App``, and the servers of others behind ``upstream``. With
names only those peers are tried. ``--check`` tries nothing: it compares the documents with the recorded results.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parents[1] / "support"))  # as pytest does

from environments import (
    CLIENTS,
    DEMO,
    FRAMEWORKS,
    GATEWAY,
    HERE,
    PEERS,
    SERVERS,
    START_DEADLINE,
    Blocked,
    Peer,
    Running,
    interpreter,
    running,
)
from features import CLIENT_FEATURES, FEATURES, FRAMEWORK_FEATURES, Broken, Feature, Trial, error_text
from tables import TABLES, Cell, Column, Results, documents

from aguila.errors import AguilaError, ProtocolError

Features = Mapping[str, Feature]

DEADLINE = 180.0 + START_DEADLINE
"""Seconds that a feature may take. That of kill -9 starts a second server."""


async def try_feature(peer: Peer, server: Running, feature: Feature) -> Cell:
    """Return one cell. A feature that fails at the default compatibility level is tried again at the widest."""
    cell, is_protocol = await _attempt(peer, server, feature, "standard")
    if cell.verdict == "fails" and is_protocol:
        wider, _ = await _attempt(peer, server, feature, "wide")
        if wider.verdict == "works":
            return wider._replace(remarks=(f"needs `compat='wide'`: {cell.reason}", *wider.remarks))
    return cell


async def _attempt(peer: Peer, server: Running, feature: Feature, compat: str) -> tuple[Cell, bool]:
    trial = Trial(peer, server, compat)  # type: ignore[arg-type]
    verdict, reason, is_protocol = "works", "", False
    try:
        async with asyncio.timeout(DEADLINE):
            await feature(trial)
    except (Broken, TimeoutError) as error:
        verdict, reason = "fails", str(error) or f"it did not end in {DEADLINE:.0f} seconds"
    except AguilaError as error:
        verdict, reason, is_protocol = "fails", error_text(error), isinstance(error, ProtocolError)
    finally:
        await trial.client.close()
    trial.judge()
    return Cell(verdict, reason, tuple(trial.remarks)), is_protocol


def try_peer(peer: Peer, features: Features = FEATURES) -> Column:
    """Try features of one peer."""
    try:
        with tempfile.TemporaryDirectory() as folder, running(peer, _store(folder)) as server:
            return _try_all(peer, server, features)
    except Blocked as blocked:
        return {name: Cell("blocked", str(blocked)) for name in features}


def _store(folder: str) -> dict[str, str]:
    return {"PEER_STORE": str(Path(folder) / "threads.db")}


def _try_all(peer: Peer, server: Any, features: Features) -> Column:
    async def all_features() -> Column:
        return {name: await try_feature(peer, server, feature) for name, feature in features.items()}

    return asyncio.run(all_features())


class Gateway(NamedTuple):
    """Our server before a peer: clients call it, and the peer counts."""

    url: str
    pid: int
    peer: Running
    environment: dict[str, str]

    def counts(self) -> dict[str, int]:
        return self.peer.counts()


STATE_KEYS = {"langgraph": ["count"]}


def try_upstream(peer: Peer, features: Features = FRAMEWORK_FEATURES) -> Column:
    """Try features of one peer behind ``upstream``."""
    try:
        with tempfile.TemporaryDirectory() as folder, running(peer) as server:
            options = {"protobuf": peer.is_protobuf, "state_keys": STATE_KEYS.get(peer.name)}
            environment = {"PEER_URL": server.url + peer.path, "PEER_OPTIONS": json.dumps(options)}
            environment |= _store(folder)
            with running(GATEWAY, environment) as front:
                return _try_all(GATEWAY, Gateway(*front[:2], server, environment), features)
    except Blocked as blocked:
        return {name: Cell("blocked", str(blocked)) for name in features}


def try_client(peer: Peer) -> Column:
    """Try a client of others on our server: its program prints a verdict and a reason for each feature."""
    try:
        program = interpreter(peer)
        with tempfile.TemporaryDirectory() as folder, running(DEMO, _store(folder)) as server:
            command = [program, str(HERE / peer.program), server.url]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
    except Blocked as blocked:
        return {name: Cell("blocked", str(blocked)) for name in CLIENT_FEATURES}
    if done.returncode:
        return {name: Cell("fails", done.stderr.strip().splitlines()[-1]) for name in CLIENT_FEATURES}
    cells = json.loads(done.stdout.splitlines()[-1])
    return {name: Cell(*cells[name]) for name in CLIENT_FEATURES}


def main(arguments: list[str]) -> int:
    names = set(arguments) - {"--check"}
    unknown = names - {peer.name for peer in (*PEERS, *FRAMEWORKS, *SERVERS, *CLIENTS)}
    if unknown:
        print(f"no such peer: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    results = Results.load()
    if "--check" in arguments:
        differing = [path.name for path, text in documents(results).items() if path.read_text() != text]
        print("\n".join(f"docs/{name} does not show tests/peers/results.json: make peers" for name in differing))
        return 1 if differing else 0
    blocked: list[str] = []
    for table, (peers, features) in TABLES.items():
        for peer in peers:
            if names and peer.name not in names:
                continue
            if table == "server":
                column = try_client(peer)
            else:
                column = try_upstream(peer, features) if table == "upstream" else try_peer(peer, features)
            results.record(table, peer, column)
            for feature, cell in column.items():
                print(table, peer.name, feature, *cell, flush=True)
            blocked += [peer.title for cell in column.values() if cell.verdict == "blocked"][:1]
    for path, text in documents(results).items():
        path.write_text(text)
    return 1 if blocked else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
