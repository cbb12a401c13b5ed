"""The app: mounted, started with and without a lifespan, stopped, and called from other origins."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import gc
import inspect
import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from serving import Held, Server, run_input, serving, types
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount
from waiting import wait_until

import aguila.server
from aguila import App
from aguila.errors import StoreUnavailable
from aguila.server import Limits, Quota, Rejected, Sends, Timing, Trust
from aguila.server.config.removed import APP_OPTIONS, LIMITS
from aguila.store import MemoryStore

pytestmark = pytest.mark.anyio


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


@pytest.mark.parametrize("path", ["/t/acme/agent", "/t/acme/agent/"])
def test_the_path_that_it_is_mounted_on_may_have_parameters(path: str) -> None:
    parent, outer = Starlette(), Starlette()
    App(agent).mount_on(parent, "/t/{tenant}/agent")
    outer.mount("/outer", parent)
    with serving(outer) as server, server.run(path="/outer" + path) as stream:
        assert types(stream.rest())[-1] == "RUN_FINISHED"
        assert server.get("/outer/t/acme/agent/threads/thread").json()["threadId"] == "thread"


def test_streams_are_not_compressed_by_middleware() -> None:
    parent = Starlette(middleware=[Middleware(GZipMiddleware, minimum_size=0)])
    App(agent).mount_on(parent, "/agent")
    for accept in ("text/event-stream", "application/vnd.ag-ui.event+proto"):
        with serving(parent) as server, server.run(path="/agent", headers={"accept": accept}) as stream:
            assert stream.response.headers["content-type"] == accept
            assert stream.response.headers["content-encoding"] == "identity"
            assert b"RUN_STARTED" in stream.response.read() or accept != "text/event-stream"


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


async def test_an_app_can_be_used_as_a_context_and_again_after_it_was_closed(tmp_path: Path) -> None:
    app = App(agent, store=tmp_path / "threads.db")
    counts: list[int] = []
    for name in ("a", "b"):
        async with app:
            await post(app, name)
            counts.append((await app.store.thread("anonymous", "thread")).summary.runs)
    assert counts == [1, 2]


async def post(app: App, run_id: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> list[dict[str, Any]]:
    """Start a run without a server; return its events."""
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
    own = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    await app({**scope, "headers": [*own, *headers]}, receive, send)
    return sent


@pytest.mark.parametrize("store", [MemoryStore(), ":memory:"], ids=["store", "name"])
def test_a_memory_store_that_was_asked_for_is_not_warned_of(
    store: MemoryStore | str, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(agent, store=store)
    with caplog.at_level(logging.WARNING, "aguila"), serving(app) as server:
        assert types(server.events())[-1] == "RUN_FINISHED"
    assert isinstance(app.store, MemoryStore)
    assert caplog.records == []


def test_a_process_with_several_apps_warns_once_that_threads_are_lost() -> None:
    program = """
import anyio
from aguila import App

async def agent(run):
    yield "Hello"

async def main():
    for _ in range(3):
        async with App(agent):
            pass

anyio.run(main)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == (
        "threads are kept in memory and lost on exit; use App(store=path) to keep them, "
        'or store=":memory:" if they need not be kept\n'
    )


async def test_a_store_that_cannot_be_opened_keeps_the_server_from_starting(
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

    assert await scenario() == [
        {
            "type": "lifespan.startup.failed",
            "message": f"the app cannot start: {path} cannot be used as a store: there is no folder {path.parent}",
        }
    ]
    assert caplog.records == []  # the server logs the message itself


@pytest.mark.parametrize("option", [{"busy": "maybe"}, {"history": "both"}])
def test_a_misspelt_option_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="; use one of '"):
        App(agent, **option)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("options", "durability"), [("", "process"), ("?durability=process", "process"), ("?durability=power", "power")]
)
async def test_the_store_of_an_app_syncs_each_commit_only_with_durability_power(
    tmp_path: Path, options: str, durability: str
) -> None:
    async with App(Held(), store=f"sqlite:///{tmp_path / 'a.db'}{options}") as app:
        assert app.store.durability == durability


