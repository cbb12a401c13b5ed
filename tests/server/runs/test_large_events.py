"""Events and inputs of many megabytes arrive whole, in every format, and are not processed on the event loop."""

from __future__ import annotations

import base64
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from serving import check_valid, run_input, serving, types

from aguila import App
from aguila.chat import ChatMessage, ChatUpdate, DataContent, FunctionCallContent, FunctionResultContent
from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE
from aguila.codec.protobuf import ProtobufDecoder
from aguila.offload import offload
from aguila.protocol import (
    CustomEvent,
    StateSnapshotEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguila.server import Limits

pytestmark = pytest.mark.anyio

IMAGE = random.Random(1).randbytes(3_000_000)
TEXT = base64.b64encode(IMAGE).decode()
LIMITS = Limits(body=1 << 30, event=1 << 30)


def messages(source: dict[str, Any]) -> list[Any]:
    return [{"id": "m", "role": "user", "content": [{"type": "image", "source": source}]}]


async def painter(run: Any) -> Any:
    yield ChatUpdate(contents=[FunctionCallContent("c", "paint", "{}")])
    yield ChatMessage("tool", [FunctionResultContent("c", [DataContent(IMAGE, "image/png")])])


def is_large(value: Any) -> bool:
    return isinstance(value, (bytes, str)) and len(value) > 1 << 20


def results(events: list[dict[str, Any]]) -> list[str]:
    return [event["content"][0]["source"]["value"] for event in events if event["type"] == "TOOL_CALL_RESULT"]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    return str(tmp_path / "threads.db") if request.param == "sqlite" else None


@pytest.mark.parametrize("declared", ["1.1", "1.0", None])
def test_a_large_result_reaches_readers_of_every_version_live_and_again(store: str | None, declared: str | None):
    members = {} if declared is None else {"protocolVersion": declared}
    with serving(App(painter, store=store, limits=LIMITS)) as server:
        live = server.events(**members)
        check_valid(live)
        assert results(live) == [TEXT]
        with server.stream("GET", "/threads/thread/events") as stream:
            assert results(stream.rest()) == [TEXT]


def test_a_large_result_travels_as_protobuf(store: str | None):
    async def agent(run: Any) -> Any:
        yield ToolCallStartEvent(tool_call_id="c", tool_call_name="paint")
        yield ToolCallEndEvent(tool_call_id="c")
        yield ToolCallResultEvent(message_id="r", tool_call_id="c", content=TEXT)

    app = App(agent, store=store, limits=LIMITS)
    with serving(app) as server, server.run(headers={"accept": PROTOBUF_MEDIA_TYPE}) as stream:
        body = stream.response.read()
    decoder = ProtobufDecoder(max_size=1 << 30)
    [result] = [event for event in decoder.feed(body) if isinstance(event, ToolCallResultEvent)]
    assert result.content == TEXT


@pytest.mark.parametrize(
    "event",
    [
        StateSnapshotEvent(snapshot={"image": TEXT}),
        CustomEvent(name="image", value=[{"deep": {"image": TEXT}}]),
        ToolCallResultEvent(message_id="r", tool_call_id="c", content=TEXT),
    ],
    ids=lambda event: str(event.type),
)
def test_large_events_of_other_kinds_keep_their_place_among_small_ones(event: Any):
    async def agent(run: Any) -> Any:
        yield "before"
        yield ToolCallStartEvent(tool_call_id="c", tool_call_name="paint")
        yield ToolCallEndEvent(tool_call_id="c")
        yield event
        yield "after"

    with serving(App(agent, limits=LIMITS)) as server:
        found = server.events()
    check_valid(found)
    order = [name for name in types(found) if name in ("TEXT_MESSAGE_CONTENT", str(event.type))]
    assert order == ["TEXT_MESSAGE_CONTENT", str(event.type), "TEXT_MESSAGE_CONTENT"]


def test_a_large_event_beyond_its_limit_ends_the_run_as_the_agents_fault():
    async def agent(run: Any) -> Any:
        yield "before"
        yield CustomEvent(name="image", value=TEXT)
        yield "after"

    with serving(App(agent, limits=Limits(event=2_000_000))) as server:
        found = server.events()
    assert types(found) == ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "RUN_ERROR"]
    assert found[-1]["code"] == "agent_output"


