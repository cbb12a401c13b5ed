"""Another AG-UI endpoint as an agent, on real servers: its events are stored here, and answers go back to it."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from builders import user_json
from faults.cutting_proxy import CuttingProxy
from processes.commands import aguila_serve
from scripted_server import Answer, Asked, ScriptedServer
from scripted_server import run_of as answer_run
from serving import Gate, Held, check_valid, run_input, server_process, serving, text_of, types
from waiting import wait_until

from aguila import App
from aguila.client import Reconnect
from aguila.frameworks import upstream
from aguila.offload import is_large
from aguila.protocol import TokenUsage
from aguila.stream import writer
from aguila.stream.patch import apply

Place = Callable[[App], Any]


@pytest.fixture(params=["in process", "uvicorn"])
def behind(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Return the target of ``upstream`` for an app: the app itself, or its URL on a server of its own."""
    with ExitStack() as stack:
        if request.param == "in process":
            yield lambda app: app
        else:
            yield lambda app: stack.enter_context(serving(app)).url + "/"


def streaming(*events: dict[str, Any]) -> Any:
    """Make an ASGI application that answers every request with a run of these events."""
    ids = {"threadId": "thread", "runId": "r1"}
    stream = [{"type": "RUN_STARTED", **ids}, *events, {"type": "RUN_FINISHED", **ids}]
    body = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in stream)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


def answers(*pairs: tuple[str, Any], status: str = "resolved") -> list[dict[str, Any]]:
    return [{"interruptId": name, "status": status, "payload": payload} for name, payload in pairs]