async def test_a_websocket_is_turned_away() -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await App(agent)({"type": "websocket", "path": "/"}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_while_draining_new_runs_are_refused_and_old_ones_can_be_watched() -> None:
    held = Held()
    app = App(held, drain=10.0)
    with serving(app) as server, server.run() as first:
        first.read_until("TEXT_MESSAGE_CONTENT")
        server.call(app.begin_drain)
        wait_until(lambda: server.get("/readyz").status_code == 503)
        answer = server.post("/", json=run_input("other", "other"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "draining")
        assert answer.headers["retry-after"] == "1"
        assert answer.headers["connection"] == "close"  # the client's next connection may reach another process
        with server.run() as second:
            assert (second.status, second.response.headers["connection"]) == (200, "close")
            held.gate("run").open()
            assert second.rest()[-1]["outcome"] == {"type": "success"}


def test_when_it_has_drained_no_stream_begins() -> None:
    """One of a run in another process would keep this one from stopping."""
    app = App(agent)
    with serving(app) as server:
        server.events()
        server.call(app.begin_drain)
        wait_until(lambda: server.get("/threads/thread/events").status_code == 503)
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
        preflight = ask_before_post(server, page, "content-type")
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-methods"] == "POST, GET"
        other = server.get("/capabilities", headers={"origin": "https://other.example"})
        assert "access-control-allow-origin" not in other.headers
        refused = server.post("/", json=run_input(run_id="2"), headers={"origin": "https://other.example"})
        assert refused.status_code == 403
        # An error must be readable for the page, too.
        missing = server.get("/threads/unknown", headers={"origin": page})
        assert (missing.status_code, missing.headers["access-control-allow-origin"]) == (404, page)


def ask_before_post(server: Server, origin: str, names: str | None) -> httpx2.Response:
    asked = {} if names is None else {"access-control-request-headers": names}
    return server.client.options("/", headers={"origin": origin, "access-control-request-method": "POST", **asked})


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        ("cache-control,x-tenant", "cache-control, x-tenant"),
        ("last-event-id, x-run-id, authorization", "last-event-id, x-run-id, authorization"),
        ("x-good, a b, x(y), , x:y, x-other", "x-good, x-other"),  # only names of headers
        (",".join(f"x-{number}" for number in range(1000)), ", ".join(f"x-{number}" for number in range(64))),
        ("", None),
        (None, None),
    ],
)
def test_a_page_of_a_listed_origin_may_send_every_header_it_asks_for(asked: str | None, allowed: str | None) -> None:
    page = "https://app.example"
    with serving(App(agent, cors_origins=[page])) as server:
        answer = ask_before_post(server, page, asked)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (204, page)
        assert answer.headers.get("access-control-allow-headers") == allowed


def test_a_refused_preflight_is_logged_once_for_each_origin(caplog: pytest.LogCaptureFixture) -> None:
    app = App(agent, store=MemoryStore(), cors_origins=["https://app.example"])
    with serving(app) as server, caplog.at_level(logging.WARNING, "aguila"):
        ask_before_post(server, "https://app.example", "x-tenant")
        for _ in range(3):
            answer = ask_before_post(server, "https://other.example", "x-tenant")
            assert answer.status_code == 405
            assert not [name for name in answer.headers if name.startswith("access-control")]
        (line,) = [record.getMessage() for record in caplog.records]
        assert "not in cors_origins; allow it with App(cors_origins=[...]) or aguila serve --cors-origin" in line
        assert line.endswith("origin=https://other.example")
        for number in range(200):
            ask_before_post(server, f"https://{number}.example", None)
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == 101
        assert lines[-1] == "refused preflights of further origins are not logged"


def test_a_page_of_the_same_host_may_post() -> None:
    with serving(App(agent, allowed_hosts=["*"])) as server:
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
    eagle = {"identity": {"name": "Eagle"}}
    with serving(App(agent, capabilities=eagle, store=tmp_path / "t.db")) as server:
        found = server.get("/capabilities").json()
        assert found["identity"] == {"name": "Eagle"}
        assert found["transport"] == {"streaming": True, "httpBinary": True, "resumable": True}
        assert found["state"]["persistentState"] is True
    override = {"identity": {"name": "Eagle", "version": "2"}, "state": {"deltas": False}, "custom": {"x": 1}}
    with serving(App(agent, capabilities=override)) as server:
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


