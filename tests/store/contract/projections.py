"""The projections of runs: written with the end of a run or later, with each value stored once."""

from __future__ import annotations

import json

from aguila.errors import StaleLease
from aguila.store import Retention, RunEnd, RunProjection, Store
from aguila.store.run_inputs import hash_json
from contract.inputs import fits, image, request, send
from contract.support import Clock, StoreTest, lines, start

KIB = 1024


def projection(body: bytes, *values: bytes, version: int = 1) -> RunProjection:
    return RunProjection(format=version, body=body, values={hash_json(value): value for value in values})


async def end(store: Store, run_id: str, new: RunProjection | None, thread_id: str = "t", scope: str = "a") -> None:
    """Run once, and end with this projection."""
    lease = await start(store, thread_id, run_id, scope=scope)
    await store.append(lease, lines("finished"), end=RunEnd(outcome="success", projection=new))


class ProjectionsContract(StoreTest):
    """The treatment of projections."""

    async def test_a_projection_is_stored_with_the_end_of_its_run(self, store: Store):
        await end(store, "r1", projection(b"one", b"[1]"))
        await end(store, "r2", None)
        await end(store, "r3", projection(b"\x00\xff", b"[1]", b"[2]", version=7))
        lease = await start(store, "t", "r4")
        found = await store.projections("a", "t")
        assert [(one.run_id, one.first, one.last, one.format, one.body) for one in found] == [
            ("r1", 1, 2, 1, b"one"),
            ("r3", 5, 6, 7, b"\x00\xff"),
        ]
        for after, runs in ((0, ["r1", "r3"]), (1, ["r3"]), (4, ["r3"]), (5, [])):
            assert [one.run_id for one in await store.projections("a", "t", after)] == runs
        digests = [hash_json(value) for value in (b"[1]", b"[2]", b"[3]")]
        assert await store.values("a", "t", digests) == {digests[0]: b"[1]", digests[1]: b"[2]"}
        for scope, thread_id in (("b", "t"), ("a", "other")):
            assert list(await store.projections(scope, thread_id)) == []
            assert await store.values(scope, thread_id, digests) == {}
        await store.append(lease, lines("finished"), end=RunEnd(outcome="success"))

    async def test_a_refused_end_stores_no_projection(self, store: Store, clock: Clock):
        lease = await start(store)
        clock.now += 100
        (run,) = await store.expired()
        assert await store.take_over(run, owner="new", lease_seconds=30) is not None
        refused = RunEnd(outcome="success", projection=projection(b"one", b"[1]"))
        try:
            await store.append(lease, lines("finished"), end=refused)
        except StaleLease:
            pass
        else:
            raise AssertionError("a stale lease was accepted")
        assert list(await store.projections("a", "t")) == []
        assert await store.values("a", "t", [hash_json(b"[1]")]) == {}

    async def test_a_projection_is_saved_for_closed_runs_only(self, store: Store):
        await end(store, "r1", None)
        await end(store, "r2", projection(b"old"))
        before = await store.thread("a", "t")
        lease = await start(store, "t", "r3")
        new = {
            run_id: projection(b"new " + run_id.encode(), b"[1]", version=2) for run_id in ("r1", "r2", "r3", "missing")
        }
        await store.save_projections("a", "t", new)
        await store.save_projections("a", "other", new)
        found = await store.projections("a", "t")
        assert [(one.body, one.format) for one in found] == [(b"new r1", 2), (b"new r2", 2)]
        assert await store.values("a", "t", [hash_json(b"[1]")]) == {hash_json(b"[1]"): b"[1]"}
        await store.append(lease, lines("finished"), end=RunEnd(outcome="success"))
        assert (await store.thread("a", "t")).created_at == before.created_at

    async def test_values_and_inline_files_are_stored_once(self, store: Store):
        size = 512 * KIB
        messages = [image(1, size)]
        value = json.dumps(messages[0]).encode()
        for number in range(20):
            await send(store, f"s{number}", request(f"s{number}", messages))
            await store.save_projections("a", "t", {f"s{number}": projection(b"%d" % number, value)})
        assert await store.values("a", "t", [hash_json(value)]) == {hash_json(value): value}
        assert await fits(store, size + 64 * KIB)

    async def test_projections_count_and_are_removed_with_their_thread(self, store: Store):
        await end(store, "r", projection(b"x" * 40 * KIB, json.dumps(["é\\" * 10 * KIB]).encode()))
        assert not await fits(store, 64 * KIB)  # the thread is removed
        assert list(await store.projections("a", "t")) == []
        await end(store, "r", projection(b"y"))
        await store.delete_thread("a", "t")
        await end(store, "r", None)
        assert list(await store.projections("a", "t")) == []
        assert await store.prune(Retention(max_bytes=8 * KIB)) == 0
