"""The store contract: requests are returned as the same JSON, and each of their parts is stored once."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import pytest

from aguila.errors import NotFound
from aguila.store import FileRecord, RunKey, Store, Usage, Want
from aguila.store.contents import DIGEST
from aguila.testing.store_contract.scopes import rest_of
from aguila.testing.store_contract.support import StoreTest, delete, finish, start, total_usage, usage_of

KIB = 1024


def message(number: int, size: int = 100) -> dict[str, Any]:
    return {"id": f"m{number}", "role": "user", "content": f"{number} " + 'é"\\' * (size // 3)}


def image(seed: int, size: int) -> dict[str, Any]:
    data = base64.b64encode(random.Random(seed).randbytes(size * 3 // 4)).decode()
    part = {"type": "image", "source": {"type": "data", "value": data, "mimeType": "image/png"}}
    return {"id": f"image{seed}", "role": "user", "content": [part]}


def request(run_id: str, messages: list[dict[str, Any]], **members: Any) -> dict[str, Any]:
    return {"threadId": "t", "runId": run_id, "messages": messages, "state": {}, "tools": [], **members}


async def send(store: Store, run_id: str, body: Any, scope: str = "a", thread_id: str = "t") -> None:
    """Run once with this request."""
    data = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    await finish(store, await start(store, thread_id, run_id, scope=scope, request=data))


async def request_of(store: Store, run_id: str, thread_id: str = "t") -> bytes:
    """Return the stored request of a run."""
    return await store.request(RunKey("a", thread_id, run_id))


class RequestsContract(StoreTest):
    async def test_a_request_is_returned_as_the_same_json(self, store: Store):
        history = [message(number) for number in range(60)]
        sent = {
            "r1": request("r1", history[:1]),
            "r2": request("r2", history[:40], forwardedProps={"messages": [1, {"messages": 2}]}),
            "r3": request("r3", history[:41]),
            "r4": request("r4", [*history[:10], *history[12:50]]),
            "r5": request("r5", [message(99), *history[1:]], state={"a": "x" * 40_000}),
            "r6": request("r6", [history[3]] * 50),
            "r7": request("r7", []),
            "r8": {"state": ["x" * 5000]},
            "r9": {"messages": history},
        }
        for run_id, body in sent.items():
            await send(store, run_id, body)
        for run_id, body in sent.items():
            assert json.loads(await request_of(store, run_id)) == body

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b'{"messages": "none", "x": "%b"}' % (b"x" * 3000),
            b'[1, "%b"]' % (b"x" * 3000),
            b'{"messages": [1, "%b"' % (b"x" * 3000),
            b'{"messages": [{"a": "\\ud800%b"}]}' % (b"x" * 3000),
            b'{"messages": [%b1]}' % (b"1, " * 30_000),
            b"\xff" * 70_000,
        ],
    )
    async def test_a_body_that_is_not_a_request_is_returned_as_it_is(self, store: Store, data: bytes):
        await send(store, "r", data)
        assert (await request_of(store, "r")).replace(b" ", b"") == data.replace(b" ", b"")

    async def test_random_edits_of_a_history_are_returned_as_sent(self, store: Store):
        chance = random.Random(7)
        history = [message(number) for number in range(30)]
        sent: dict[str, Any] = {}
        for number in range(120):
            edit = chance.randrange(6)
            at = chance.randrange(len(history) + 1)
            if edit == 0:
                history = history[: max(5, at)]
            elif edit == 1:
                history = [*history[:at], message(1000 + number), *history[at + 1 :]]
            elif edit == 2:
                history = [message(2000 + number), *history[1:]]
            elif edit == 3:
                history = [*history, image(number % 3, 40 * KIB)]
            else:
                history = [*history, message(number), message(3000 + number, 3000)]
            sent[f"r{number}"] = request(f"r{number}", history, state={"n": number})
            await send(store, f"r{number}", sent[f"r{number}"])
        for run_id, body in sent.items():
            assert json.loads(await request_of(store, run_id)) == body

    async def test_a_thread_stores_each_message_once(self, store: Store):
        history: list[dict[str, Any]] = []
        for number in range(200):
            history += [message(number, 2 * KIB), message(1000 + number, 2 * KIB)]
            await send(store, f"r{number}", request(f"r{number}", history))
        once = len(json.dumps(history, ensure_ascii=False).encode())
        assert (await usage_of(store)).bytes <= once + 150 * KIB

    async def test_a_thread_grows_by_what_a_request_adds(self, store: Store):
        history = [message(number, 2 * KIB) for number in range(400)]
        once = len(json.dumps(history, ensure_ascii=False).encode())
        for number in range(100):
            changing = {"id": "s", "role": "system", "content": f"It is {number} o'clock."}
            await send(store, f"r{number}", request(f"r{number}", [changing, *history[: 300 + number]]))
        assert (await usage_of(store)).bytes <= once + 100 * KIB

    async def test_a_thread_stores_an_inline_file_once(self, store: Store):
        picture = image(1, 1024 * KIB)
        for number in range(10):
            history = [message(number), picture, message(100 + number)]
            await send(
                store, f"r{number}", request(f"r{number}", history, state={"same": picture}), thread_id=f"t{number % 3}"
            )
        size = len(json.dumps(picture).encode())
        assert (await usage_of(store)).bytes <= 3 * size + 100 * KIB  # counted for each of the threads that hold it
        await delete(store, "t0")
        await delete(store, "t1")
        found = json.loads(await request_of(store, "r2", "t2"))
        assert found["messages"][1] == found["state"]["same"] == picture

    async def test_an_inline_file_goes_with_its_thread_and_is_no_upload(self, store: Store):
        await send(store, "r", request("r", [image(1, 1024 * KIB)]))
        assert (await usage_of(store)).files == 0
        assert [one for one in await rest_of(store) if isinstance(one, FileRecord)] == []
        await delete(store)
        assert await total_usage(store) == Usage()

    async def test_the_request_of_a_missing_run_is_not_found(self, store: Store):
        await send(store, "r", request("r", []))
        for key in (RunKey("b", "t", "r"), RunKey("a", "u", "r"), RunKey("a", "t", "s")):
            with pytest.raises(NotFound):
                await store.request(key)

    async def test_a_large_request_that_is_no_json_is_returned_unchanged(self, store: Store):
        data = random.Random(1).randbytes(3_000_000)
        await send(store, "r", data)
        assert await request_of(store, "r") == data

    async def test_the_digests_of_the_messages_of_each_run_are_read(self, store: Store):
        history = [message(number) for number in range(500)]
        await send(store, "r1", request("r1", history))
        await send(store, "r2", request("r2", [*history, message(500)]))
        found = await store.thread("a", "t", Want(runs=True, requests=True))
        assert [len(run.messages or b"") // DIGEST for run in found.runs] == [500, 501]
        assert json.loads(await request_of(store, "r2"))["messages"] == [*history, message(500)]