def test_a_hook_that_returns_nonsense_refuses_every_request() -> None:
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
        with pytest.raises(TypeError, match=rf"callable as agent\(run\); .*{bad.__name__}\(.*\) is not: {reason}"):
            App(bad)
    with pytest.raises(TypeError, match="App is an ASGI application, not an agent: serve it with uvicorn"):
        App(App(print))
    with pytest.raises(TypeError, match="int is not callable"):
        App(5)
    for good in (any_number, with_default, Method().agent, functools.partial(two, 1), print):
        App(good)


# Several event loops


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of the loops that were closed under the store
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("is_durable", [False, True])
def test_an_app_that_was_never_closed_goes_on_in_the_next_event_loop(is_durable: bool, tmp_path: Path) -> None:
    app = App(agent, store=tmp_path / "threads.db" if is_durable else None)

    async def post(run_id: str) -> bytes:
        sent: list[Any] = []
        scope = {
            "type": "http", "method": "POST", "path": "/", "raw_path": b"/", "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
        }  # fmt: skip

        async def receive() -> Any:
            if sent:
                await asyncio.Event().wait()
            return {"type": "http.request", "body": json.dumps(run_input(run_id=run_id)).encode()}

        async def send(message: Any) -> None:
            sent.append(message)

        await app(scope, receive, send)
        return b"".join(message.get("body", b"") for message in sent)

    async def close() -> None:
        await app.close()

    for number in range(3):
        # asyncio.run closes its loop, as this test needs.
        assert b"RUN_FINISHED" in asyncio.run(post(f"run-{number}"))
    asyncio.run(close())
    gc.collect()


async def test_apps_that_share_a_store_do_not_close_it_for_each_other() -> None:
    store = MemoryStore()
    async with App(agent, store=store):
        async with App(agent, store=store):
            pass
        await store.check()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.check()


# Options


OPTIONS = """store authenticate allow_anonymous history busy limits retention allowed_hosts cors_origins headers_allowed
capabilities debug handle_signals copilotkit page langgraph_interrupts warn drain heartbeat cancel_unwatched_after
timing trust sends metrics trace_url"""


def test_an_app_has_25_options() -> None:
    _, *options, removed = inspect.signature(App).parameters.values()
    assert sorted(one.name for one in options) == sorted(OPTIONS.split())
    assert (len(options), removed.kind) == (25, inspect.Parameter.VAR_KEYWORD)
    groups = {one.__name__: list(one.__struct_fields__) for one in (Timing, Trust, Sends)}
    assert groups == {
        "Timing": ["lease", "cancel_grace", "store_patience"],
        "Trust": ["system_messages", "unknown_history", "state_keys", "media"],
        "Sends": ["merge_deltas", "echo_input", "undeclared_peers"],
    }


@pytest.mark.parametrize("option", APP_OPTIONS)
def test_a_removed_option_is_refused_with_its_new_place(option: str) -> None:
    with pytest.raises(TypeError, match=rf"^App\({option}=...\) is gone; it ") as refused:
        App(agent, **{option: 1})  # type: ignore[arg-type]
    place = re.search(r"is now (\w+)=(?:(\w+)\((\w+)=)?", str(refused.value))
    assert place is None if option == "coalesce" else place is not None
    if place is not None:
        name, group, field = place.groups()
        assert name in OPTIONS.split()
        assert group is None or field in getattr(aguila.server, group).__struct_fields__


def test_limits_have_14_fields() -> None:
    assert [one.name for one in dataclasses.fields(Limits)] == LIMITS_FIELDS.split()
    assert len(LIMITS_FIELDS.split()) == 14
    assert [one.name for one in dataclasses.fields(Quota)] == ["threads", "files", "bytes"]


LIMITS_FIELDS = """body event state upload upload_types buffered runs runs_per_scope runs_per_address run_seconds
per_scope total anonymous per_address"""


