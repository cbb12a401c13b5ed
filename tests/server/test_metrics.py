"""``GET /metrics``: that its numbers are exactly what a load did, and who may read it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from in_process import Reader
from metrics import samples
from serving import Background, Peer, Server, run_input, serving
from waiting import wait_until, wait_until_async

from aguila import App
from aguila.errors import RunFailed, StoreUnavailable
from aguila.protocol import TokenUsage
from aguila.server import Metrics, Request
from aguila.store import Lease, MemoryStore, RunChange


async def agent(run: Any) -> Any:
    match run.messages[-1].content:
        case "fail":
            raise RunFailed("no", code="teapot")
        case "crash":
            raise ValueError("no")
        case "ask":
            await run.ask("Which one?")
        case "wait":
            yield "waiting"
            await asyncio.Event().wait()
        case text:
            run.add_usage(TokenUsage(provider="openai", model="gpt", input_tokens=100, output_tokens=7))
            run.add_usage(TokenUsage(provider="openai", model="gpt", input_tokens=20))
            run.add_usage(TokenUsage(output_tokens=3))
            yield text


class CountingStore(MemoryStore):
    """Counts the appends. While ``is_away``, it fails."""

    def __init__(self) -> None:
        super().__init__()
        self.appends = 0
        self.is_away = False

    async def write(self, lease: Lease, change: RunChange) -> Any:
        self._check()
        self.appends += len(change.events) > 0
        return await super().write(lease, change)

    async def begin(self, *args: Any) -> Any:
        self._check()
        return await super().begin(*args)

    async def check(self) -> None:
        self._check()
        await super().check()

    def _check(self) -> None:
        if self.is_away:
            raise StoreUnavailable("the disk is away")


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def server(store: CountingStore) -> Iterator[Server]:
    with serving(App({"helper": agent}, store=store, busy="queue", metrics=True)) as found:
        yield found


class Viewer:
    """Counts the events and bytes that it receives."""

    def __init__(self) -> None:
        self.received: Counter[str] = Counter()

    def read(self, peer: Peer, method: str, path: str, **members: Any) -> None:
        body = {"json": run_input(**members)} if method == "POST" else {}
        with peer.stream(method, path, **body) as stream:
            assert stream.status == 200, stream.response.read()
            self.received["events"] += len(stream.rest())
            self.received["bytes"] += len(stream.raw)


def says(text: str) -> list[dict[str, Any]]:
    return [{"id": "u", "role": "user", "content": text}]


def scrape(peer: Peer) -> Counter[str]:
    answer = peer.get("/metrics")
    assert answer.status_code == 200, answer.text
    return samples(answer.text)


def await_numbers(peer: Peer, **expected: float) -> Counter[str]:
    """Return the numbers as soon as they have these values: a viewer sees the end of a run before it is counted."""

    def look() -> Counter[str] | None:
        found = scrape(peer)
        return found if all(found[f"aguila_{name}"] == value for name, value in expected.items()) else None

    return wait_until(look)


IDLE = {"run_running": 0, "run_queued": 0, "stream_viewers": 0}


def test_the_numbers_are_what_the_load_did(server: Server, store: CountingStore) -> None:
    viewer = Viewer()
    for number, text in enumerate(["finish", "finish", "fail", "crash", "ask"]):
        viewer.read(server, "POST", "/", thread_id=f"t{number}", messages=says(text))
    for path in ("/threads/t0/events", "/threads/t0/events?compact=true", "/threads/t4/runs/run/events"):
        viewer.read(server, "GET", path)
    viewer.read(server, "POST", "/connect", thread_id="t1")
    await_numbers(server, **IDLE)

    one, two, three = peers = [server.peer() for _ in range(3)]
    others = [Viewer() for _ in peers]  # each in a thread of its own
    first = {"thread_id": "w", "run_id": "first", "messages": says("wait")}
    with Background(lambda: others[0].read(one, "POST", "/", **first)) as starting:
        await_numbers(server, run_running=1, stream_viewers=1)
        with Background(lambda: others[1].read(two, "GET", "/threads/w/runs/first/events")) as following:
            await_numbers(server, run_running=1, stream_viewers=2)
            second = {"thread_id": "w", "run_id": "second", "messages": says("finish")}
            with Background(lambda: others[2].read(three, "POST", "/", **second)) as queued:
                await_numbers(server, run_running=1, run_queued=1, stream_viewers=2)
                assert server.post("/threads/w/runs/first/cancel").status_code == 202
                for each in (starting, following, queued):
                    each.result()
    for peer, other in zip(peers, others, strict=True):
        peer.close()
        viewer.received += other.received

    for _ in range(2):
        assert server.get("/nowhere").status_code == 404
    assert server.post("/", content=b"{", headers={"content-type": "application/json"}).status_code == 422
    again = run_input(thread_id="t0", messages=says("something else"))
    assert server.post("/", json=again).json()["error"]["code"] == "run_exists"

    found = await_numbers(server, **IDLE, **{"run_ended_total success": 3})
    outcomes = {"success": 3, "error": 2, "interrupt": 1, "cancelled": 1}
    assert {name: found[f"aguila_run_ended_total {name}"] for name in outcomes} == outcomes
    assert found["aguila_run_ended_total lost"] == 0
    durations = "gen_ai_invoke_agent_duration_seconds_count helper"
    assert (found[durations], found[f"{durations} teapot"], found[f"{durations} agent_error"]) == (5, 1, 1)
    assert found["aguila_run_first_event_seconds_count"] == 7
    assert found["aguila_event_append_seconds_count"] == store.appends
    assert found["aguila_stream_events_total"] == viewer.received["events"]
    assert found["aguila_stream_bytes_total"] == viewer.received["bytes"]
    refused = {"not_found": 2, "bad_json": 1, "run_exists": 1}
    assert {name: found[f"aguila_request_refused_total {name}"] for name in refused} == refused
    tokens = "gen_ai_client_token_usage_sum invoke_agent"
    assert found[f"{tokens} openai gpt input"] == 3 * 120
    assert found[f"{tokens} openai gpt output"] == 3 * 7
    assert found[f"{tokens} _OTHER output"] == 3 * 3
    assert found["aguila_store_outages_total"] == 0


def test_a_run_that_is_not_stored_counts_like_any_other(server: Server, store: CountingStore) -> None:
    viewer = Viewer()
    viewer.read(server, "POST", "/?store=false", messages=says("finish"))
    found = await_numbers(server, **IDLE, **{"run_ended_total success": 1})
    assert store.appends == 0
    assert found["aguila_run_first_event_seconds_count"] == 1
    assert found["aguila_stream_events_total"] == viewer.received["events"]


def test_an_outage_of_the_store_is_counted_once_and_is_seen_until_it_ends(server: Server, store: CountingStore) -> None:
    store.is_away = True
    for number in range(3):
        assert server.post("/", json=run_input(run_id=f"r{number}", messages=says("finish"))).status_code == 503
    found = scrape(server)
    assert (found["aguila_store_outages_total"], found["aguila_store_failing"]) == (1, 1)
    assert found["aguila_request_refused_total store_unavailable"] == 3
    store.is_away = False
    server.events(messages=says("finish"))
    found = await_numbers(server, store_failing=0, **IDLE)
    assert found["aguila_store_outages_total"] == 1


# Who may read them


async def status_of(app: App, address: str | None = "127.0.0.1", **headers: str) -> int:
    async with app:
        return await Reader(app, address=address).request("GET", "/metrics", **headers)


@pytest.mark.anyio
async def test_without_the_option_there_is_no_such_route() -> None:
    assert await status_of(App(agent, store=":memory:")) == 404


@pytest.mark.anyio
@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
async def test_this_machine_may_read_them_even_if_users_need_credentials(address: str) -> None:
    app = App(agent, store=":memory:", metrics=True, authenticate=lambda request: None)
    assert await status_of(app, address) == 200


@pytest.mark.anyio
@pytest.mark.parametrize("allowed_hosts", [None, ["*"]])
@pytest.mark.parametrize(
    ("address", "headers"),
    [
        ("10.0.0.7", {}),
        ("127.0.0.1", {"x_forwarded_for": "127.0.0.1"}),
        ("127.0.0.1", {"forwarded": "for=127.0.0.1"}),
        ("127.0.0.1", {"via": "1.1 proxy"}),
        ("127.0.0.1", {"host": "agents.example.com"}),
        (None, {}),
    ],
    ids=["address", "proxy", "forwarded", "via", "name", "Unix socket"],
)
async def test_nobody_else_may_read_them(
    address: str | None, headers: dict[str, str], allowed_hosts: list[str] | None
) -> None:
    app = App(agent, store=":memory:", metrics=True, authenticate=lambda request: "ada", allowed_hosts=allowed_hosts)
    assert await status_of(app, address, **headers) == 403


@pytest.mark.anyio
async def test_its_own_authenticate_decides_from_everywhere_and_that_of_the_app_is_not_asked() -> None:
    def check(request: Request) -> str | None:
        return "prometheus" if request.headers.get("authorization") == "Bearer secret" else None

    def app() -> App:
        return App(agent, store=":memory:", metrics=Metrics(authenticate=check), authenticate=lambda request: "ada")

    assert await status_of(app(), "10.0.0.7", host="10.0.0.1:8000", authorization="Bearer secret") == 200
    assert await status_of(app(), "127.0.0.1", authorization="Bearer ada") == 401
    assert await status_of(app(), "127.0.0.1") == 401


def test_what_is_neither_a_flag_nor_metrics_is_refused() -> None:
    options: Any = {"metrics": "yes"}
    with pytest.raises(TypeError, match="neither True, False nor Metrics"):
        App(agent, store=":memory:", **options)


# Several event loops


def test_the_gauges_of_a_closed_event_loop_are_gone() -> None:
    app = App(agent, store=":memory:", metrics=True)
    body = json.dumps(run_input(messages=says("wait"))).encode()

    async def begin() -> None:
        reader = Reader(app)
        running = asyncio.create_task(reader.request("POST", "/", body, content_type="application/json"))
        await wait_until_async(lambda: b"waiting" in reader.body)
        running.cancel()

    async def read() -> str:
        reader = Reader(app, address="127.0.0.1")
        assert await reader.request("GET", "/metrics") == 200
        return reader.body.decode()

    asyncio.run(begin())
    assert samples(asyncio.run(read()))["aguila_run_running"] == 0
