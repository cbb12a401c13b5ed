"""The store contract: what a scope and the store hold, and quotas."""

from __future__ import annotations

import asyncio

import pytest

from aguila.errors import QuotaExceeded, RunExists, ThreadMoved
from aguila.store import Quotas, RunChange, RunEnd, Store, ThreadUpdate, Usage
from aguila.store.archives.archive import read_archive
from aguila.testing.store_contract.support import (
    StoreTest,
    append,
    complete,
    delete,
    delete_file,
    finish,
    lines,
    record,
    start,
    total_usage,
    usage_of,
)


async def put(
    store: Store, data: bytes, scope: str = "a", thread_id: str | None = None, quotas: Quotas | None = None
) -> str:
    """Store a file; return its id."""
    file = await store.put_file(scope, data, media_type="text/plain", thread_id=thread_id, quotas=quotas)
    return file.file_id


async def assert_refused(store: Store, quotas: Quotas, thread_id: str, run_id: str = "new") -> str:
    """Assert that a run of scope a is refused; return the quota."""
    with pytest.raises(QuotaExceeded) as refused:
        await start(store, thread_id, run_id, quotas=quotas)
    return refused.value.quota


class QuotasContract(StoreTest):
    async def test_usage_counts_threads_uploads_and_bytes_of_a_scope(self, store: Store):
        assert await usage_of(store) == await total_usage(store) == Usage()
        await complete(store, "t", "r")
        one = await usage_of(store)
        assert (one.threads, one.files) == (1, 0)
        assert one.bytes > 0
        await put(store, b"x" * 1000)
        await put(store, b"x" * 1000)  # stored once
        assert await usage_of(store) == Usage(threads=1, files=1, bytes=one.bytes + 1000)
        await complete(store, "t", "r", scope="b")
        assert await usage_of(store) == Usage(threads=1, files=1, bytes=one.bytes + 1000)
        assert await usage_of(store, "b") == one
        assert await total_usage(store) == Usage(threads=2, files=1, bytes=2 * one.bytes + 1000)

    async def test_usage_of_a_scope_counts_an_open_run_at_once(self, store: Store):
        lease = await start(store)
        before = await usage_of(store)
        assert before.threads == 1
        await append(store, lease, [b"1" * 500])
        assert (await usage_of(store)).bytes == before.bytes + 500
        await store.write(lease, RunChange(events=lines("end"), session=b"s" * 100, end=RunEnd(outcome="success")))
        after = await usage_of(store)
        assert (after.threads, after.bytes) == (1, before.bytes + 500 + len(lines("end")[0]) + 100)
        assert await total_usage(store) == after

    async def test_metadata_counts_with_its_index(self, store: Store):
        await complete(store, "t", "r")
        empty = await usage_of(store)
        await store.amend("a", "t", ThreadUpdate(metadata=b'{"m":"%b"}' % (b"x" * 92)))
        assert (await usage_of(store)).bytes == (await total_usage(store)).bytes == empty.bytes + 300
        await store.amend("a", "t", ThreadUpdate(metadata=None))
        assert await usage_of(store) == await total_usage(store) == empty

    async def test_usage_counts_effects_and_interrupts(self, store: Store):
        lease = await start(store)
        used = (await usage_of(store)).bytes
        await record(store, lease, "r", "effect", None)
        assert (await usage_of(store)).bytes == used
        await record(store, lease, "r", "effect", b"1" * 500)
        await record(store, lease, "r", "effect", b"2" * 900)  # the first result stays
        assert (await usage_of(store)).bytes == used + 500
        await append(store, lease, [b"{}"], end=RunEnd(outcome="interrupt", interrupts=[("i", b"i" * 300)]))
        assert (await usage_of(store)).bytes == (await total_usage(store)).bytes == used + 500 + 2 + 300
        lease = await start(store, run_id="next", claims=["i"])
        used = (await usage_of(store)).bytes
        await append(store, lease, [b"{}"], end=RunEnd(outcome="interrupt", interrupts=[("i", b"i" * 100)]))
        assert (await usage_of(store)).bytes == (await total_usage(store)).bytes == used + 2 + 100 - 300
        before = await usage_of(store)
        async with store.snapshot() as snapshot:
            archive = await read_archive(snapshot, "a", "t")
        await store.restore(archive, replace=True)
        assert await usage_of(store) == await total_usage(store) == before

    async def test_usage_shrinks_with_what_is_removed(self, store: Store):
        await complete(store, "t", "r")
        empty = await usage_of(store)
        await store.amend("a", "t", ThreadUpdate(title="x" * 50))
        assert (await usage_of(store)).bytes == (await total_usage(store)).bytes == empty.bytes + 50
        await store.amend("a", "t", ThreadUpdate(title=None))
        assert await usage_of(store) == empty
        file_id = await put(store, b"1" * 300)
        await put(store, b"2" * 300, thread_id="t")
        await delete_file(store, file_id)
        assert await usage_of(store) == Usage(threads=1, files=1, bytes=empty.bytes + 300)
        await delete(store)
        assert await usage_of(store) == await total_usage(store) == Usage()

    async def test_a_run_is_refused_when_a_quota_of_its_scope_is_reached(self, store: Store):
        quotas = Quotas(threads_per_scope=2, bytes_per_scope=10_000)
        await complete(store, "t1", "r")
        await finish(store, await start(store, "t2", quotas=quotas))
        assert await assert_refused(store, quotas, "t3") == "threads_per_scope"
        await finish(store, await start(store, "t3", scope="b", quotas=quotas))  # other scopes are not affected
        lease = await start(store, "t2", "r2", quotas=quotas)  # an existing thread
        await append(store, lease, [b"1" * 20_000])
        await finish(store, lease)  # a run that has begun is not cut
        assert await assert_refused(store, quotas, "t2") == "bytes_per_scope"
        await delete(store, "t2")
        await start(store, "t1", "r2", quotas=quotas)

    async def test_open_runs_count_for_the_quotas_of_their_scope(self, store: Store):
        quotas = Quotas(threads_per_scope=2, bytes_per_scope=10_000)
        first = await start(store, "t1", quotas=quotas)
        await start(store, "t2", quotas=quotas)
        assert await assert_refused(store, quotas, "t3") == "threads_per_scope"
        await append(store, first, [b"1" * 20_000])
        await append(store, first, lines("end"), end=RunEnd(outcome="success"))
        assert await assert_refused(store, Quotas(bytes_per_scope=10_000), "t3") == "bytes_per_scope"

    @pytest.mark.parametrize("quotas", [Quotas(files_per_scope=3), Quotas(files=3)])
    async def test_files_that_are_stored_at_once_do_not_exceed_the_quotas(self, store: Store, quotas: Quotas):
        scopes = ["a"] * 20 if quotas.files is None else [f"s{number}" for number in range(20)]
        puts = [put(store, b"%d" % number, scope, quotas=quotas) for number, scope in enumerate(scopes)]
        refused = [one for one in await asyncio.gather(*puts, return_exceptions=True) if not isinstance(one, str)]
        assert [type(one) for one in refused] == [QuotaExceeded] * 17
        assert (await total_usage(store)).files == 3

    async def test_a_run_is_refused_when_a_quota_of_the_store_is_reached(self, store: Store):
        await complete(store, "t", "r", scope="b")
        await complete(store, "t", "r", scope="c")
        assert await assert_refused(store, Quotas(threads=2), "t") == "threads"
        assert await assert_refused(store, Quotas(bytes=10), "t") == "bytes"
        await start(store, "t", quotas=Quotas(threads=3, bytes=100_000))

    async def test_a_quota_hides_neither_a_used_run_id_nor_comes_after_the_plan(self, store: Store):
        await complete(store, "t", "r")
        full = Quotas(bytes_per_scope=1)
        with pytest.raises(RunExists):
            await start(store, "t", "r", quotas=full)
        with pytest.raises(ThreadMoved):
            await start(store, "t", "r2", after=1)
        with pytest.raises(QuotaExceeded):
            await start(store, "t", "r2", after=1, quotas=full)

    async def test_a_file_is_refused_when_it_would_exceed_a_quota(self, store: Store):
        quotas = Quotas(files_per_scope=2, bytes_per_scope=1000)
        await put(store, b"1" * 400, quotas=quotas)
        with pytest.raises(QuotaExceeded) as refused:
            await put(store, b"2" * 601, quotas=quotas)
        assert refused.value.quota == "bytes_per_scope"
        await put(store, b"2" * 600, quotas=quotas)
        assert await usage_of(store) == Usage(files=2, bytes=1000)
        await put(store, b"1" * 400, quotas=quotas)  # it is stored
        with pytest.raises(QuotaExceeded) as refused:
            await put(store, b"3", quotas=quotas)
        assert refused.value.quota == "files_per_scope"
        await put(store, b"3", scope="b", quotas=quotas)
        for total in (Quotas(files=3), Quotas(bytes=1001)):
            with pytest.raises(QuotaExceeded) as refused:
                await put(store, b"4", scope="b", quotas=total)
            assert refused.value.quota in ("files", "bytes")

    async def test_a_restored_thread_is_counted(self, store: Store):
        await complete(store, "t", "r")
        await put(store, b"1" * 300, thread_id="t")
        before = await usage_of(store)
        async with store.snapshot() as snapshot:
            archive = await read_archive(snapshot, "a", "t")
        await store.restore(archive, replace=True)
        assert await usage_of(store) == await total_usage(store) == before