def test_a_large_event_that_is_no_json_ends_the_run_as_the_agents_fault():
    async def agent(run: Any) -> Any:
        await run.custom("image", [TEXT, float("nan")])

    with serving(App(agent, limits=LIMITS)) as server:
        found = server.events()
    assert types(found) == ["RUN_STARTED", "RUN_ERROR"]
    assert found[-1]["code"] == "agent_output"


def test_what_is_large_is_never_worked_on_by_the_event_loop(monkeypatch: pytest.MonkeyPatch, store: str | None):
    seen: dict[str, set[int]] = {}
    loop: set[int] = set()

    def watch(place: str) -> None:
        module, _, name = place.rpartition(".")
        real: Callable[..., Any] = getattr(__import__(module, fromlist=[name]), name)

        def watched(value: Any, *rest: Any, **options: Any) -> Any:
            result = real(value, *rest, **options)
            if any(map(is_large, (value, result))):
                seen.setdefault(place, set()).add(threading.get_ident())
            return result

        monkeypatch.setattr(f"{module}.{name}", watched)

    async def agent(run: Any) -> Any:
        loop.add(threading.get_ident())
        await run.chat_messages()
        yield ChatUpdate(contents=[FunctionCallContent("c", "paint", "{}")])
        yield ChatMessage("tool", [FunctionResultContent("c", [DataContent(IMAGE, "image/png")])])
        yield StateSnapshotEvent(snapshot={"image": TEXT})

    places = [
        "aguila.chat.media.decode_base64",  # the request's base64 is decoded
        "aguila.chat.media.encode_base64",  # the response is encoded
    ]
    for place in places:
        watch(place)
    with serving(App(agent, store=store, limits=LIMITS)) as server:
        source = {"type": "data", "value": TEXT, "mimeType": "image/png"}
        found = server.events(messages=messages(source), protocolVersion="1.1")
    assert found[-1]["type"] == "RUN_FINISHED"
    assert sorted(seen) == sorted(places)
    assert all(threads.isdisjoint(loop) for threads in seen.values()), (seen, loop)


def test_a_large_event_whose_members_are_of_the_wrong_type_ends_the_run_as_the_agents_fault():
    async def agent(run: Any) -> Any:
        yield ToolCallStartEvent(tool_call_id="c", tool_call_name="paint")
        yield ToolCallEndEvent(tool_call_id="c")
        yield ToolCallResultEvent(message_id="r", tool_call_id="c", content=TEXT, metadata=7)  # type: ignore[arg-type]

    with serving(App(agent, limits=LIMITS)) as server:
        found = server.events()
    assert found[-1]["code"] == "agent_output"


def test_a_large_event_may_hold_json_that_is_written_already():
    async def agent(run: Any) -> Any:
        yield CustomEvent(name="image", value=[TEXT, msgspec.Raw(b'{"a":\n1}')])

    with serving(App(agent, limits=LIMITS)) as server:
        found = server.events()
    assert found[1]["value"] == [TEXT, {"a": 1}]


def test_a_state_with_a_large_string_in_it_counts_in_full():
    async def agent(run: Any) -> Any:
        yield "no"

    with serving(App(agent, limits=Limits(body=1 << 30, state=3_000_000))) as server:
        body = run_input(state={"image": TEXT})
        assert server.client.post("/", json=body).json()["error"]["code"] == "state_too_large"
        assert server.events(state={"image": TEXT[:2_000_000]})[-1]["type"] == "RUN_FINISHED"


async def test_the_interpreter_is_handed_over_as_before_when_the_work_is_done():
    before = sys.getswitchinterval()

    for _ in range(100):
        assert await offload(sys.getswitchinterval) < before
    assert sys.getswitchinterval() == before
