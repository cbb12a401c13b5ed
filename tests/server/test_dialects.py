"""Older clients over HTTP: their events live, in a replay and in a join, and the messages that they send back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from serving import Gate, number_of, run_input, serving, types

from aguila import App
from aguila.agent import Run
from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE
from aguila.codec.protobuf import ProtobufDecoder
from aguila.protocol import DataSource, FileSource, ImagePart, StateSnapshotEvent, TextPart, ToolMessage, UserMessage
from aguila.server import Sends, Timing

PICTURE = ImagePart(source=DataSource(value="QUJD", mime_type="image/png"))


async def every_shape(run: Run) -> None:
    """Send everything that older clients cannot read."""
    run.state["n"] = run.state.get("n", 0) + 1
    async with run.subagent("helper") as helper:
        await helper.say("I help.")
    call = await run.tool_call("draw", {})
    await call.result([TextPart(text="A square."), PICTURE])
    run.state["n"] += 1
    await run.tool_call("pick", {})


def without_ids(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in event.items() if not name.endswith("Id")} for event in events]


def test_an_undeclared_client_gets_what_0_x_clients_can_read() -> None:
    with serving(App(every_shape, sends=Sends(echo_input=True))) as server:
        events = server.events(protocolVersion=..., state={"n": 4}, tools=[{"name": "pick", "description": "picks"}])
    assert "SUBAGENT_STARTED" not in types(events)
    assert all("subagentRunId" not in event for event in events)
    assert events[0]["input"]["context"] == []
    snapshots = [event["snapshot"] for event in events if event["type"] == "STATE_SNAPSHOT"]
    assert snapshots == [{"n": 4}, {"n": 6}]  # before the first delta, and after the last one
    assert types(events).index("STATE_SNAPSHOT") + 1 == types(events).index("STATE_DELTA")
    (result,) = [event for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert result["content"] == "A square.\n[image: image/png]"
    assert "outcome" not in events[-1]


@pytest.mark.parametrize("declared", ["1.0", "1.1"])
def test_a_client_that_declares_1_0_or_1_1_gets_everything(declared: str) -> None:
    with serving(App(every_shape)) as server:
        events = server.events(protocolVersion=declared, state={"n": 4})
    assert "STATE_SNAPSHOT" not in types(events)
    assert "SUBAGENT_STARTED" in types(events)
    assert [event["content"][1]["type"] for event in events if event["type"] == "TOOL_CALL_RESULT"] == ["image"]
    assert len(events[-1]["outcome"]["pendingToolCallIds"]) == 1


@pytest.mark.parametrize(
    ("declared", "has_subagents", "has_version"),
    [("0.0.53", False, False), ("0.0.57", False, False), ("0.0.58", False, False), ("0.0.59", True, False)],
)
def test_a_client_that_declares_its_library_version_gets_that_generation(
    declared: str, has_subagents: bool, has_version: bool
) -> None:
    notices: list[Any] = []
    with serving(App(every_shape, warn=notices.append)) as server:
        events = server.events(protocolVersion=declared)
    assert ("SUBAGENT_STARTED" in types(events)) is has_subagents
    assert ("protocolVersion" in events[0]) is has_version
    assert "outcome" not in events[-1]
    assert {notice.rule for notice in notices} == {"VER-16"}


def test_undeclared_clients_can_be_sent_subagents() -> None:
    with serving(App(every_shape, sends=Sends(undeclared_peers="subagents"))) as server:
        events = server.events(protocolVersion=...)
    assert "SUBAGENT_STARTED" in types(events)
    assert any("subagentRunId" in event for event in events if event["type"] == "TEXT_MESSAGE_START")
    assert "outcome" not in events[-1]


def test_an_unknown_choice_for_undeclared_clients_is_refused() -> None:
    with pytest.raises(ValueError, match="undeclared_peers is 'send'; use one of 'flatten', 'parallel', "):
        App(every_shape, sends=Sends(undeclared_peers="send"))  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["/threads/thread/events", "/threads/thread/runs/run/events"])
def test_a_replay_is_the_live_stream_of_the_same_dialect(path: str) -> None:
    with serving(App(every_shape)) as server:
        with server.run(protocolVersion=..., state={"n": 4}) as live:
            frames = live.frames()
        with server.stream("GET", path, None) as stream:
            assert stream.frames() == frames


def test_every_frame_of_a_dialect_can_be_resumed_after_without_loss_or_repeat() -> None:
    with serving(App(every_shape)) as server:
        with server.run(protocolVersion=..., state={"n": 4}) as live:
            frames = live.frames()
        # The SSE parser gives a frame without an id the id before it.
        written = [data for _, data in frames]
        for at, (last, _) in enumerate(frames):
            if b'"STATE_SNAPSHOT"' in frames[at][1]:
                continue  # it has no id of its own
            with server.stream("GET", f"/threads/thread/events?after={last}", None) as stream:
                rest = [data for _, data in stream.frames()]
            snapshots = [data for data in rest if b'"STATE_SNAPSHOT"' in data]
            without = [data for data in rest if b'"STATE_SNAPSHOT"' not in data]
            assert without == [data for data in written[at + 1 :] if b'"STATE_SNAPSHOT"' not in data]
            left = [data for data in written[at + 1 :] if b'"STATE_DELTA"' in data]
            expected = {2: [{"n": 4}, {"n": 6}], 1: [{"n": 5}, {"n": 6}], 0: []}
            assert [json.loads(data)["snapshot"] for data in snapshots] == expected[len(left)]


def test_of_two_frames_for_one_event_only_the_last_has_the_id() -> None:
    with serving(App(every_shape)) as server, server.run(protocolVersion=...) as stream:
        stream.rest()
        raw = stream.raw.decode()
    added = [block for block in raw.split("\n\n") if '"STATE_SNAPSHOT"' in block]
    assert [block.startswith("id:") for block in added] == [False, False]
    ids = [
        number_of(block.split("\n")[0].removeprefix("id: ")) for block in raw.split("\n\n") if block.startswith("id:")
    ]
    assert ids == sorted(set(ids))


def test_a_compacted_replay_is_translated_as_well() -> None:
    with serving(App(every_shape)) as server:
        server.events(state={"n": 4})
        with server.stream("GET", "/threads/thread/events?compact=true", None) as stream:
            events = stream.rest()
    assert "SUBAGENT_STARTED" not in types(events)
    states = [event for event in events if event["type"].startswith("STATE_")]
    assert states[0]["type"] == "STATE_SNAPSHOT"
    assert "outcome" not in events[-1]


def test_hydration_is_translated_as_well() -> None:
    with serving(App(every_shape)) as server:
        server.events()
        joined = server.events(path="/connect", run_id="joining", protocolVersion=...)
    (snapshot,) = [event for event in joined if event["type"] == "MESSAGES_SNAPSHOT"]
    assert [message["content"] for message in snapshot["messages"] if message["role"] == "tool"] == [
        "A square.\n[image: image/png]"
    ]
    assert all("subagentRunId" not in message for message in snapshot["messages"])
    assert "outcome" not in joined[-1]


def test_a_client_that_joins_a_running_run_can_resume_after_the_opening_even_if_its_last_event_is_dropped() -> None:
    gate = Gate()

    async def agent(run: Run) -> None:
        async with run.subagent("helper") as helper:
            await gate.wait()
            await helper.say("done")

    with serving(App(agent)) as server, server.run() as live:
        gate.await_reached()
        assert live.read_until("SUBAGENT_STARTED")
        with server.run(path="/connect", run_id="joining", protocolVersion=...) as joined:
            first = [joined.next() for _ in range(3)]
            assert [json.loads(frame.data)["type"] for frame in first if frame] == [
                "RUN_STARTED",
                "STATE_SNAPSHOT",
                "MESSAGES_SNAPSHOT",
            ]
            assert first[-1] is not None
            assert number_of(first[-1].id or "") == 2
            gate.open()
            assert types(joined.rest())[-1] == "RUN_FINISHED"


def test_a_cancelled_run_ends_without_an_outcome_and_without_added_text() -> None:
    gate = Gate()

    async def agent(run: Run) -> None:
        async with run.text() as text:
            await text.write("one")
            await gate.wait()

    with serving(App(agent, timing=Timing(cancel_grace=0.1))) as server:
        with server.run(protocolVersion=...) as stream:
            gate.await_reached()
            stream.read_until("TEXT_MESSAGE_CONTENT")
            server.post("/threads/thread/runs/run/cancel")
            rest = stream.rest()
        joined = server.events(path="/connect", run_id="joining", protocolVersion=...)
    assert types(rest) == ["TEXT_MESSAGE_END", "RUN_FINISHED"]
    assert "outcome" not in rest[-1]
    assert "outcome" not in joined[-1]


def test_an_interrupt_keeps_its_outcome() -> None:
    async def agent(run: Run) -> None:
        await run.ask("Sure?")

    with serving(App(agent)) as server:
        events = server.events(protocolVersion=...)
    assert events[-1]["outcome"]["type"] == "interrupt"


def test_protobuf_is_translated_as_well() -> None:
    with serving(App(every_shape)) as server:
        answer = server.post(
            "/", json=run_input(protocolVersion=..., state={"n": 4}), headers={"accept": PROTOBUF_MEDIA_TYPE}
        )
        events = ProtobufDecoder().feed(answer.content)
    assert [event for event in events if isinstance(event, StateSnapshotEvent)] == [
        StateSnapshotEvent(snapshot={"n": 4}),
        StateSnapshotEvent(snapshot={"n": 6}),
    ]
    assert not any(event.type.startswith("SUBAGENT") for event in events)


@pytest.mark.parametrize(
    ("declared", "accept", "answered"),
    [
        (..., f"{PROTOBUF_MEDIA_TYPE}, text/event-stream", "text/event-stream"),
        (..., f"{PROTOBUF_MEDIA_TYPE}, */*", "text/event-stream"),
        (..., PROTOBUF_MEDIA_TYPE, PROTOBUF_MEDIA_TYPE),
        ("0.0.57", f"{PROTOBUF_MEDIA_TYPE}, text/event-stream", PROTOBUF_MEDIA_TYPE),
        ("1.1", f"{PROTOBUF_MEDIA_TYPE}, text/event-stream", PROTOBUF_MEDIA_TYPE),
    ],
)
def test_an_undeclared_client_that_accepts_both_gets_sse(declared: Any, accept: str, answered: str) -> None:
    """The protobuf decoders of 0.0.40 to 0.0.59 do not read all that their schemas do."""
    with serving(App(every_shape)) as server:
        answer = server.post("/", json=run_input(protocolVersion=declared), headers={"accept": accept})
        assert answer.headers["content-type"] == answered


def test_the_log_is_never_downgraded() -> None:
    with serving(App(every_shape)) as server:
        server.events(protocolVersion=...)
        with server.stream("GET", "/threads/thread/events") as stream:
            events = stream.rest()
    assert "SUBAGENT_STARTED" in types(events)
    assert events[-1]["outcome"]["type"] == "success"


@pytest.mark.parametrize("declared", ["0.0.45", "0.0.47", "0.0.50"])
def test_a_generation_that_cannot_patch_in_node_gets_snapshots(declared: str) -> None:
    """Their ES modules import ``fast-json-patch`` in a way that gives them no ``applyPatch`` in Node."""

    async def agent(run: Run) -> None:
        run.state["n"] = 5
        plan = await run.activity("PLAN", {"steps": [1]})
        await plan.update({"steps": [1, 2]})
        run.state["n"] = 6

    with serving(App(agent)) as server:
        events = server.events(protocolVersion=declared, state={"n": 4})
    assert not any(event["type"].endswith("_DELTA") for event in events)
    assert [event["snapshot"] for event in events if event["type"] == "STATE_SNAPSHOT"] == [{"n": 5}, {"n": 6}]
    contents = [event["content"] for event in events if event["type"] == "ACTIVITY_SNAPSHOT"]
    assert contents == [{"steps": [1]}, {"steps": [1, 2]}]


def test_each_run_of_a_thread_has_its_own_baseline() -> None:
    async def agent(run: Run) -> None:
        run.state["n"] += 1

    with serving(App(agent)) as server:
        server.events(run_id="one", state={"n": 1})
        server.events(run_id="two", state={"n": 7})
        for query in ("", "?compact=true"):
            with server.stream("GET", f"/threads/thread/events{query}", None) as stream:
                events = stream.rest()
            seen = [event.get("snapshot") or event["type"] for event in events if event["type"].startswith("STATE_")]
            assert seen[:1] + seen[-1:] == [{"n": 1}, {"n": 8}]
            if query == "":
                assert seen == [{"n": 1}, "STATE_DELTA", {"n": 2}, {"n": 7}, "STATE_DELTA", {"n": 8}]


# Links


@pytest.mark.parametrize("is_open", [True, False])
def test_a_file_is_linked_only_if_the_caller_may_download_it(is_open: bool) -> None:
    held: dict[str, str] = {}

    async def agent(run: Run) -> None:
        call = await run.tool_call("draw", {})
        source = FileSource(value=held["id"], provider="aguila", mime_type="image/png")
        await call.result([ImagePart(source=source)])

    app = App(agent, allow_anonymous=is_open)
    with serving(app) as server:
        held["id"] = "no-such-file"
        if is_open:
            held["id"] = server.post("/files", content=b"\x89PNG", headers={"content-type": "image/png"}).json()["id"]
        events = server.events(protocolVersion=...)
        (content,) = [event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT"]
        if not is_open:
            assert content == "[image: image/png]"
            return
        link = content.removeprefix("[image: image/png, ").removesuffix("]")
        assert link == f"{server.url}/files/{held['id']}"
        assert server.get(link).content == b"\x89PNG"


@pytest.mark.parametrize("declared", ["1.1", "1.0", "0.0.59", ..., "0.0.47"])
def test_a_file_id_with_half_a_character_is_no_link_and_its_thread_can_be_read(store: Any, declared: Any) -> None:
    async def agent(run: Run) -> None:
        await run.say("Nice.")

    with serving(App(agent, store=store, allow_anonymous=True)) as server:
        part = {"type": "image", "source": {"type": "file", "value": "\ud800", "mimeType": "image/png"}}
        sent = json.dumps(run_input(messages=[{"id": "u", "role": "user", "content": [part]}]))
        assert server.post("/", content=sent, headers={"content-type": "application/json"}).status_code == 200
        events = server.events(path="/connect", run_id="j", messages=[], protocolVersion=declared)
        assert "/files/" not in str(events)
        assert events[-1]["type"] == "RUN_FINISHED"


# The way back


def resent(events: list[dict[str, Any]], *more: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages of a joined client, as it sends them with the next turn."""
    (snapshot,) = [event for event in events if event["type"] == "MESSAGES_SNAPSHOT"]
    return [*snapshot["messages"], *more]


