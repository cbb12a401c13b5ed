"""The app as an application: mounted, started with and without a lifespan, stopped, and seen from foreign pages."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from serving import Held, run_input, serving, types, until
from starlette.applications import Starlette
from starlette.routing import Mount

from aguila import App
from aguila.server import Limits, Rejected
from aguila.store import MemoryStore


async def agent(run: Any) -> Any:
    yield "Hello"


# Mounting


@pytest.mark.parametrize("make", [Starlette, FastAPI], ids=["starlette", "fastapi"])
@pytest.mark.parametrize("path", ["/agent", "/agent/"])
def test_mounted_on_another_application_it_answers_with_and_without_a_slash(make: Any, path: str) -> None:
    parent = make()
    App(agent).mount_on(parent, "/agent")
    with serving(parent) as server:
        with server.run(path=path) as stream:
            assert stream.status == 200  # and not a redirect, which would lose the body of some clients
            assert types(stream.rest())[-1] == "RUN_FINISHED"
        assert server.get("/agent/threads/thread").json()["threadId"] == "thread"
        assert server.get("/agent/threads/thread/").status_code == 200
        assert server.get("/agent/healthz").status_code == 200
        assert server.get("/elsewhere").status_code == 404


def test_a_plain_mount_works_too_and_in_depth() -> None:
    app = App(agent)
    parent = Starlette(routes=[Mount("/a", routes=[Mount("/b", app=app)])], lifespan=app.lifespan)
    with serving(parent) as server:
        with server.run(path="/a/b/") as stream:
            assert types(stream.rest())[-1] == "RUN_FINISHED"
        assert server.get("/a/b/threads/thread/runs/run").json()["status"] == "success"
        assert server.client.post("/a/b", json=run_input(run_id="2"), follow_redirects=True).status_code == 200


def test_below_a_root_path_paths_are_relative_to_it() -> None:
    with serving(App(agent), root_path="/api/v1") as server:
        assert server.events()[-1]["type"] == "RUN_FINISHED"
        assert server.get("/threads/thread").status_code == 200


def test_ids_in_paths_may_hold_anything() -> None:
    with serving(App(agent)) as server:
        server.events(thread_id="a/b c?ä", run_id="x/y")
        assert server.get("/threads/a%2Fb%20c%3F%C3%A4").json()["threadId"] == "a/b c?ä"
        assert server.get("/threads/a%2Fb%20c%3F%C3%A4/runs/x%2Fy").json()["runId"] == "x/y"


# Starting and stopping


def test_it_starts_with_the_first_request_if_there_is_no_lifespan() -> None:
    with serving(App(agent), lifespan="off") as server:
        assert server.events()[-1]["type"] == "RUN_FINISHED"


def test_an_app_can_be_used_as_a_context_and_again_after_it_was_closed(tmp_path: Path) -> None:
    async def scenario() -> list[int]:
        app = App(agent, store=tmp_path / "threads.db")
        counts: list[int] = []
        for name in ("a", "b"):
            async with app:
                await post(app, name)
                counts.append(len(await app.store.runs("anonymous", "thread")))
        return counts

    assert asyncio.run(scenario()) == [1, 2]


async def post(app: App, run_id: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> list[dict[str, Any]]:
    """A run without a server."""
    sent: list[Any] = []
    body = json.dumps(run_input(run_id=run_id)).encode()
    messages = [{"type": "http.request", "body": body}]

    async def receive() -> Any:
        if messages:
            return messages.pop()
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "root_path": ""}
    await app({**scope, "headers": [(b"content-type", b"application/json"), *headers]}, receive, send)
    return sent


def test_the_memory_store_is_announced_once_and_only_as_a_default(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "aguila"):
        with serving(App(agent)) as server:
            server.events(run_id="1")
            server.events(run_id="2")
        assert [record.getMessage() for record in caplog.records if "memory" in record.getMessage()] == [
            "threads are kept in memory and forgotten on exit; App(store=path) keeps them"
        ]
        caplog.clear()
        with serving(App(agent, store=MemoryStore())) as server:
            server.events()
        assert caplog.records == []


def test_a_store_that_cannot_be_opened_keeps_the_server_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "no" / "such" / "folder" / "threads.db"
    app = App(agent, store=path)

    async def scenario() -> list[Any]:
        sent: list[Any] = []
        inbox: list[Any] = [{"type": "lifespan.startup"}]

        async def receive() -> Any:
            return inbox.pop()

        async def send(message: Any) -> None:
            sent.append(message)

        await app({"type": "lifespan"}, receive, send)
        return sent

    assert asyncio.run(scenario()) == [
        {
            "type": "lifespan.startup.failed",
            "message": f"the app cannot start: {path} cannot be used as a store: there is no folder {path.parent}",
        }
    ]
    assert caplog.records == []  # the server logs what it was told


@pytest.mark.parametrize("option", [{"busy": "maybe"}, {"history": "both"}, {"on_disconnect": "shrug"}])
def test_a_misspelt_option_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is one of"):
        App(agent, **option)


def test_a_websocket_is_turned_away() -> None:
    async def scenario() -> list[Any]:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await App(agent)({"type": "websocket", "path": "/"}, receive, send)
        return sent

    assert asyncio.run(scenario()) == [{"type": "websocket.close", "code": 1008}]


def test_while_draining_new_runs_are_refused_and_old_ones_can_be_watched() -> None:
    held = Held()
    app = App(held, drain=10.0)
    with serving(app) as server, server.run() as first:
        first.read_until("TEXT_MESSAGE_CONTENT")
        server.call(app.begin_drain)
        until(lambda: server.get("/healthz").status_code == 503)
        answer = server.post("/", json=run_input("other", "other"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "draining")
        assert answer.headers["retry-after"] == "1"
        with server.run() as second:
            assert second.status == 200
            held.gate("run").open()
            assert second.rest()[-1]["outcome"] == {"type": "success"}


def test_when_it_has_drained_no_stream_begins() -> None:
    """One of a run in another process would keep this one from stopping."""
    app = App(agent)
    with serving(app) as server:
        server.events()
        server.call(app.begin_drain)
        until(lambda: server.get("/threads/thread/events").status_code == 503)
        answer = server.post("/connect", json=run_input())
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "draining")
        assert answer.headers["retry-after"] == "1"
        assert server.get("/threads/thread").status_code == 200


# Foreign pages


def test_cors_is_off_until_origins_are_listed() -> None:
    page = "https://app.example"
    with serving(App(agent)) as server:
        answer = server.get("/capabilities", headers={"origin": page})
        assert answer.status_code == 200
        assert not [name for name in answer.headers if name.startswith("access-control")]
    with serving(App(agent, cors_origins=[page], headers_allowed=["X-Trace"])) as server:
        answer = server.get("/capabilities", headers={"origin": page})
        assert answer.headers["access-control-allow-origin"] == page
        assert answer.headers["vary"] == "origin"
        with server.run(headers={"origin": page}) as stream:
            assert stream.response.headers["access-control-allow-origin"] == page
            stream.rest()
        preflight = server.client.options(
            "/",
            headers={"origin": page, "access-control-request-method": "POST", "access-control-request-headers": "x"},
        )
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-methods"] == "POST"
        assert "x-trace" in preflight.headers["access-control-allow-headers"]
        assert "last-event-id" in preflight.headers["access-control-allow-headers"]
        other = server.get("/capabilities", headers={"origin": "https://other.example"})
        assert "access-control-allow-origin" not in other.headers
        refused = server.post("/", json=run_input(run_id="2"), headers={"origin": "https://other.example"})
        assert refused.status_code == 403
        # An error must be readable for the page, too.
        missing = server.get("/threads/unknown", headers={"origin": page})
        assert (missing.status_code, missing.headers["access-control-allow-origin"]) == (404, page)


def test_a_page_of_the_same_host_may_post() -> None:
    with serving(App(agent)) as server:
        host = server.url.removeprefix("http://")
        for origin, extra in (
            (server.url, {}),
            (f"https://{host}", {}),
            ("https://x", {"sec-fetch-site": "same-origin"}),
            ("https://site.example", {"host": "site.example:443"}),
            ("http://[::1]", {"host": "[::1]:80"}),
            ("https://Site.example", {"host": "site.example"}),
        ):
            headers = {"origin": origin, **extra}
            assert server.post("/", json=run_input(run_id=origin), headers=headers).status_code == 200
        for origin, host in (
            ("https://site.example", "site.example:8443"),
            ("https://site.example", "other.example:443"),
            ("http://site.example", "site.example:443"),
        ):
            headers = {"origin": origin, "host": host}
            assert server.post("/", json=run_input(run_id=origin + host), headers=headers).status_code == 403


# Capabilities


def test_capabilities_are_derived_and_can_be_overridden(tmp_path: Path) -> None:
    with serving(App(agent, name="Eagle", store=tmp_path / "t.db")) as server:
        found = server.get("/capabilities").json()
        assert found["identity"] == {"name": "Eagle"}
        assert found["transport"] == {"streaming": True, "httpBinary": True, "resumable": True}
        assert found["state"]["persistentState"] is True
    override = {"identity": {"version": "2"}, "state": {"deltas": False}, "custom": {"x": 1}}
    with serving(App(agent, name="Eagle", capabilities=override)) as server:
        found = server.get("/capabilities").json()
        assert found["identity"] == {"name": "Eagle", "version": "2"}
        assert found["state"] == {"snapshots": True, "deltas": False, "persistentState": False}
        assert found["custom"] == {"x": 1}


def test_a_hook_may_be_async_and_may_refuse_in_its_own_words() -> None:
    async def authenticate(request: Any) -> str:
        if "x-user" not in request.headers:
            raise Rejected(403, "no_plan", "your plan does not cover this")
        return request.headers["x-user"]

    with serving(App(agent, authenticate=authenticate, limits=Limits())) as server:
        answer = server.get("/threads")
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "no_plan")
        assert server.get("/threads", headers={"x-user": "ada"}).status_code == 200


def test_a_hook_that_returns_nonsense_lets_nobody_in() -> None:
    with serving(App(agent, authenticate=lambda request: 5)) as server:
        assert server.post("/", json=run_input()).status_code == 500
    with serving(App(agent, authenticate=lambda request: "")) as server:
        assert server.post("/", json=run_input()).status_code == 500


def test_a_hook_that_breaks_is_one_line_of_the_log_and_a_reference(caplog: pytest.LogCaptureFixture) -> None:
    def authenticate(request: Any) -> str:
        raise RuntimeError("the database of users is away")

    with serving(App(agent, authenticate=authenticate, store=MemoryStore())) as server:
        with caplog.at_level(logging.WARNING):
            answer = server.post("/", json=run_input())
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (500, "internal")
        (record,) = caplog.records
        assert vars(record)["fields"] == {"reference": error["message"].rpartition(" ")[2]}
        assert "users" not in answer.text
        assert record.exc_info is not None


def test_an_agent_that_cannot_be_called_with_a_run_is_refused_at_once() -> None:
    def alone() -> None: ...

    def two(run: Any, other: Any) -> None: ...

    def any_number(*args: Any, **more: Any) -> None: ...

    def with_default(run: Any, other: int = 1) -> None: ...

    class Method:
        def agent(self, run: Any) -> None: ...

    for bad, reason in ((alone, "too many positional arguments"), (two, "missing a required argument: 'other'")):
        with pytest.raises(TypeError, match=rf"as in agent\(run\); .*{bad.__name__}\(.*\) cannot be: {reason}"):
            App(bad)
    with pytest.raises(TypeError, match="int cannot be called"):
        App(5)
    for good in (any_number, with_default, Method().agent, functools.partial(two, 1), print):
        App(good)
