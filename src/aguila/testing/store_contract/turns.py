"""The store contract: what each run changed, written with its end or later, with each value stored once."""

from __future__ import annotations

import json

import pytest

from aguila.errors import NotFound, StaleLease
from aguila.store import NewTurns, RunEnd, RunKey, Store, Turn, Want
from aguila.store.contents import hash_content
from aguila.testing.store_contract.requests import image, request, send
from aguila.testing.store_contract.support import (
    LEASE,
    Clock,
    StoreTest,
    append,
    delete,
    finish,
    lines,
    start,
    summary_of,
    take,
    usage_of,
)

KIB = 1024


def turn_of(body: bytes, *values: bytes, version: int = 1) -> Turn:
    return Turn(format=version, body=body, values={hash_content(value): value for value in values})


async def end(store: Store, run_id: str, turn: Turn | None, thread_id: str = "t", scope: str = "a") -> None:
    """Run once, and end with this turn."""
    lease = await start(store, thread_id, run_id, scope=scope)
    await append(store, lease, lines("finished"), end=RunEnd(outcome="success", turn=turn))


async def turns_of(store: Store, after: int = 0) -> dict[str, tuple[int, bytes] | None]:
    """Return format and body of the turns of the runs after a number, by run id."""
    found = await store.thread("a", "t", Want(runs=True, runs_after=after, turns=True))
    return {run.run_id: run.turn and (run.turn.format, run.turn.body) for run in found.runs}


class TurnsContract(StoreTest):
    async def test_a_turn_is_stored_with_the_end_of_its_run(self, store: Store):
        await end(store, "r1", turn_of(b"one", b"[1]"))
        await end(store, "r2", None)
        await end(store, "r3", turn_of(b"\x00\xff", b"[1]", b"[2]", version=7))
        lease = await start(store, "t", "r4")
        found = {"r1": (1, b"one"), "r2": None, "r3": (7, b"\x00\xff"), "r4": None}
        for after in range(5):
            assert await turns_of(store, after) == dict(list(found.items())[after:])
        run = await store.run(RunKey("a", "t", "r3"), turns=True)
        assert run.turn == Turn(format=7, body=b"\x00\xff")  # without its values
        digests = [hash_content(value) for value in (b"[1]", b"[2]", b"[3]")]
        assert await store.values("a", "t", digests) == {digests[0]: b"[1]", digests[1]: b"[2]"}
        for scope, thread_id in (("b", "t"), ("a", "other")):
            assert await store.values(scope, thread_id, digests) == {}
        assert await store.values("a", "t", []) == {}
        await finish(store, lease)

    async def test_a_refused_end_stores_no_turn(self, store: Store, clock: Clock):
        lease = await start(store)
        clock.now += LEASE
        await take(store)
        refused = RunEnd(outcome="success", turn=turn_of(b"one", b"[1]"))
        with pytest.raises(StaleLease):
            await append(store, lease, lines("finished"), end=refused)
        assert await turns_of(store) == {"r": None}
        assert await store.values("a", "t", [hash_content(b"[1]")]) == {}

    async def test_a_turn_is_added_to_closed_runs_only(self, store: Store):
        await end(store, "r1", None)
        await end(store, "r2", turn_of(b"old"))
        lease = await start(store, "t", "r3")
        before = await summary_of(store)
        new = {name: turn_of(b"new " + name.encode(), b"[1]", version=2) for name in ("r1", "r2", "r3", "missing")}
        assert await store.amend("a", "t", NewTurns(new)) == before
        assert await turns_of(store) == {"r1": (2, b"new r1"), "r2": (2, b"new r2"), "r3": None}
        assert await store.values("a", "t", [hash_content(b"[1]")]) == {hash_content(b"[1]"): b"[1]"}
        with pytest.raises(NotFound):
            await store.amend("a", "other", NewTurns(new))
        await finish(store, lease)

    async def test_values_and_inline_files_are_stored_once(self, store: Store):
        size = 512 * KIB
        messages = [image(1, size)]
        value = json.dumps(messages[0]).encode()
        for number in range(20):
            await send(store, f"s{number}", request(f"s{number}", messages))
            await store.amend("a", "t", NewTurns({f"s{number}": turn_of(b"%d" % number, value)}))
        assert await store.values("a", "t", [hash_content(value)]) == {hash_content(value): value}
        assert (await usage_of(store)).bytes < size + 64 * KIB

    async def test_turns_count_and_are_removed_with_their_thread(self, store: Store):
        value = json.dumps(["\u00e9\\" * 10 * KIB]).encode()
        await end(store, "r", turn_of(b"x" * 40 * KIB, value))
        assert (await usage_of(store)).bytes > 40 * KIB + len(value)
        await delete(store)
        await end(store, "r", None)
        assert await turns_of(store) == {"r": None}
        assert await store.values("a", "t", [hash_content(value)]) == {}
        assert (await usage_of(store)).bytes < 8 * KIB

    async def test_many_values_are_read_at_once(self, store: Store):
        values = [b'{"number":%d}' % number for number in range(3000)]
        await end(store, "r", turn_of(b"many", *values))
        found = await store.values("a", "t", [hash_content(value) for value in values])
        assert found == {hash_content(value): value for value in values}