@pytest.mark.parametrize("history", ["client", "server"])
@pytest.mark.parametrize("declared", ["1.1", "1.0", "0.0.59", ..., "0.0.47"])
def test_a_joined_client_gets_the_stored_type_of_an_upload_and_sends_it_back_unedited(
    store: Any, history: Any, declared: Any
) -> None:
    notices: list[Any] = []

    async def agent(run: Run) -> None:
        await run.say("Nice.")

    app = App(agent, store=store, history=history, allow_anonymous=True, warn=notices.append)
    with serving(app) as server:
        file = server.post("/files", content=b"\x89PNG", headers={"content-type": "image/png"}).json()["id"]
        part = {"type": "image", "source": {"type": "file", "value": file, "provider": "aguila"}}
        gone = {"type": "image", "source": {"type": "file", "value": "gone", "provider": "aguila"}}
        message = {"id": "u", "role": "user", "content": [part, gone]}
        server.events(run_id="r1", messages=[message], protocolVersion="1.1")
        joined = resent(server.events(path="/connect", run_id="j", messages=[], protocolVersion=declared))
        known, unknown = joined[0]["content"]
        assert known.get("mimeType", known.get("source", {}).get("mimeType")) == "image/png"
        assert "image/png" not in str(unknown)
        notices.clear()
        again = {"id": "u2", "role": "user", "content": "Thanks"}
        server.events(run_id="r2", messages=[*joined, again], protocolVersion=declared)
        found = server.get("/threads/thread").json()
        assert found["messages"][0]["content"] == [part, gone]
        assert [notice for notice in notices if "history" in notice.rule] == []
        assert [run["parentRunId"] for run in found["runs"]] == [None, None]


