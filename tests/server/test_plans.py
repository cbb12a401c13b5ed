"""Limits of a principal, such as the plan of a tenant, apply to its requests, runs and scope instead of the app's."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from in_process import Reader
from serving import run_input
from waiting import wait_until_async

from aguila import App
from aguila.server import Limits, Principal, Quota, Request
from aguila.store import Store, ThreadTarget

pytestmark = pytest.mark.anyio

APP = Limits(per_scope=Quota(threads=2), total=Quota(files=3), upload=1_000, body=5_000)
FREE = replace(
    APP,
    per_scope=Quota(threads=1, files=1, bytes=20_000),
    total=Quota(files=0),
    upload=10,
    upload_types=("text/plain",),
    body=2_000,
    state=50,
)
PAID = Limits(per_scope=Quota(threads=4), runs=0, total=Quota(files=0), anonymous=Quota(threads=0))
PLANS = {"free": FREE, "paid": PAID, "none": None}


def authenticate(request: Request) -> Principal:
    user = request.headers["user"]
    return Principal(scope=user, limits=PLANS[user])


async def echo(run: Any) -> Any:
    yield run.user_text or "nothing"


class Answer:
    """A response as its status, its body and, if it is an error, its code and message."""

    def __init__(self, reader: Reader) -> None:
        self.status: int = reader.messages[0]["status"]
        self.body = reader.body
        error = json.loads(reader.body)["error"] if self.status >= 400 else {"code": None, "message": ""}
        self.code, self.message = error["code"], error["message"]

    def assert_refused(self, status: int, code: str, words: str) -> None:
        assert (self.status, self.code) == (status, code)
        assert words in self.message


async def send(
    app: App, user: str, method: str, path: str, data: bytes, content_type: str = "application/json"
) -> Answer:
    reader = Reader(app)
    await reader.request(method, path, data, content_type=content_type, user=user)
    return Answer(reader)


async def start(app: App, user: str, thread_id: str, run_id: str = "r", text: str = "hi", **members: Any) -> Answer:
    messages = [{"id": "m", "role": "user", "content": text}]
    body = json.dumps(run_input(thread_id, run_id, messages=messages, **members)).encode()
    return await send(app, user, "POST", "/", body)


@pytest.mark.postgres
async def test_what_a_scope_may_store_follows_its_plan(store: Store) -> None:
    async with App(echo, store=store, authenticate=authenticate, limits=APP) as app:
        for user, most in (("free", 1), ("none", 2), ("paid", 4)):
            for number in range(most):
                assert (await start(app, user, f"t{number}")).status == 200
            refused = await start(app, user, "more")
            refused.assert_refused(507, "quota_exceeded", f"Limits.per_scope.threads allows ({most})")
        assert (await send(app, "free", "POST", "/files", b"1", "text/plain")).status == 201
        refused = await send(app, "free", "POST", "/files", b"2", "text/plain")
        refused.assert_refused(507, "quota_exceeded", "Limits.per_scope.files allows (1)")
        for number in range(2):  # the quotas of all scopes are those of the app
            assert (await send(app, "paid", "POST", "/files", b"%d" % number, "text/plain")).status == 201
        refused = await send(app, "paid", "POST", "/files", b"9", "text/plain")
        refused.assert_refused(507, "quota_exceeded", "Limits.total.files allows (3)")
        update = json.dumps({"metadata": {"text": "x" * 1_900}}).encode()
        assert (await send(app, "free", "PATCH", "/threads/t0", update)).status == 200
        number = 0
        while (answer := await start(app, "free", "t0", f"r{number}", "y" * 1_000)).status == 200:
            number += 1
        answer.assert_refused(507, "quota_exceeded", "Limits.per_scope.bytes allows (20000)")
        larger = json.dumps({"title": "t" * 500}).encode()
        refused = await send(app, "free", "PATCH", "/threads/t0", larger)
        refused.assert_refused(507, "quota_exceeded", "Limits.per_scope.bytes allows (20000)")
        await store.delete("free", ThreadTarget("t0"))
        assert (await start(app, "free", "t1")).status == 200


@pytest.mark.postgres
async def test_how_many_runs_a_scope_may_have_follows_its_plan(store: Store) -> None:
    """Requests that wait for their thread count. A second server on the store refuses, too."""
    plans = {"free": Limits(runs_per_scope=1), "paid": Limits(runs_per_scope=3), "none": None}
    gate = asyncio.Event()

    async def waiting(run: Any) -> Any:
        yield "one"
        await gate.wait()

    def hook(request: Request) -> Principal:
        return Principal(scope=request.headers["user"], limits=plans[request.headers["user"]])

    options: dict[str, Any] = {"store": store, "authenticate": hook, "limits": Limits(runs_per_scope=2), "drain": 0.1}
    async with App(waiting, busy="queue", **options) as app, App(waiting, **options) as other:
        running: list[asyncio.Task[Answer]] = []
        for user, most in (("free", 1), ("none", 2), ("paid", 3)):
            for number in range(most):
                thread_id = "t0" if number == 2 else f"t{number}"
                running.append(asyncio.create_task(start(app, user, thread_id, f"r{number}")))
                await wait_until_async(lambda user=user, number=number: count(app, user) == number + 1)
            words = f"this scope has as many runs in progress or waiting as Limits.runs_per_scope allows ({most})"
            (await start(app, user, "more")).assert_refused(429, "too_many_runs", words)
        await wait_until_async(lambda: len(app._service.runs.live) == 5)  # type: ignore[union-attr]
        words = "Limits.runs_per_scope allows (1)"
        (await start(other, "free", "more")).assert_refused(429, "too_many_runs", words)
        gate.set()
        assert {answer.status for answer in await asyncio.gather(*running)} == {200}


def count(app: App, scope: str) -> int:
    service: Any = app._service
    return service.runs.admission._scopes.get(scope, 0)


async def test_the_sizes_of_requests_and_uploads_follow_the_plan() -> None:
    async with App(echo, store=":memory:", authenticate=authenticate, limits=APP, copilotkit=True) as app:
        refused = await send(app, "free", "POST", "/files", b"x" * 11, "text/plain")
        refused.assert_refused(413, "too_large", "more than 10 bytes, the limit of Limits.upload")
        refused = await send(app, "free", "POST", "/files", b"x", "image/png")
        refused.assert_refused(415, "unsupported_media_type", "image/png")
        assert (await send(app, "none", "POST", "/files", b"x" * 1_000, "image/png")).status == 201
        assert (await send(app, "none", "POST", "/files", b"x" * 1_001, "image/png")).status == 413
        assert (await send(app, "paid", "POST", "/files", b"x" * 1_001, "image/png")).status == 201
        refused = await start(app, "free", "t", text="x" * 2_000)
        refused.assert_refused(413, "too_large", "more than 2000 bytes")
        path = "/copilotkit/agent/default/run"
        reader = Reader(app)
        assert await reader.request("POST", path, b"x" * 2_001, content_type="application/json", user="free") == 413
        assert b"more than 2000 bytes" in reader.body
        (await start(app, "free", "t", state={"a": "x" * 50})).assert_refused(422, "state_too_large", "at most 50")
        assert (await start(app, "none", "t", state={"a": "x" * 50}, text="x" * 2_000)).status == 200
        assert (await start(app, "paid", "t", text="x" * 10_000)).status == 200


async def test_the_time_and_the_events_of_a_run_follow_the_plan() -> None:
    stopped = asyncio.Event()

    async def agent(run: Any) -> Any:
        if run.thread_id == "waits":
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
        yield "x" * 150_000

    plans = {"short": Limits(run_seconds=0.01), "small": Limits(event=100_000), "none": None}

    def hook(request: Request) -> Principal:
        return Principal(scope=request.headers["user"], limits=plans[request.headers["user"]])

    async with App(agent, store=":memory:", authenticate=hook, limits=APP) as app:
        for query in ("", "?store=false"):
            reader = Reader(app)
            body = json.dumps(run_input("waits", f"r{query}")).encode()
            await reader.request("POST", f"/{query}", body, content_type="application/json", user="short")
            assert b'"code":"run_timeout"' in reader.body
            assert stopped.is_set()
        assert b"RUN_FINISHED" in (await start(app, "none", "t")).body
        assert b'"code":"agent_output"' in (await start(app, "small", "t")).body


def test_limits_of_another_type_are_refused_where_they_are_given() -> None:
    given: Any = {"runs_per_scope": 1}
    with pytest.raises(TypeError, match="is no Limits"):
        Principal(scope="a", limits=given)
