"""Serving the same deltas next to the AG-UI servers of pydantic-ai and agent-framework, each in its own environment.

The servers are those of ``tests/peers``, with models that are scripted and cost nothing; the load is that of
``benchmarks.server``, from a process of its own. What counts is tokens, each a text delta of the model: some peers send
more besides, and we send fewer events. The peers need far longer for one, so they are given fewer runs at once.
``python -m benchmarks.server_peers load PORT RUNS HOW`` is the load.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from typing import Any

from benchmarks import server

sys.path.insert(0, str(server.HERE / "tests" / "support"))
sys.path.insert(0, str(server.HERE / "tests" / "peers"))
from environments import peer_named, running

PEERS = {"pydantic_ai": "pydantic-ai", "agent_framework": "agent-framework"}
PEER_RUNS = 10
WARM_UP = 2


async def load(port: int, runs: int, base: int, is_yielding: bool) -> float:
    """Tokens a second."""
    from aguila.codec.sse import SSEDecoder
    from aguila.stream import consume

    began = time.perf_counter()
    readers = await asyncio.gather(
        *(server.stream(port, base + i, deltas=server.DELTAS, yielding=is_yielding) for i in range(runs))
    )
    await asyncio.gather(*(reader.done for reader in readers))
    seconds = time.perf_counter() - began
    said = "".join(f"word{i} " for i in range(server.DELTAS))
    for reader in readers:
        messages = consume(SSEDecoder().feed(reader.body)).messages
        if [message.content for message in messages if message.role == "assistant"] != [said]:
            raise RuntimeError("a stream did not bring what the agent said")
    return runs * server.DELTAS / seconds


def run_load(port: int, runs: int, how: str) -> float:
    async def run() -> float:
        await load(port, WARM_UP, 0, how == "yielding")
        return max([await load(port, runs, 1000 * i, how == "yielding") for i in (1, 2)])

    return asyncio.run(run())


def measure(port: int, runs: int, how: str) -> float:
    command = [sys.executable, "-m", "benchmarks.server_peers", "load", str(port), str(runs), how]
    done = subprocess.run(command, cwd=server.HERE, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def measure_peer(name: str, how: str) -> float:
    scripted = {"PEER_DELTAS": str(server.DELTAS), "PEER_YIELDING": "1" if how == "yielding" else "0"}
    with running(peer_named(name), scripted) as peer:
        return measure(int(peer.url.rstrip("/").rpartition(":")[2]), PEER_RUNS, how)


def measure_ours(kind: str, how: str) -> float:
    with server.server(kind) as (port, _):
        return measure(port, server.RUNS, how)


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for how in ("hot", "yielding"):
        ours = {kind: measure_ours(kind, how) for kind in server.STORES}
        for name, title in PEERS.items():
            peer = measure_peer(name, how)
            for kind in server.STORES:
                found.append(
                    {
                        "name": f"serve {server.RUNS} runs of {server.DELTAS:,} tokens, {kind}, {how} source"
                        f" (peer: {PEER_RUNS} runs)",
                        "ours": ours[kind],
                        "peer": peer,
                        "peer_name": title,
                        "unit": "tokens/s",
                        "floor": server.FLOORS[kind][how == "yielding"],
                    }
                )
    return found


if __name__ == "__main__":
    print(json.dumps(run_load(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])))
