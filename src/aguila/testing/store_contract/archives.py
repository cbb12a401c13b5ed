"""The store contract: a snapshot is one state of a store; a thread is restored with its numbers."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from aguila.errors import NotFound, ThreadBusy, ThreadExists
from aguila.store import (
    ArchivedFile,
    Batch,
    FileArchive,
    MemoryStore,
    RunChange,
    RunEnd,
    Store,
    StoreReader,
    ThreadArchive,
    ThreadFilter,
    ThreadUpdate,
    Want,
)
from aguila.store.archives.archive import RUN_LOST, is_same, read_archive
from aguila.store.archives.copying import copy_all, restore_thread
from aguila.store.archives.export import export_thread
from aguila.store.archives.file_format import decode_archives
from aguila.testing.store_contract.support import (
    Clock,
    StoreTest,
    append,
    complete,
    delete,
    events_of,
    finish,
    is_stored,
    last_of,
    lines,
    list_threads,
    new_run,
    record,
    run_of,
    start,
    summary_of,
)


async def fill(store: Store, thread_id: str = "t", scope: str = "a") -> None:
    """Store a thread with every kind of content: branches, files, open, settled and repeated interrupts."""
    image = base64.b64encode(random.Random(1).randbytes(40_000)).decode()
    messages: list[object] = []
    parent = None
    for number in range(4):
        messages.append({"id": f"m{number}", "role": "user", "content": ["x" * 900, image if number == 1 else ""]})
        claims = ["i1"] if number == 2 else []
        run_id = f"r{number}"
        new = new_run(
            thread_id,
            run_id,
            scope=scope,
            request=json.dumps({"messages": messages, "state": number}, indent=number % 2).encode(),
            fingerprint=f"f{number}",
            events=[b'{"n": "spaces stay"}', *lines("started", number)],
            parent_run_id=parent,
            claims=claims,
            sent_run_id="sent" if number == 1 else None,
        )
        lease = (await store.begin(new)).lease
        await append(store, lease, [b'{"large":"%b"}' % (b"y" * 200_000), *lines(number)])
        await record(store, lease, "r1", f"once-{number}", b"%d" % number)
        interrupts = [("i1", b'{"id":"i1"}'), ("i2", b'{"id":"i2"}')] if number == 1 else []
        end = RunEnd(outcome="interrupt" if interrupts else "success", interrupts=interrupts)
        await store.write(
            lease, RunChange(events=lines("finished"), settles=claims, session=b'{"s":%d}' % number, end=end)
        )
        parent = "r0" if number == 2 else run_id
    await store.put_file(scope, b"report", media_type="text/plain", filename="r.txt", thread_id=thread_id)
    await store.amend(scope, thread_id, ThreadUpdate(title="Título", archived=True, metadata=b'{"k": 1}'))


async def archive_of(store: Store, thread_id: str = "t", scope: str = "a") -> ThreadArchive:
    """Return a thread as one value."""
    async with store.snapshot() as snapshot:
        return await read_archive(snapshot, scope, thread_id)


async def seen(reader: StoreReader, thread_id: str = "t", scope: str = "a") -> list[object]:
    """Return everything that the API of a store returns about a thread, but its position."""
    wanted = Want(runs=True, requests=True, interrupts=True, session=True, effects=True, files=True)
    found = await reader.thread(scope, thread_id, wanted)
    batches: list[Batch] = []
    while not batches or batches[-1].last < found.summary.last:
        batches += (await reader.read(scope, thread_id, batches[-1].last if batches else 0)).batches
    return [
        replace(found, summary=replace(found.summary, position=0), runs=()),
        [replace(run, request=None, messages=None) for run in found.runs],
        [(batch.at, batch.token) for batch in batches for _ in batch.events],  # in batches of any size
        events_of(batches),
        [json.loads(await reader.request(run.key)) for run in found.runs],
        [await reader.file(scope, file.file_id) for file in found.files],
    ]


class ArchivesContract(StoreTest):
    async def test_a_thread_is_the_same_in_another_store(self, store: Store, clock: Clock, tmp_path: Path):
        await complete(store, "t", "removed")
        await delete(store)  # so that the numbers do not begin with 1
        await fill(store)
        text = b"".join([piece async for piece in export_thread(store, "a", "t")])
        assert len(text) < 1_500_000  # each message and each inline file once
        (archive,) = decode_archives(text.splitlines(keepends=True))
        assert isinstance(archive, ThreadArchive)
        assert archive.thread.first > 1
        (tmp_path / "other").mkdir()
        for target in (MemoryStore(), self.make(clock, tmp_path / "other")):
            async with target:
                await restore_thread(target, archive, replace=True)  # two stores may share a database
                assert await seen(target) == await seen(store)
                assert is_same(await archive_of(target), archive)
                lease = await start(target, run_id="next", claims=["i2"])
                await finish(target, lease)
                assert (await run_of(target, "t", "next")).first == archive.thread.summary.last + 1
                await delete(target)

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
        before = await last_of(store)
        assert await restore_thread(store, archive, replace=True) == "replaced"
        assert is_same(await archive_of(store), archive)
        await delete(store)
        await complete(store, "t", "new")
        assert (await run_of(store, "t", "new")).first > before  # also above the thread that was replaced

    async def test_a_restored_thread_is_the_one_updated_last_and_keeps_its_times(self, store: Store, clock: Clock):
        await complete(store, "t", "r")
        before = await summary_of(store)
        archive = await archive_of(store)
        await delete(store)
        clock.now += 100
        await complete(store, "u", "r")
        clock.now += 100
        await store.restore(archive)
        assert [one.thread_id for one in await list_threads(store)] == ["t", "u"]
        assert replace(await summary_of(store), position=before.position) == before

    async def test_an_open_run_is_lost_in_the_archive_and_goes_on_in_the_store(self, store: Store):
        await complete(store, "t", "asks", "i")
        lease = await start(store, run_id="open", claims=["i"])
        archive = await archive_of(store)
        assert archive.batches[-1].events[-1] == RUN_LOST
        assert [run.outcome for run in archive.thread.runs] == ["interrupt", "error"]
        assert archive.thread.runs[-1].last == archive.thread.summary.last == await last_of(store) + 1
        assert [interrupt.status for interrupt in archive.thread.interrupts] == ["open"]
        await finish(store, lease)

    async def test_a_snapshot_does_not_change(self, store: Store):
        await complete(store, "t", "r", "i1")
        await store.put_file("a", b"first", media_type="text/plain", thread_id="t")
        async with store.snapshot() as snapshot:
            before = await seen(snapshot)
            listed = await snapshot.threads("a")
            others = [one async for one in snapshot.rest()]
            await complete(store, "t", "later")
            await complete(store, "other", "r")
            await store.put_file("a", b"later", media_type="text/plain")
            await complete(store, "t", "gone", scope="b")
            assert await seen(snapshot) == before
            assert (await snapshot.threads("a")).threads == listed.threads
            assert [one async for one in snapshot.rest()] == others
            with pytest.raises(NotFound):
                await snapshot.thread("a", "other")
        assert await last_of(store) == 4

    async def test_a_snapshot_lists_its_threads_in_pages(self, store: Store):
        for thread_id in ("one", "two", "three"):
            await complete(store, thread_id, "r")
        await complete(store, "one", "r2")
        async with store.snapshot() as snapshot:
            first = (await snapshot.threads("a", ThreadFilter(limit=2))).threads
            second = (await snapshot.threads("a", ThreadFilter(limit=2, before=first[-1].position))).threads
            assert not (await snapshot.threads("other")).threads
        assert [[one.thread_id for one in page] for page in (first, second)] == [["one", "three"], ["two"]]
        assert [*first, *second] == await list_threads(store)

    async def test_a_thread_with_a_gap_or_an_open_run_is_not_restored(self, store: Store):
        lease = await start(store)
        await append(store, lease, lines(1))
        await finish(store, lease)
        archive = await archive_of(store)
        await start(store, "open")
        async with store.snapshot() as snapshot:
            unfinished = await read_archive(snapshot, "a", "open", ends_run=False)
        await delete(store)
        for broken, what in (
            (replace(archive, batches=archive.batches[1:]), "missing"),
            (replace(archive, batches=[archive.batches[0], archive.batches[2]]), "missing"),
            (replace(archive, batches=archive.batches[:2]), "missing"),
            (replace(unfinished, thread=replace(unfinished.thread, scope="b")), "no outcome"),
        ):
            with pytest.raises(ValueError, match=what):
                await store.restore(broken)
        assert [one.thread_id for one in await list_threads(store)] == ["open"]

    async def test_a_copied_store_has_every_scope_and_file_and_number(self, store: Store):
        await fill(store)
        await fill(store, "u", scope="b")
        await complete(store, "gone", "r")
        await delete(store, "gone")
        kept = await store.put_file("a", b"kept", media_type="text/plain")
        early = await store.put_file("a", b"early", media_type="text/plain", thread_id="never ran")
        await store.put_file("a", b"report", media_type="text/plain", filename="r.txt", thread_id="never ran")
        async with MemoryStore() as target:
            found: list[str] = []
            for _ in range(2):
                async with store.snapshot() as snapshot:
                    await copy_all(
                        snapshot,
                        target,
                        replace=False,
                        on_count=lambda _: None,
                        on_thread=lambda _, what: found.append(what),
                    )
            assert found == ["added", "added", "unchanged", "unchanged"]
            assert await seen(target) == await seen(store)
            assert await seen(target, "u", "b") == await seen(store, "u", "b")
            assert await target.file("a", kept.file_id) == await store.file("a", kept.file_id)
            await delete(target, "never ran")
            assert not await is_stored(target, early.file_id)
            await complete(target, "gone", "r")
            assert (await run_of(target, "gone")).first > 2

    async def test_a_file_that_exists_is_not_changed_by_a_copy(self, store: Store, clock: Clock):
        kept = await store.put_file("a", b"kept", media_type="text/plain")
        clock.now += 10
        record = replace(kept, created_at=clock.now, thread_ids=("t",))
        await store.restore(FileArchive(file=ArchivedFile(record=record, data=b"kept")))
        assert (await store.file("a", kept.file_id))[0] == kept
        await delete(store)  # it is held by the thread now, too
        assert await is_stored(store, kept.file_id)