@pytest.mark.parametrize("name", LIMITS)
def test_a_removed_limit_is_refused_with_its_new_place(name: str) -> None:
    with pytest.raises(TypeError, match=rf"^Limits\({name}=...\) is gone; it ") as refused:
        Limits(**{name: 1})
    place = re.search(r"is now (\w+)=(?:Quota\((\w+)=)?", str(refused.value))
    if place is None:
        assert "it has no replacement: " in str(refused.value)
    else:
        assert place[1] in LIMITS_FIELDS.split()
        assert place[2] is None or hasattr(Quota(), place[2])


def test_an_unknown_limit_or_a_number_as_quota_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Limits\(\) got an unexpected keyword argument 'bodies'"):
        Limits(bodies=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"total is 5; use total=Quota\(...\)"):
        Limits(total=5)  # type: ignore[arg-type]


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError, match=r"App\(\) got an unexpected keyword argument 'one_txt'"):
        App(agent, one_txt=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["limits", "timing", "trust", "sends"])
def test_a_group_of_options_is_refused_as_a_dict(option: str) -> None:
    with pytest.raises(TypeError, match=rf"{option} is {{}}; use {option}={option.title()}\(...\)"):
        App(agent, **{option: {}})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"heartbeat": 0}, "heartbeat is 0; use a number of seconds above 0"),
        ({"heartbeat": float("nan")}, "heartbeat is nan; use a number of seconds above 0"),
        ({"drain": -1}, "drain is -1; use a number of seconds"),
        ({"cancel_unwatched_after": -1}, "cancel_unwatched_after is -1; use a number of seconds"),
        ({"cors_origins": "https://a.example"}, r"use a list: cors_origins=\['https://a.example'\]"),
        ({"allowed_hosts": "localhost"}, r"use a list: allowed_hosts=\['localhost'\]"),
        ({"headers_allowed": "x-tenant"}, r"use a list: headers_allowed=\['x-tenant'\]"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        App(agent, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lease": 0}, "lease is 0; use a number of seconds above 0"),
        ({"store_patience": -1}, "store_patience is -1; use a number of seconds above 0"),
        ({"cancel_grace": -1}, "cancel_grace is -1; use a number of seconds"),
    ],
)
def test_times_that_cannot_be_meant_are_refused(options: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Timing(**options)


def test_upload_types_are_not_taken_letter_by_letter() -> None:
    with pytest.raises(ValueError, match="use a tuple: upload_types="):
        Limits(upload_types="image/*")  # type: ignore[arg-type]


# Refusals of others


@pytest.mark.parametrize(
    ("status", "code"), [(401, "unauthenticated"), (403, "forbidden"), (418, "refused"), (500, "internal")]
)
def test_an_http_exception_of_an_authenticate_hook_is_a_refusal_unless_it_is_a_fault(status: int, code: str) -> None:
    def authenticate(request: Any) -> Any:
        raise HTTPException(status, "not you", headers={"www-authenticate": "Bearer"})

    with serving(App(agent, authenticate=authenticate)) as server, server.run() as stream:
        assert stream.status == status
        error = json.loads(stream.response.read())["error"]
        assert error["code"] == code
        assert (error["message"] == "not you") is (status < 500)
        assert ("www-authenticate" in stream.response.headers) is (status < 500)


# Requests cannot change the log


def test_the_first_of_many_notices_are_reported_and_the_rest_counted() -> None:
    notices: list[Any] = []
    with serving(App(agent, warn=notices.append)) as server:
        members = {f"unknown-{number}": 1 for number in range(40_000)}
        for run_id, count in (("small", 100), ("large", 40_000)):
            some = dict(list(members.items())[:count])
            assert server.events(run_id=run_id, **some)[-1]["type"] == "RUN_FINISHED"
            told = [notice for notice in notices if notice.rule != "VER-8"]
            assert len(told) == 21
            assert told[-1].message == f"and {count - 20} more of these"
            notices.clear()


def test_long_ids_are_neither_logged_nor_sent_back_whole(caplog: pytest.LogCaptureFixture) -> None:
    long = "x" * 100_000
    with serving(App(agent)) as server, server.run(parentRunId=long) as stream:
        assert len(stream.response.read()) < 2_000
    with serving(App(agent)) as server:
        server.events(resume=[{"interruptId": long, "status": "cancelled"}])
    assert [record for record in caplog.records if "INT-14" in record.getMessage()]
    assert max(len(record.getMessage()) for record in caplog.records) < 2_000


def test_answers_are_counted_before_they_are_looked_at() -> None:
    answers = [{"interruptId": str(number), "status": "cancelled"} for number in range(1_001)]
    with serving(App(agent)) as server, server.run(resume=answers) as stream:
        assert stream.status == 422
        assert json.loads(stream.response.read())["error"]["code"] == "too_many_answers"


@pytest.mark.anyio
@pytest.mark.parametrize("url", ["http://testserver", "http://test", "http://agent.test:8000", "http://localhost"])
async def test_test_clients_in_the_same_process_reach_an_app_by_their_names(url: str) -> None:
    app = App(agent)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=url) as client:
        assert (await client.get("/capabilities")).status_code == 200
    await app.close()


