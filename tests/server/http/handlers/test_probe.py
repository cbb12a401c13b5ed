"""``GET /probe``: two events that say how a request arrived."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import msgspec
from serving import Peer, Stream, serving
from waiting import wait_until

from aguila import App
from aguila.server import Limits
from aguila.server.http.probe import MAX_PROBES, PROBE, Probe


async def agent(run: Any) -> Any:
    yield "hello"


def read(stream: Stream) -> Probe:
    event = stream.next_event()
    assert event is not None
    assert (event["type"], event["name"]) == ("CUSTOM", PROBE)
    return msgspec.convert(event["value"], Probe, strict=True)


def look(server: Peer, **headers: str) -> Probe:
    with server.stream("GET", "/probe", headers=headers) as stream:
        first, second = read(stream), read(stream)
        assert stream.next() is None
    assert first.time <= second.time
    return first


def test_a_probe_says_how_the_request_arrived() -> None:
    limits = Limits(body=1000, upload=2000)
    with serving(App(agent, store=":memory:", limits=limits, cors_origins=["https://a.example"])) as server:
        found = look(server)
        assert (found.url, found.max_body) == (server.url, 2000)
        assert (found.untrusted_proxy, found.allows_origin) == (None, False)
        assert look(server, host="localhost:1").url == "http://localhost:1"
        assert look(server, origin="https://a.example").allows_origin
        assert not look(server, origin="https://b.example").allows_origin
    with serving(App(agent, store=":memory:"), forwarded_allow_ips="10.0.0.1") as server:
        headers = {"x-forwarded-for": "192.0.2.1"}
        assert look(server, **headers).untrusted_proxy == "127.0.0.1"


def test_with_silence_only_a_heartbeat_comes_before_the_second_event() -> None:
    with serving(App(agent, store=":memory:", heartbeat=0.1)) as server:
        with server.stream("GET", "/probe?silence=true") as stream:
            first, second = read(stream), read(stream)
        assert second.time - first.time >= first.heartbeat * 0.9  # the clock of the loop is another one
        assert b"\n\n:" in stream.raw
        assert server.get("/probe?silence=1").status_code == 422


def test_probes_are_bounded_and_end_with_their_clients_and_the_server() -> None:
    app = App(agent, store=":memory:", heartbeat=1000.0)
    with serving(app) as server, ExitStack() as stack:
        streams = [stack.enter_context(server.stream("GET", "/probe?silence=true")) for _ in range(MAX_PROBES)]
        for stream in streams:
            read(stream)
        refused = server.get("/probe")
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_probes")
        streams[0].close()
        wait_until(lambda: server.get("/probe").status_code == 200)
        server.call(app.begin_drain)
        assert streams[1].next() is None


def test_a_probe_needs_what_other_requests_need() -> None:
    with serving(App(agent, store=":memory:", authenticate=lambda request: None)) as server:
        assert server.get("/probe").status_code == 401
    with serving(App(agent, store=":memory:")) as server:
        assert server.get("/probe", headers={"host": "foreign.example"}).status_code == 403
