"""The store contract: uploaded files."""

from __future__ import annotations

import random

import pytest

from aguila.errors import NotFound
from aguila.store import Store, Usage
from aguila.testing.store_contract.support import (
    Clock,
    StoreTest,
    complete,
    delete,
    delete_file,
    is_stored,
    last_of,
    total_usage,
)


class FilesContract(StoreTest):
    async def test_a_file_is_stored_once_under_an_id_made_from_its_content(self, store: Store, clock: Clock):
        file = await store.put_file("a", b"\x00data", media_type="image/png", filename="p.png")
        assert (file.media_type, file.filename, file.size, file.created_at) == ("image/png", "p.png", 5, clock.now)
        clock.now += 1
        assert await store.put_file("a", b"\x00data", media_type="image/png", filename="p.png") == file
        assert await store.file("a", file.file_id) == (file, b"\x00data")
        other = await store.put_file("a", b"\x00data", media_type="text/html", filename="p.png")
        assert other.file_id != file.file_id
        assert other.media_type == "text/html"
        await delete_file(store, file.file_id)
        assert not await is_stored(store, file.file_id)
        assert (await store.file("a", other.file_id))[1] == b"\x00data"

    @pytest.mark.parametrize("text", ["half \ud800", "nul \0"])
    async def test_the_scope_and_the_thread_of_a_file_are_ids(self, store: Store, text: str):
        for scope, thread_id in ((text, None), ("a", text)):
            with pytest.raises(ValueError, match=r"surrogate|NUL"):
                await store.put_file(scope, b"1", media_type="text/plain", thread_id=thread_id)
        assert await total_usage(store) == Usage()

    async def test_a_file_is_removed_with_the_last_thread_that_holds_it(self, store: Store):
        ids: dict[str, str] = {}
        for name, threads in {"one": ["t1"], "both": ["t1", "t2"], "kept": ["t1", None], "free": [None]}.items():
            for thread_id in threads:
                file = await store.put_file("a", name.encode(), media_type="text/plain", thread_id=thread_id)
                ids[name] = file.file_id

        async def stored() -> set[str]:
            return {name for name, file_id in ids.items() if await is_stored(store, file_id)}

        await complete(store, "t1", "r")  # a file may be stored before its thread has a run
        await complete(store, "t2", "r")
        await delete(store, "t1")
        assert await stored() == {"both", "kept", "free"}
        await delete(store, "t2")
        assert await stored() == {"kept", "free"}

    async def test_files_of_a_thread_that_never_ran_can_be_deleted_with_it(self, store: Store):
        file = await store.put_file("a", b"1", media_type="text/plain", thread_id="t")
        with pytest.raises(NotFound):
            await delete(store, "t", "b")
        await delete(store)
        assert not await is_stored(store, file.file_id)
        with pytest.raises(NotFound):
            await delete(store)

    async def test_deleting_a_file_leaves_its_thread(self, store: Store):
        file = await store.put_file("a", b"1", media_type="text/plain", thread_id="t")
        await complete(store, "t", "r")
        await delete_file(store, file.file_id)
        assert await last_of(store) == 2
        await delete(store)

    async def test_a_file_is_read_in_parts(self, store: Store):
        data = bytes(range(256)) * 8192
        file = await store.put_file("a", data, media_type="text/plain")
        for at, size in ((0, 0), (0, 10), (2**20 - 5, 10), (2**20 - 1, 2**20), (len(data) - 3, 10), (len(data), 1)):
            assert await store.file("a", file.file_id, at, size) == (file, data[at : at + size])
        assert await store.file("a", file.file_id, 7) == (file, data[7:])
        with pytest.raises(NotFound):
            await store.file("b", file.file_id, 0, 1)

    @pytest.mark.parametrize("size", [0, 1, 2**20, 2**20 + 1, 5 * 2**20 + 17])
    async def test_a_file_of_any_size_is_returned_unchanged(self, store: Store, size: int):
        data = random.Random(1).randbytes(size)
        file = await store.put_file("a", data, media_type="image/png", thread_id="t")
        assert await store.file("a", file.file_id) == (file, data)
        await delete(store)
        assert await total_usage(store) == Usage()