@pytest.mark.parametrize(
    ("options", "server", "host", "status"),
    [
        ({}, "127.0.0.1", "localhost:8000", 200),
        ({}, "127.0.0.1", "[::1]:8000", 200),
        ({}, "127.0.0.1", "evil.example", 403),
        ({}, "127.0.0.1", "localhost:80.evil.example", 403),
        ({}, "127.0.0.1", "127.0.0.1:x", 403),
        ({}, "127.0.0.1", "[::1].evil.example", 403),
        ({}, "127.0.0.1", "[::1]:80.evil.example", 403),
        ({}, "127.0.0.1", "[]", 403),
        ({}, "192.0.2.1", "evil.example", 403),
        ({}, "/run/app.sock", "evil.example", 403),
        ({}, "AddressFamily.AF_UNIX:/run/app.sock", "evil.example", 403),
        ({}, "evil.site", "evil.site", 403),
        ({}, None, "evil.site", 403),
        ({}, None, "testserver", 403),
        ({}, None, "localhost:8000", 200),
        ({}, "testserver", "testserver", 200),
        ({}, "app.test", "app.test:8000", 200),
        ({}, "testserver", "evil.site", 403),
        ({"allowed_hosts": ["site.example"]}, None, "site.example", 200),
        ({"authenticate": lambda request: "me"}, None, "site.example", 200),
        ({"authenticate": lambda request: "me"}, "/run/app.sock", "site.example", 200),
        ({"allowed_hosts": ["site.example"]}, "192.0.2.1", "site.example", 200),
        ({"allowed_hosts": ["*"]}, "127.0.0.1", "site.example", 200),
        ({"authenticate": lambda request: "me"}, "192.0.2.1", "site.example", 200),
        ({"authenticate": lambda request: "me"}, "127.0.0.1", "evil.example", 403),
        ({"authenticate": lambda request: "me"}, "::1", "evil.example", 403),
    ],
)
@pytest.mark.anyio
async def test_by_default_only_loopback_names_reach_an_app_without_credentials(
    options: Any, server: str | None, host: str, status: int
) -> None:
    async def agent(run: Any) -> None: ...

    statuses: dict[str, int] = {}
    bodies: dict[str, bytes] = {"/capabilities": b"", "/healthz": b""}
    app = App(agent, **options)
    for path in ("/capabilities", "/healthz"):

        async def send(message: Any, path: str = path) -> None:
            statuses.setdefault(path, message.get("status"))
            bodies[path] += message.get("body", b"")

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        headers = [(b"host", host.encode())]
        address = None if server is None else (server, 8000)
        scope = {"type": "http", "method": "GET", "path": path, "headers": headers, "server": address}
        await app({**scope, "query_string": b"", "root_path": ""}, receive, send)
    assert statuses == {"/capabilities": status, "/healthz": 200}
    assert (b"add it with App(allowed_hosts=[...])" in bodies["/capabilities"]) == (status == 403)
    await app.close()
