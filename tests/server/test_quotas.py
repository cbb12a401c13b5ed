"""Quotas of storage: a run or an upload beyond one is refused with its name; a run that has begun is never cut."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from in_process import Reader
from serving import run_input

from aguila import App
from aguila.server import Limits, Quota
from aguila.server.http.request import Request
from aguila.server.runs.admission import HourlyQuotas
from aguila.store import MemoryStore, RunKey, Store, ThreadTarget
from aguila.store.sqlite.store import SQLiteStore

pytestmark = pytest.mark.anyio

VISITOR = "192.0.2.1"


async def writer(run: Any) -> AsyncIterator[str]:
    """Write as many characters as the last message says."""
    yield "x" * int(run.messages[-1].content)


def whoami(request: Request) -> str:
    return request.headers["user"]


class Answer:
    """A response as its status and, if it is an error, its body."""

    def __init__(self, reader: Reader) -> None:
        self.status: int = reader.messages[0]["status"]
        self.headers = dict(reader.messages[0]["headers"])
        self.error = json.loads(reader.body)["error"] if self.status >= 400 else {}

    def assert_quota(self, name: str, status: int = 507) -> None:
        assert (self.status, self.error["code"]) == (status, "quota_exceeded")
        assert f"Limits.{name} allows" in self.error["message"]


async def start(app: App, thread_id: str, run_id: str = "r", *, length: int = 1, address: str = "127.0.0.1",
                **headers: str) -> Answer:  # fmt: skip
    reader = Reader(app, address=address)
    message = {"id": f"m-{run_id}", "role": "user", "content": str(length)}
    body = json.dumps(run_input(thread_id, run_id, messages=[message])).encode()
    await reader.request("POST", "/", body, content_type="application/json", **headers)
    return Answer(reader)


async def upload(app: App, data: bytes, *, address: str = "127.0.0.1", **headers: str) -> Answer:
    reader = Reader(app, address=address)
    await reader.request("POST", "/files", data, content_type="text/plain", **headers)
    return Answer(reader)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "threads.db")


async def test_the_quotas_of_a_scope_refuse_runs_and_uploads_and_cut_no_run(store: Store) -> None:
    limits = Limits(per_scope=Quota(threads=2, files=1, bytes=20_000))
    async with App(writer, store=store, authenticate=whoami, limits=limits) as app:
        assert [(await start(app, name, user="me")).status for name in ("t1", "t2")] == [200, 200]
        (await start(app, "t3", user="me")).assert_quota("per_scope.threads")
        assert (await start(app, "t3", user="you")).status == 200  # another scope
        assert (await upload(app, b"1", user="me")).status == 201
        (await upload(app, b"2", user="me")).assert_quota("per_scope.files")
        assert (await start(app, "t1", "long", length=50_000, user="me")).status == 200
        assert (await store.run(RunKey("me", "t1", "long"))).outcome == "success"  # not cut
        (await start(app, "t1", "r2", user="me")).assert_quota("per_scope.bytes")
        assert (await start(app, "t1", "long", length=50_000, user="me")).status == 200  # attaching is always possible
        (await upload(app, b"3" * 20_000, user="you")).assert_quota("per_scope.bytes")
        await store.delete("me", ThreadTarget("t1"))
        assert (await start(app, "t2", "r2", user="me")).status == 200


async def test_the_quotas_of_the_store_count_all_scopes(store: Store) -> None:
    async with App(writer, store=store, authenticate=whoami, limits=Limits(total=Quota(threads=2, files=1))) as app:
        assert (await start(app, "t", user="a")).status == (await start(app, "t", user="b")).status == 200
        (await start(app, "t", user="c")).assert_quota("total.threads")
        assert (await upload(app, b"1", user="a")).status == 201
        (await upload(app, b"1", user="b")).assert_quota("total.files")
    async with App(writer, authenticate=whoami, limits=Limits(total=Quota(bytes=1000))) as app:
        assert (await start(app, "t", length=2000, user="a")).status == 200
        (await start(app, "t", user="b")).assert_quota("total.bytes")


async def test_callers_without_credentials_have_quotas_by_default(store: Store) -> None:
    limits = Limits()
    assert limits.anonymous == Quota(threads=100_000, files=10_000, bytes=4 << 30)
    assert limits.per_scope == limits.total == Quota()  # with credentials, the operator decides
    limits = Limits(anonymous=Quota(threads=1, files=1, bytes=20_000))
    async with App(writer, store=store, allow_anonymous=True, limits=limits) as app:
        assert (await start(app, "t")).status == 200
        (await start(app, "t2")).assert_quota("anonymous.threads")
        assert (await upload(app, b"1")).status == 201
        (await upload(app, b"2")).assert_quota("anonymous.files")
        assert (await start(app, "t", "long", length=30_000)).status == 200
        (await start(app, "t", "r2")).assert_quota("anonymous.bytes")


async def test_the_stricter_of_two_quotas_is_named() -> None:
    async with App(writer, limits=Limits(per_scope=Quota(threads=1), anonymous=Quota(threads=5))) as app:
        await start(app, "t")
        (await start(app, "t2")).assert_quota("per_scope.threads")
    limits = Limits(anonymous=Quota())
    async with App(writer, limits=limits) as app:
        assert (await start(app, "t")).status == 200


async def test_one_visitor_cannot_use_up_the_quotas_of_all() -> None:
    async with App(writer, allow_anonymous=True, limits=Limits(per_address=Quota(threads=2, bytes=10_000))) as app:
        assert [(await start(app, f"t{i}", address=VISITOR)).status for i in range(2)] == [200, 200]
        refused = await start(app, "t3", address=VISITOR)
        refused.assert_quota("per_address.threads", 429)
        assert 0 < int(refused.headers[b"retry-after"]) <= 3600
        assert (await start(app, "t1", address=VISITOR)).status == 200  # attaching is always possible
        assert (await upload(app, b"1", address=VISITOR)).status == 429
        assert (await upload(app, b"1" * 9_999, address="192.0.2.2")).status == 201
        assert (await upload(app, b"2" * 9_999, address="192.0.2.2")).status == 201  # one upload or request beyond it
        (await upload(app, b"3", address="192.0.2.2")).assert_quota("per_address.bytes", 429)
        (await start(app, "u", address="192.0.2.2")).assert_quota("per_address.bytes", 429)
        assert [(await start(app, f"u{i}")).status for i in range(4)] == [200] * 4  # this machine


async def test_one_visitor_may_upload_so_many_files_within_an_hour() -> None:
    async with App(writer, allow_anonymous=True, limits=Limits(per_address=Quota(files=2))) as app:
        uploaded = await asyncio.gather(*(upload(app, bytes([i]) * 100_000, address=VISITOR) for i in range(5)))
        assert sorted(answer.status for answer in uploaded) == [201] * 2 + [429] * 3
        (await upload(app, b"1", address=VISITOR)).assert_quota("per_address.files", 429)
        assert (await upload(app, b"1", address="192.0.2.2")).status == 201


async def test_requests_that_come_at_once_do_not_exceed_the_quotas_of_an_address(tmp_path: Path) -> None:
    limits = Limits(per_address=Quota(threads=3, bytes=200_000), runs_per_address=100)
    async with App(writer, store=tmp_path / "threads.db", allow_anonymous=True, limits=limits) as app:
        started = await asyncio.gather(*(start(app, f"t{i}", address=VISITOR) for i in range(10)))
        assert sorted(answer.status for answer in started) == [200] * 3 + [429] * 7
        other = "192.0.2.2"
        uploaded = await asyncio.gather(*(upload(app, bytes([i]) * 150_000, address=other) for i in range(10)))
        assert sorted(answer.status for answer in uploaded) == [201] * 2 + [429] * 8


async def test_what_a_refused_request_has_sent_is_not_counted_as_stored() -> None:
    async with App(writer, allow_anonymous=True, limits=Limits(per_address=Quota(threads=2))) as app:
        assert [(await start(app, "t", f"r{i}", address=VISITOR)).status for i in range(4)] == [200] * 4  # one thread
        other = {"id": "m", "role": "user", "content": "2"}
        body = json.dumps(run_input("t", "r1", messages=[other])).encode()  # another request with a known run id
        for _ in range(3):
            reader = Reader(app, address=VISITOR)
            assert await reader.request("POST", "/", body, content_type="application/json") == 409
        assert (await start(app, "t2", address=VISITOR)).status == 200


async def test_one_address_without_credentials_has_quotas_by_default() -> None:
    async with App(writer, allow_anonymous=True) as app:
        service: Any = app._service
        assert Limits().per_address == Quota(threads=2_000, bytes=1 << 30)
        assert (await start(app, "t", address=VISITOR)).status == 200
        service.runs.admission.hourly.count(VISITOR, size=0, threads=1_999)
        (await start(app, "t2", address=VISITOR)).assert_quota("per_address.threads", 429)
        other = "192.0.2.2"
        service.runs.admission.hourly.count(other, size=1 << 30)
        (await upload(app, b"1", address=other)).assert_quota("per_address.bytes", 429)


def test_the_hour_of_a_visitor_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("aguila.server.runs.admission.time.monotonic", lambda: now)
    quotas = HourlyQuotas(Quota(bytes=10))
    quotas.count(VISITOR, size=10)
    assert quotas.refusal(VISITOR) is not None
    assert quotas.refusal("192.0.2.2") is None
    now += 3600
    assert quotas.refusal(VISITOR) is None


def test_the_addresses_that_are_counted_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aguila.server.runs.admission._MAX_ADDRESSES", 3)
    quotas = HourlyQuotas(Quota(bytes=10))
    for number in range(4):
        quotas.count(str(number), size=10)
    assert [quotas.refusal(str(number)) is None for number in range(4)] == [True, False, False, False]
