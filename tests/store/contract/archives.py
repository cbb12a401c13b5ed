"""Archives: a thread is read as one value and restored with its numbers, also from one store to the other."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path

import msgspec
import pytest

from aguila.errors import NotFound, ThreadBusy, ThreadExists
from aguila.store import Batch, MemoryStore, NewRun, RunEnd, SQLiteStore, Store, ThreadUpdate
from aguila.store.archives.copying import copy_store, restore_thread
from aguila.store.archives.file_format import decode_archives, encode_archive
from aguila.store.archives.thread_archive import RUN_LOST, ThreadArchive
from contract.support import LEASE, StoreTest, complete, events_of, finish, lines, start


async def fill(store: Store, thread_id: str = "t", scope: str = "a") -> None:
    """Store a thread with every kind of content: branches, files, open, settled and repeated interrupts."""
    image = base64.b64encode(random.Random(1).randbytes(40_000)).decode()
    messages: list[object] = []
    parent = None
    for number in range(4):
        messages.append({"id": f"m{number}", "role": "user", "content": ["x" * 900, image if number == 1 else ""]})
        claims = ["i1"] if number == 2 else []
        lease, _ = await store.begin(
            NewRun(
                scope,
                thread_id,
                f"r{number}",
                owner="o",
                lease_seconds=LEASE,
                input=json.dumps({"messages": messages, "state": number}, indent=number % 2).encode(),
                fingerprint=f"f{number}",
                events=[b'{"n": "spaces stay"}', *lines("started", number)],
                parent_run_id=parent,
                claims=claims,
                sent_run_id="sent" if number == 1 else None,
            )
        )
        await store.append(lease, [b'{"large":"%b"}' % (b"y" * 200_000), *lines(number)])
        await store.record(lease, "r1", f"once-{number}", b"%d" % number)
        interrupts = [("i1", b'{"id":"i1"}'), ("i2", b'{"id":"i2"}')] if number == 1 else []
        end = RunEnd(
            outcome="interrupt" if interrupts else "success",
            interrupts=interrupts,
            session=b'{"s":%d}' % number,
            settles=claims,
        )
        await store.append(lease, lines("finished"), end=end)
        parent = "r0" if number == 2 else lease.run_id
    await store.put_blob(scope, b"report", media_type="text/plain", filename="r.txt", thread_id=thread_id)
    await store.update_thread(scope, thread_id, ThreadUpdate(title="Título", archived=True, metadata=b'{"k": 1}'))


async def archive_of(store: Store, thread_id: str = "t", scope: str = "a") -> ThreadArchive:
    async with store.snapshot() as snapshot:
        return await snapshot.thread(scope, thread_id)


async def seen(store: Store, thread_id: str = "t", scope: str = "a") -> list[object]:
    """Return everything that the API of a store returns about a thread."""
    summary = await store.thread(scope, thread_id)
    runs = await store.runs(scope, thread_id)
    archive = await archive_of(store, thread_id, scope)
    batches: list[Batch] = []
    while not batches or batches[-1].last < summary.last:
        batches += await store.read(scope, thread_id, batches[-1].last if batches else 0)
    return [
        [getattr(summary, name) for name in summary.__struct_fields__ if name != "position"],
        events_of(batches),
        runs,
        [json.loads(await store.input(scope, thread_id, run.run_id)) for run in runs],
        await store.interrupts(scope, thread_id),
        await store.session(scope, thread_id),
        [await store.recorded(scope, thread_id, run.run_id) for run in runs],
        [
            await store.blob(scope, file.blob.blob_id)
            for file in archive.files
            if not file.blob.blob_id.startswith("inline-")
        ],
        [await store.run_thread(scope, run.run_id) for run in runs],
        [await store.interrupt_thread(scope, name) for name in ("i1", "i2")],
    ]


class ArchivesContract(StoreTest):
    @pytest.mark.parametrize("kind", ["memory", "sqlite"])
    async def test_a_thread_restored_from_its_lines_is_the_same_in_any_store(
        self, store: Store, kind: str, tmp_path: Path
    ):
        await complete(store, "t", "removed")
        await store.delete_thread("a", "t")  # so that the numbers do not begin with 1
        await fill(store)
        text = b"".join(encode_archive(await archive_of(store)))
        (archive,) = decode_archives(text.splitlines(keepends=True))
        assert archive.first > 1
        assert len(text) < 1_500_000  # each message and each inline file once
        target = MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "target.db")
        await target.open()
        await target.restore(archive)
        assert await seen(target) == await seen(store)
        assert (await archive_of(target)).is_same(archive)
        lease = await start(target, run_id="next", claims=["i2"])
        await finish(target, lease)
        assert (await target.run("a", "t", "next")).first == archive.last + 1
        await target.close()

    async def test_an_existing_thread_is_restored_only_with_replace(self, store: Store):
        await fill(store)
        archive = await archive_of(store)
        with pytest.raises(ThreadExists):
            await store.restore(archive)
        assert await restore_thread(store, archive, replace=False) == "unchanged"
        lease = await start(store, run_id="later")
        with pytest.raises(ThreadBusy):
            await store.restore(archive, replace=True)
        await finish(store, lease)
        assert await restore_thread(store, archive, replace=False) == "different"
        before = await store.last("a", "t")
        assert await restore_thread(store, archive, replace=True) == "replaced"
        assert (await archive_of(store)).is_same(archive)
        await store.delete_thread("a", "t")
        await complete(store, "t", "new")
        assert (await store.run("a", "t", "new")).first > before  # also above the thread that was replaced

    async def test_an_open_run_is_lost_in_the_archive_and_goes_on_in_the_store(self, store: Store):
        await complete(store, "t", "asks", "i")
        lease = await start(store, run_id="open", claims=["i"])
        archive = await archive_of(store)
        assert archive.batches[-1].events[-1] == RUN_LOST
        assert [run.record.outcome for run in archive.runs] == ["interrupt", "error"]
        assert archive.runs[-1].record.last == archive.last == await store.last("a", "t") + 1
        assert [interrupt.status for interrupt in archive.interrupts] == ["open"]
        async with store.snapshot() as snapshot:
            archive = await snapshot.thread("a", "t", ends_run=False)
        assert [run.record.outcome for run in archive.runs] == ["interrupt", None]
        assert archive.last == await store.last("a", "t")
        assert [interrupt.status for interrupt in archive.interrupts] == ["claimed"]
        await finish(store, lease)

    async def test_a_snapshot_does_not_change(self, store: Store):
        await complete(store, "t", "r")
        async with store.snapshot() as snapshot:
            await complete(store, "t", "later")
            await complete(store, "other", "r")
            assert await snapshot.threads() == [("a", "t")]
            assert [(one.thread_id, one.runs) for one in await snapshot.summaries("a")] == [("t", 1)]
            assert [run.record.run_id for run in (await snapshot.thread("a", "t")).runs] == ["r"]
            with pytest.raises(NotFound):
                await snapshot.thread("a", "other")

    async def test_a_snapshot_lists_its_threads_in_pages(self, store: Store):
        for thread_id in ("one", "two", "three"):
            await complete(store, thread_id, "r")
        await complete(store, "one", "r2")
        async with store.snapshot() as snapshot:
            pages = [await snapshot.summaries("a", limit=2)]
            pages += [await snapshot.summaries("a", before=pages[0][-1].position, limit=2)]
            assert not await snapshot.summaries("other")
        assert [[one.thread_id for one in page] for page in pages] == [["one", "three"], ["two"]]
        assert [*pages[0], *pages[1]] == await store.threads("a")

    async def test_a_thread_with_a_gap_is_not_restored(self, store: Store):
        await complete(store, "t", "r")
        archive = await archive_of(store)
        await store.delete_thread("a", "t")
        for batches in (archive.batches[1:], archive.batches[:1]):
            broken = msgspec.structs.replace(archive, batches=batches)
            with pytest.raises(ValueError, match="missing"):
                await store.restore(broken)

    async def test_a_copied_store_has_every_scope_and_file_and_number(self, store: Store):
        await fill(store)
        await fill(store, "u", scope="b")
        await complete(store, "gone", "r")
        await store.delete_thread("a", "gone")
        kept = await store.put_blob("a", b"kept", media_type="text/plain")
        early = await store.put_blob("a", b"early", media_type="text/plain", thread_id="never ran")
        await store.put_blob("a", b"report", media_type="text/plain", filename="r.txt", thread_id="never ran")
        target = MemoryStore()
        await target.open()
        found: list[str] = []
        for _ in range(2):
            await copy_store(
                store, target, replace=False, on_count=lambda _: None, on_thread=lambda _, what: found.append(what)
            )
        assert found == ["added", "added", "unchanged", "unchanged"]
        assert await seen(target) == await seen(store)
        assert await seen(target, "u", "b") == await seen(store, "u", "b")
        assert await target.blob("a", kept.blob_id) == await store.blob("a", kept.blob_id)
        await target.delete_thread("a", "never ran")
        with pytest.raises(NotFound):
            await target.blob("a", early.blob_id)
        await complete(target, "gone", "r")
        assert (await target.run("a", "gone", "r")).first > 2
        await target.close()