def interrupts(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    check_valid(events)
    return events[-1]["outcome"]["interrupts"]


async def does_much(run: Any) -> Any:
    async with run.step("think"), run.reasoning() as thought:
        await thought.write("hm")
    run.state["n"] = run.state.get("n", 0) + 1
    async with run.text() as text:
        await text.write("Hello ")
        await text.write(run.user_text)
    call = await run.tool_call("search", {"q": "x"})
    await call.result("found")
    async with run.subagent("helper") as helper:
        await helper.say("I help.")
    await run.activity("progress", {"done": 1})
    await run.custom("mine", {"a": 1})
    run.add_usage(TokenUsage(model="m", input_tokens=1, output_tokens=2))
    run.result = {"ok": True}


def test_everything_a_run_sends_passes_with_its_ids(behind: Place) -> None:
    given = {"run_id": "r1", "messages": [user_json("u1", "Ada")], "state": {"n": 4, "kept": True}}
    with serving(App(does_much)) as inner, serving(App(upstream(behind(App(does_much))))) as front:
        direct, passed = inner.events(**given), front.events(**given)
    check_valid(passed)
    assert passed == direct
    assert {"STATE_DELTA", "SUBAGENT_FINISHED", "TOOL_CALL_RESULT", "ACTIVITY_SNAPSHOT"} <= set(types(passed))
    assert passed[-1]["result"] == {"ok": True}
    assert passed[-1]["usage"] == [{"model": "m", "inputTokens": 1, "outputTokens": 2}]


def is_on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


PATCH: list[Any] = [{"op": "add", "path": "/a", "value": [number]} for number in range(3_000)]
FAILING: list[Any] = [*PATCH, {"op": "remove", "path": "/missing"}]
ACTIVITY: dict[str, Any] = {"messageId": "a", "activityType": "P"}
LARGE_CHANGES: dict[str, list[dict[str, Any]]] = {
    "a state": [{"type": "STATE_SNAPSHOT", "snapshot": {"list": [{}] * 80_000}}],
    "a patch": [{"type": "STATE_DELTA", "delta": PATCH}],
    "a patch of an activity": [
        {"type": "ACTIVITY_SNAPSHOT", **ACTIVITY, "content": {}},
        {"type": "ACTIVITY_DELTA", **ACTIVITY, "patch": PATCH},
    ],
    "a patch that fails": [{"type": "STATE_DELTA", "delta": FAILING}],
}


@pytest.mark.parametrize("name", LARGE_CHANGES)
def test_large_changes_are_relayed_off_the_event_loop_and_in_order(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: dict[str, list[bool]] = {}

    def watch(module: Any, function: str, is_watched: Callable[..., bool]) -> None:
        original = getattr(module, function)

        def watched(*args: Any) -> Any:
            if is_watched(*args):
                calls.setdefault(function, []).append(is_on_event_loop())
            return original(*args)

        monkeypatch.setattr(module, function, watched)

    watch(apply, "apply_limited", lambda document, patch, size, budget: len(patch) > 1_000)
    watch(writer, "copy_json", is_large)
    text = {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "role": "assistant", "delta": "x"}
    sent = [text, *LARGE_CHANGES[name], text]
    with serving(App(upstream(streaming(*sent)), allow_anonymous=True)) as front:
        passed = front.events(run_id="r1")
        check_valid(passed)
        view = front.get("/threads/thread").json()
    changes = [] if name == "a patch that fails" else LARGE_CHANGES[name]
    assert [event for event in passed if event["type"].startswith(("STATE", "ACTIVITY"))] == changes
    places = [index for index, event in enumerate(passed) if event["type"] == "TEXT_MESSAGE_CONTENT"]
    assert len(places) == 2
    assert all(places[0] < passed.index(change) < places[1] for change in changes)
    assert calls
    assert not any(is_on_loop for found in calls.values() for is_on_loop in found)
    if name == "a patch":
        assert view["state"] == {"a": [2_999]}
        assert set(calls) == {"apply_limited", "copy_json"}


async def asks_several(run: Any) -> Any:
    yield "Let me see. "
    size, colour = await run.ask_all(["Which size?", "Which colour?"])
    approval = await run.approve("order", {"size": size}, message="Order it?", expires_at="2999-01-01T00:00:00Z")
    await approval.call.result("ordered")
    yield f"{size} {colour} {approval.arguments}"


def test_interrupts_pass_and_their_answers_return(behind: Place, tmp_path: Path) -> None:
    target = behind(App(asks_several, store=tmp_path / "inner.db"))
    store = tmp_path / "front.db"
    with serving(App(upstream(target), store=store)) as front:
        asked = interrupts(front.events(run_id="r1", messages=[user_json("u1", "Go")]))
        assert [one["message"] for one in asked] == ["Which size?", "Which colour?"]
    # The front has stopped meanwhile: the questions are in its store.
    with serving(App(upstream(target), store=store, allow_anonymous=True)) as front:
        names = [one["id"] for one in asked]
        assert [one["id"] for one in front.get("/threads/thread").json()["interrupts"]] == names
        uncovered = front.post("/", json=run_input(run_id="r2", resume=answers((names[0], "L"))))
        assert (uncovered.status_code, uncovered.json()["error"]["code"]) == (422, "interrupt_uncovered")
        (approval,) = interrupts(front.events(run_id="r2", resume=answers((names[0], "L"), (names[1], "red"))))
        assert approval["reason"] == "tool_call"
        assert approval["expiresAt"] == "2999-01-01T00:00:00Z"
        assert approval["responseSchema"]["required"] == ["approved"]
        invalid = front.post("/", json=run_input(run_id="r3", resume=answers((approval["id"], {}))))
        assert (invalid.status_code, invalid.json()["error"]["code"]) == (422, "interrupt_answer_invalid")
        answer = {"approved": True, "editedArgs": {"size": "M"}}
        events = front.events(run_id="r3", resume=answers((approval["id"], answer)))
        check_valid(events)
        assert text_of(events) == "L red {'size': 'M'}"
        view = front.get("/threads/thread").json()
        assert view["interrupts"] == []
        said = [one.get("content") for one in view["messages"] if one["role"] == "assistant" and one.get("content")]
        assert said == ["Let me see. ", "L red {'size': 'M'}"]
        assert [one["content"] for one in view["messages"] if one["role"] == "tool"] == ["ordered"]


def test_a_subagent_that_asks_is_suspended_and_goes_on(behind: Place) -> None:
    async def agent(run: Any) -> Any:
        async with run.step("book"), run.subagent("helper") as helper:
            await helper.say(f"It is {await helper.ask('Which?')}.")

    with serving(App(upstream(behind(App(agent))), allow_anonymous=True)) as front:
        (question,) = interrupts(front.events(run_id="r1"))
        events = front.events(run_id="r2", resume=answers((question["id"], "red")))
        check_valid(events)
        assert text_of(events) == "It is red."
        said = front.get("/threads/thread").json()["messages"][-1]
        assert said["subagentRunId"] == question["subagentRunId"]


def test_an_answer_that_is_given_up_reaches_the_endpoint(behind: Place) -> None:
    with serving(App(upstream(behind(App(asks_several))))) as front:
        asked = interrupts(front.events(run_id="r1"))
        given_up = answers(*((one["id"], None) for one in asked), status="cancelled")
        events = front.events(run_id="r2", resume=given_up)
        assert events[-1]["outcome"] == {"type": "cancelled"}


def test_questions_that_the_endpoint_has_forgotten_can_be_given_up() -> None:
    with serving(App(asks_several)) as inner, serving(App(upstream(inner.url + "/"))) as front:
        asked = interrupts(front.events(run_id="r1"))
        pairs = [(one["id"], "x") for one in asked]
        inner.events(run_id="elsewhere", resume=answers(*pairs))  # another front end was faster
        refused = front.events(run_id="r2", resume=answers(*pairs))
        assert (refused[-1]["type"], refused[-1]["code"]) == ("RUN_ERROR", "agent_error")
        events = front.events(run_id="r3", resume=answers(*pairs, status="cancelled"))
        assert events[-1]["outcome"] == {"type": "cancelled"}


async def calls_the_front_end(run: Any) -> Any:
    last = run.messages[-1]
    if last.role == "tool":
        yield f"You chose {last.content}."
        return
    assert [tool.name for tool in run.tools] == ["pick"]
    await run.tool_call("pick", {"of": "colours"}, tool_call_id="call-1")


def test_front_end_tools_work_both_ways(behind: Place) -> None:
    tools = [{"name": "pick", "description": "Pick one.", "parameters": {"type": "object"}}]
    with serving(App(upstream(behind(App(calls_the_front_end))), history="server")) as front:
        first = front.events(run_id="r1", messages=[user_json("u1", "Go")], tools=tools)
        check_valid(first)
        assert first[-1]["outcome"] == {"type": "success", "pendingToolCallIds": ["call-1"]}
        result = {"id": "t1", "role": "tool", "toolCallId": "call-1", "content": "red"}
        second = front.events(run_id="r2", messages=[result], tools=tools)
        assert text_of(second) == "You chose red."


def test_cancel_closes_the_connection_and_cancels_the_endpoints_run(behind: Place) -> None:
    held = Held()
    with serving(App(upstream(behind(App(held))))) as front:
        with front.run(run_id="r1") as stream:
            stream.read_until("TEXT_MESSAGE_CONTENT")
            assert front.post("/threads/thread/runs/r1/cancel").status_code == 202
            assert stream.rest()[-1]["outcome"] == {"type": "cancelled"}
        wait_until(lambda: held.cancelled == ["r1"])
        held.gate("r2").open()
        assert text_of(front.events(run_id="r2")) == "onetwo"


def test_viewers_leave_and_come_back_while_the_endpoint_works(behind: Place) -> None:
    held = Held()
    with serving(App(upstream(behind(App(held))))) as front:
        with front.run(run_id="r1") as stream:
            stream.read_until("TEXT_MESSAGE_CONTENT")
        with front.stream("GET", "/threads/thread/runs/r1/events") as again:
            again.read_until("TEXT_MESSAGE_CONTENT")
            held.gate("r1").open()
            assert text_of(again.rest()) == "two"
        assert held.calls == ["r1"]


async def fails(run: Any) -> Any:
    yield "before"
    raise ValueError("a secret")


def test_errors_are_masked_with_a_reference_and_what_came_before_stays(
    behind: Place, caplog: pytest.LogCaptureFixture
) -> None:
    target = behind(App(fails, debug=True))  # it sends the text of the exception
    with serving(App(upstream(target), allow_anonymous=True)) as front:
        events = front.events(run_id="r1")
        assert events[-1]["type"] == "RUN_ERROR"
        assert events[-1]["message"].startswith("The agent failed. Reference: ")
        assert "a secret" not in json.dumps(events)
        reference = events[-1]["message"].split()[-1]
        assert any(reference in record.getMessage() and "secret" in caplog.text for record in caplog.records)
        assert front.get("/threads/thread").json()["messages"][-1]["content"] == "before"


def test_errors_pass_if_wanted(behind: Place) -> None:
    with serving(App(upstream(behind(App(fails, debug=True)), errors="pass"))) as front:
        last = front.events(run_id="r1")[-1]
        assert (last["type"], last["code"]) == ("RUN_ERROR", "agent_error")
        assert "a secret" in last["message"]


INNER = """
import asyncio
from aguila import App

async def agent(run):
    yield "first "
    await asyncio.Event().wait()

app = App(agent)
"""


def test_a_killed_endpoint_ends_the_run_and_what_arrived_is_kept(tmp_path: Path) -> None:
    (tmp_path / "inner_app.py").write_text(INNER)
    with server_process("inner_app:app", tmp_path) as inner:
        agent = upstream(inner.url + "/", client={"reconnect": Reconnect(attempts=2, initial=0.01)})
        with serving(App(agent, allow_anonymous=True)) as front, front.run(run_id="r1") as stream:
            stream.read_until("TEXT_MESSAGE_CONTENT")
            inner.signal(signal.SIGKILL)
            last = stream.rest()[-1]
            assert (last["type"], last["code"]) == ("RUN_ERROR", "agent_error")
            view = front.get("/threads/thread").json()
            assert [one["content"] for one in view["messages"]] == ["first "]


def test_an_endpoint_that_is_not_there_ends_the_run() -> None:
    with serving(App(upstream("http://127.0.0.1:9/", client={"reconnect": None}))) as front:
        assert types(front.events(run_id="r1")) == ["RUN_STARTED", "RUN_ERROR"]


def test_a_broken_connection_is_resumed_where_it_broke() -> None:
    held = Held()
    with serving(App(held)) as inner, CuttingProxy(inner.url, lambda: None) as proxy:
        agent = upstream(proxy.url + "/", client={"reconnect": Reconnect(initial=0.01)})
        with serving(App(agent)) as front, front.run(run_id="r1") as stream:
            stream.read_until("TEXT_MESSAGE_CONTENT")
            proxy.cut_now()
            held.gate("r1").open()
            rest = stream.rest()
            assert text_of(rest) == "two"
            assert rest[-1]["type"] == "RUN_FINISHED"
        assert proxy.cuts > 0


def test_headers_pass_by_name_and_credentials_are_added(behind: Place) -> None:
    async def agent(run: Any) -> Any:
        return dict(run.headers)

    names = ["x-tenant", "x-secret", "authorization"]
    target = behind(App(agent, headers_allowed=names))
    gateway = upstream(target, headers=["X-Tenant", "X-Missing"], auth="token")
    sent = {"x-tenant": "acme", "x-secret": "mine"}
    with (
        serving(App(gateway, headers_allowed=["x-tenant", "x-secret"])) as front,
        front.run(headers=sent, run_id="r1") as stream,
    ):
        seen = stream.rest()[-1]["result"]
    assert seen == {"x-tenant": "acme", "authorization": "Bearer token"}


def set_cookie(asked: Asked) -> Answer:
    answer = answer_run()(asked)
    answer.headers["Set-Cookie"] = "session=of-the-first-tenant; Path=/"
    return answer


@pytest.mark.parametrize("is_command", [False, True], ids=["upstream", "aguila serve URL"])
def test_cookies_of_the_endpoint_are_not_stored(is_command: bool, tmp_path: Path) -> None:
    with ScriptedServer(set_cookie, set_cookie) as endpoint:
        app = App(upstream(endpoint.url), authenticate=lambda request: request.headers["authorization"])
        with aguila_serve(tmp_path, endpoint.url) if is_command else serving(app) as front:
            for tenant in ("first", "second"):
                with front.run(headers={"authorization": tenant}, thread_id=tenant, run_id="r1") as stream:
                    assert stream.rest()[-1]["type"] == "RUN_FINISHED"
        assert [asked.headers.get("cookie") for asked in endpoint.requests] == [None, None]


def test_threads_may_be_mapped(behind: Place) -> None:
    async def agent(run: Any) -> Any:
        return run.thread_id

    with serving(App(upstream(behind(App(agent)), thread_id=lambda run: f"acme-{run.thread_id}"))) as front:
        events = front.events(run_id="r1")
        assert (events[-1]["threadId"], text_of(events)) == ("thread", "acme-thread")


def test_uploads_reach_the_endpoint_as_data(behind: Place) -> None:
    async def agent(run: Any) -> Any:
        part = run.messages[-1].content[0]
        return [part.source.type, part.source.mime_type, (await run.file(part)).decode("latin-1")]

    png = b"\x89PNG\r\n\x1a\nxyz"
    with serving(App(upstream(behind(App(agent))), allow_anonymous=True)) as front:
        uploaded = front.post("/files", content=png, headers={"content-type": "image/png"}).json()
        for mime_type in ({"mimeType": "image/png"}, {}):
            source = {"type": "file", "value": uploaded["id"], "provider": "aguila", **mime_type}
            message = user_json("u1", [{"type": "image", "source": source}])
            result = front.events(run_id=f"r{len(mime_type)}", thread_id=f"t{len(mime_type)}", messages=[message])[-1]
            assert result["result"] == ["data", "image/png", png.decode("latin-1")]


@pytest.mark.parametrize(("mime_type", "kind"), [("image/png", "image"), ("text/csv", "document")])
def test_a_binary_part_without_a_type_reaches_the_endpoint_with_that_of_its_file(
    behind: Place, mime_type: str, kind: str
) -> None:
    async def agent(run: Any) -> Any:
        part = run.messages[-1].content[0]
        return [part.type, part.source.type, part.source.mime_type]

    with serving(App(upstream(behind(App(agent))), allow_anonymous=True)) as front:
        uploaded = front.post("/files", content=b"a,b", headers={"content-type": mime_type}).json()
        message = user_json("u1", [{"type": "binary", "id": uploaded["id"]}])
        assert front.events(messages=[message])[-1]["result"] == [kind, "data", mime_type]


# Endpoints that are not ours


def endpoint(frames: Callable[[dict[str, Any]], Any], seen: list[Any] | None = None) -> Any:
    """Return an ASGI application that sends events; strings in ``seen`` are the lifespan events."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for word in ("startup", "shutdown"):
                await receive()
                if seen is not None:
                    seen.append(word)
                await send({"type": f"lifespan.{word}.complete"})
            return
        body = json.loads((await receive())["body"])
        if seen is not None:
            seen.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        async for event in frames(body):
            data = f"data: {json.dumps(event)}\n\n".encode()
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


def run_of(run_id: str, message_id: str, text: str, thread_id: str = "thread") -> list[dict[str, Any]]:
    ids = {"threadId": thread_id, "runId": run_id}
    return [
        {"type": "RUN_STARTED", **ids},
        {"type": "STEP_STARTED", "stepName": "s"},
        {"type": "TEXT_MESSAGE_START", "messageId": message_id, "role": "assistant"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": message_id, "delta": text},
        {"type": "TEXT_MESSAGE_END", "messageId": message_id},
        {"type": "STEP_FINISHED", "stepName": "s"},
        {"type": "RUN_FINISHED", **ids},
    ]


def test_earlier_runs_that_the_endpoint_replays_are_not_sent_again() -> None:
    async def replays(body: dict[str, Any]) -> Any:
        number = sum(message["role"] == "user" for message in body["messages"])
        for run in range(1, number):
            for event in run_of(f"r{run}", f"a{run}", f"answer {run}"):
                yield event
        for event in run_of(body["runId"], f"a{number}", f"answer {number}"):
            yield event

    with serving(App(upstream(endpoint(replays)), history="server", allow_anonymous=True)) as front:
        for run in (1, 2, 3):
            events = front.events(run_id=f"r{run}", messages=[user_json(f"u{run}", "?")])
            check_valid(events)
            assert text_of(events) == f"answer {run}"
        contents = [one["content"] for one in front.get("/threads/thread").json()["messages"]]
        assert contents == ["?", "answer 1", "?", "answer 2", "?", "answer 3"]


def test_a_run_under_an_id_of_the_endpoints_own_streams_under_ours() -> None:
    gate = Gate()

    async def renames(body: dict[str, Any]) -> Any:
        events = run_of("its own", "a1", "hello", thread_id="another")
        for event in events[:4]:
            yield event
        await gate.wait()
        for event in events[4:]:
            yield event

    with serving(App(upstream(endpoint(renames)))) as front, front.run(run_id="r1") as stream:
        assert stream.read_until("TEXT_MESSAGE_CONTENT")["delta"] == "hello"
        gate.open()
        last = stream.rest()[-1]
        assert (last["type"], last["threadId"], last["runId"]) == ("RUN_FINISHED", "thread", "r1")


def test_a_run_under_another_id_that_says_nothing_is_the_run() -> None:
    async def renames(body: dict[str, Any]) -> Any:
        yield {"type": "RUN_STARTED", "threadId": "thread", "runId": "its own"}
        yield {"type": "STATE_SNAPSHOT", "snapshot": {"a": 1}}
        yield {"type": "RUN_FINISHED", "threadId": "thread", "runId": "its own", "result": 5}

    with serving(App(upstream(endpoint(renames)))) as front:
        events = front.events(run_id="r1")
    assert types(events) == ["RUN_STARTED", "STATE_SNAPSHOT", "RUN_FINISHED"]
    assert events[-1]["result"] == 5


def test_an_application_is_called_at_its_path_and_closed_with_ours() -> None:
    async def runs(body: dict[str, Any]) -> Any:
        for event in run_of(body["runId"], "a1", "hello"):
            yield event

    seen: list[Any] = []
    with serving(App(upstream(endpoint(runs, seen), path="/agent/one"))) as front:
        assert text_of(front.events(run_id="r1")) == "hello"
        assert seen == ["startup", "/agent/one"]
    assert seen == ["startup", "/agent/one", "shutdown"]


def test_an_agent_that_fails_to_close_does_not_keep_the_app_from_stopping(caplog: pytest.LogCaptureFixture) -> None:
    class Agent:
        async def __call__(self, run: Any) -> str:
            return "hello"

        async def aclose(self) -> None:
            raise OSError("no")

    with serving(App(Agent())) as front:
        assert text_of(front.events(run_id="r1")) == "hello"
    assert "cannot close an agent" in caplog.text


def test_an_agent_may_choose_among_endpoints() -> None:
    async def speaks(run: Any) -> Any:
        yield f"{run.messages[0].content}: {run.state['topic']}"

    inner = upstream(App(speaks))

    async def router(run: Any) -> Any:
        run.state["topic"] = "weather"
        async for event in inner(run):
            yield event

    router.aclose = inner.aclose  # type: ignore[attr-defined]
    with serving(App(router)) as front:
        assert text_of(front.events(run_id="r1", messages=[user_json("u1", "Go")])) == "Go: weather"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": 5}, "not int"),
        ({"headers": "x-tenant"}, "headers"),
        ({"raw": "maybe"}, "raw"),
        ({"errors": "hide"}, "errors"),
        ({"state_keys": "messages"}, "state_keys"),
        ({"path": "/a"}, "path"),
        ({"client": {"transport": None}}, "transport"),
    ],
)
def test_arguments_are_checked(options: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        upstream(options.pop("target", "http://127.0.0.1:9/"), **options)


def test_the_official_quickstart_in_process_needs_no_server() -> None:
    fastapi = pytest.importorskip("fastapi")
    from ag_ui.core import RunAgentInput, RunFinishedEvent, RunStartedEvent, TextMessageChunkEvent
    from ag_ui.encoder import EventEncoder
    from fastapi.responses import StreamingResponse

    other = fastapi.FastAPI()

    async def quickstart(input_data: RunAgentInput) -> StreamingResponse:
        async def stream() -> Any:
            encoder, ids = EventEncoder(), {"thread_id": input_data.thread_id, "run_id": input_data.run_id}
            yield encoder.encode(RunStartedEvent(**ids))
            yield encoder.encode(TextMessageChunkEvent(message_id="a1", delta="Hello "))
            yield encoder.encode(TextMessageChunkEvent(delta=input_data.messages[-1].content))
            yield encoder.encode(RunFinishedEvent(**ids))

        return StreamingResponse(stream(), media_type="text/event-stream")

    quickstart.__annotations__ = {"input_data": RunAgentInput}
    other.post("/agent")(quickstart)
    with serving(App(upstream(other, path="/agent"))) as front:
        events = front.events(run_id="r1", messages=[user_json("u1", "Ada")])
    check_valid(events)
    assert text_of(events) == "Hello Ada"