@pytest.mark.parametrize("history", ["client", "server"])
@pytest.mark.parametrize("declared", [..., "0.0.35", "0.0.40", "0.0.47", "0.0.50", "0.0.59"])
def test_what_a_dialect_made_of_a_message_is_no_edit_of_it(declared: Any, history: Any) -> None:
    notices: list[Any] = []
    user = UserMessage(
        id="u",
        content=[TextPart(text="See", id="p"), PICTURE, ImagePart(source=FileSource(value="f", mime_type="image/png"))],
    )
    seen: list[Any] = []

    async def agent(run: Run) -> None:
        seen.append(run.messages)
        if len(run.messages) == 1:
            call = await run.tool_call("draw", {})
            await call.result([TextPart(text="A square."), PICTURE])

    with serving(App(agent, history=history, warn=notices.append, allow_anonymous=True)) as server:
        server.events(messages=[_wire(user)])
        joined = server.events(path="/connect", run_id="joining", protocolVersion=declared)
        again = resent(joined, {"id": "v", "role": "user", "content": "And now?"})
        server.events(run_id="next", protocolVersion=declared, messages=again)
        messages = server.get("/threads/thread").json()["messages"]
    assert messages[0] == _wire(user)
    assert seen[-1][0] == user
    assert [message.content[1] for message in seen[-1] if isinstance(message, ToolMessage)] == [PICTURE]
    assert [message["content"][1]["type"] for message in messages if message["role"] == "tool"] == ["image"]
    assert [notice for notice in notices if notice.rule in ("client-history", "server-history")] == []


def test_an_edit_in_the_form_of_a_dialect_is_an_edit() -> None:
    user = UserMessage(id="u", content=[TextPart(text="See"), PICTURE])

    async def agent(run: Run) -> None:
        await run.say("ok")

    with serving(App(agent)) as server:
        server.events(messages=[_wire(user)])
        edited = {"id": "u", "role": "user", "content": "Look\n[image: image/png]"}
        server.events(run_id="next", protocolVersion="0.0.35", messages=[edited])
        messages = server.get("/threads/thread").json()["messages"]
    assert messages[0] == edited


def _wire(message: UserMessage) -> dict[str, Any]:
    from aguila.codec import encode

    return json.loads(encode(message))


def test_events_that_no_dialect_changes_are_sent_as_they_are_stored() -> None:
    async def agent(run: Run) -> None:
        async with run.text() as text:
            for word in ("a", "b", "c"):
                await text.write(word)
                await asyncio.sleep(0)

    with serving(App(agent)) as server:
        with server.run(protocolVersion=...) as stream:
            undeclared = stream.frames()
        with server.stream("GET", "/threads/thread/events") as stream:
            current = stream.frames()
    assert undeclared[:-1] == current[:-1]
