"""The requests of TanStack AI's client besides AG-UI, over HTTP. Its own package is driven in tests/interop."""

from __future__ import annotations

import json
from typing import Any

import pytest
from builders import user_json
from serving import Gate, run_input, serving, types

from aguila import App
from aguila.codec import encode
from aguila.protocol import (
    ActivityMessage,
    AssistantMessage,
    FunctionCall,
    ImagePart,
    Message,
    ReasoningMessage,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UrlSource,
    UserMessage,
)
from aguila.server.frontends.tanstack.events import BINDING, hash_schema, to_canonical_json
from aguila.server.frontends.tanstack.routes import to_ui_messages

AS_TANSTACK = {"x-run-id": "run"}


async def asking(run: Any) -> None:
    await run.say("May I?")
    await run.say(f"You said {await run.ask('Send it?', schema={'type': 'boolean'})}.")


async def calling(run: Any) -> None:
    for tool in run.tools:
        await run.tool_call(tool.name, {"hint": "x"})
    await run.tool_call("no_arguments")


def test_a_thread_hydrates_with_messages_and_open_interrupts(store: Any) -> None:
    with serving(App(asking, store=store)) as server:
        server.events(messages=[user_json("u1", "Hello")])
        found = server.get("/?threadId=thread", headers={"accept": "application/json"}).json()
        assert [(one["role"], one["parts"]) for one in found["messages"]] == [
            ("user", [{"type": "text", "content": "Hello"}]),
            ("assistant", [{"type": "text", "content": "May I?"}]),
        ]
        assert found["activeRun"] is None
        assert found["page"] == {"truncated": False}
        assert found["interrupts"]["runId"] == "run"
        (interrupt,) = found["interrupts"]["pending"]
        assert interrupt["metadata"][BINDING] == {
            "v": 1,
            "kind": "generic",
            "interruptId": interrupt["id"],
            "interruptedRunId": "run",
            "generation": 0,
            "responseSchemaHash": hash_schema({"type": "boolean"}),
        }
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": True}]
        server.events(run_id="r2", parent_run_id="run", resume=resume)
        answered = server.get("/?threadId=thread").json()
        assert answered["interrupts"] is None
        assert answered["messages"][-1]["parts"] == [{"type": "text", "content": "You said True."}]


def test_an_unknown_thread_hydrates_empty(store: Any) -> None:
    with serving(App(asking, store=store)) as server:
        assert server.get("/?threadId=new").json() == {
            "messages": [],
            "activeRun": None,
            "interrupts": None,
            "page": {"truncated": False},
        }


def test_hydration_comes_in_pages_newest_first(store: Any) -> None:
    async def agent(run: Any) -> Any:
        yield "Yes"

    with serving(App(agent, store=store, history="server")) as server:
        for number in range(3):
            server.events(run_id=f"r{number}", messages=[user_json(f"u{number}", str(number))])
        whole = [one["id"] for one in server.get("/?threadId=thread").json()["messages"]]
        seen: list[str] = []
        page: dict[str, Any] = {"truncated": True, "cursor": ""}
        while page["truncated"]:
            found = server.get(f"/?threadId=thread&limit=4&before={page['cursor']}").json()
            seen = [*(one["id"] for one in found["messages"]), *seen]
            page = found["page"]
        assert seen == whole
        assert len(whole) == 6
        for limit in ("0", "x", "1001"):
            assert server.get(f"/?threadId=thread&limit={limit}").json()["error"]["code"] == "bad_limit"


def test_a_running_run_is_named_and_joined_from_its_first_event(store: Any) -> None:
    gate = Gate()

    async def agent(run: Any) -> None:
        await run.say("First.")
        if run.messages[-1].content == "Wait":
            await gate.wait()
            await run.say("Last.")

    with serving(App(agent, store=store, history="server")) as server:
        server.events(run_id="r1", messages=[user_json("u1", "Hello")])
        with server.run(run_id="r2", messages=[user_json("u2", "Wait")]) as stream:
            gate.await_reached()
            found = server.get("/?threadId=thread").json()
            # the output of the run comes again from its events
            assert [one["id"] for one in found["messages"] if one["role"] == "user"] == ["u1", "u2"]
            assert found["messages"][-1]["id"] == "u2"
            assert found["activeRun"] == {"runId": "r2"}
            assert found["interrupts"] is None
            with server.stream("GET", "/?offset=-1&runId=r2") as joined:
                assert joined.next_event()["type"] == "RUN_STARTED"
                gate.open()
                late = joined.rest()
            whole = stream.rest()
        assert late == whole[1:]
        with server.stream("GET", "/?offset=-1&runId=r2") as again:  # which has ended
            assert again.rest() == whole
        with server.stream("GET", "/?offset=-1&runId=r2&threadId=thread") as again:
            assert again.rest() == whole


def test_a_run_is_joined_in_the_scope_of_the_caller_only() -> None:
    async def agent(run: Any) -> Any:
        yield "Yes"

    app = App(agent, authenticate=lambda request: request.headers.get("x-user"))
    with serving(app) as server:
        server.post("/", json=run_input(run_id="r1"), headers={"x-user": "ada"})
        path = "/?offset=-1&runId=r1"
        assert server.get(path, headers={"x-user": "ada"}).status_code == 200
        missing = server.get(path, headers={"x-user": "bob"})
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
        assert server.get("/?threadId=thread", headers={"x-user": "bob"}).json()["messages"] == []
        assert server.get("/?threadId=thread").status_code == 401
        bad = server.get("/?offset=7&runId=r1", headers={"x-user": "ada"})
        assert (bad.status_code, bad.json()["error"]["code"]) == (422, "bad_offset")


def test_an_agent_hydrates_and_joins_its_own_threads_only() -> None:
    async def agent(run: Any) -> Any:
        yield "Yes"

    with serving(App({"default": agent, "research": agent})) as server:
        server.post("/agents/research", json=run_input(run_id="r1"))
        for query in ("?threadId=thread", "?offset=-1&runId=r1"):
            assert server.get(f"/agents/research{query}").status_code == 200
            assert server.get(f"/agents/default{query}").status_code == 404
        assert server.get("/agents/default?threadId=new").json()["messages"] == []


def test_get_without_these_parameters_is_what_it_was() -> None:
    with serving(App(asking)) as server:
        for path in ("/", "/?runId=r1", "/?offset=-1"):
            answer = server.get(path)
            assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
            assert answer.json()["error"]["code"] == "method_not_allowed"


def test_only_tanstack_gets_the_binding(store: Any) -> None:
    with serving(App(asking, store=store)) as server:
        with server.run(run_id="r1", headers=AS_TANSTACK, protocolVersion=...) as stream:
            (interrupt,) = stream.rest()[-1]["outcome"]["interrupts"]
        assert interrupt["metadata"][BINDING]["interruptedRunId"] == "r1"
        with server.stream("GET", "/?offset=-1&runId=r1") as joined:
            assert joined.rest()[-1]["outcome"]["interrupts"] == [interrupt]
        for version in ("1.0", "1.1"):
            options = {"headers": AS_TANSTACK, "protocolVersion": version, "threadId": version}
            with server.run(**options) as stream:
                assert BINDING not in json.dumps(stream.rest()[-1])
        with server.run(threadId="other", protocolVersion=...) as stream:
            assert BINDING not in json.dumps(stream.rest()[-1])


def test_a_client_tool_is_started_once_wherever_the_stream_is_resumed(store: Any) -> None:
    tools = [{"name": "pick", "description": "", "parameters": {"type": "object"}}]
    with serving(App(calling, store=store)) as server:

        def frames(**headers: str) -> list[tuple[str, dict[str, Any]]]:
            answer = server.post(
                "/", json=run_input(tools=tools, protocolVersion=...), headers={**AS_TANSTACK, **headers}
            )
            blocks = [block.split("\n") for block in answer.text.split("\n\n") if block.startswith("id: ")]
            return [(head[4:], json.loads(data[6:])) for head, data in blocks]

        whole = frames()
        *_, first, second, last = whole
        pick, plain = [event["toolCallId"] for _, event in whole if event["type"] == "TOOL_CALL_START"]
        assert [event["value"] for _, event in (first, second)] == [
            {"toolCallId": pick, "toolName": "pick", "input": {"hint": "x"}},
            {"toolCallId": plain, "toolName": "no_arguments", "input": {}},
        ]
        assert last[1]["type"] == "RUN_FINISHED"
        number, _, token = last[0].partition("-")
        assert [first[0], second[0]] == [f"{int(number) - 1}-{token}.1", f"{int(number) - 1}-{token}.2"]
        ids = [one for one, _ in whole]
        for place, cursor in enumerate(ids[:-1]):
            rest = frames(**{"last-event-id": cursor})
            missing = [one for one in rest if one[0] not in ids[: place + 1]]  # the client drops repeated events
            assert missing == whole[place + 1 :], cursor


def test_a_call_names_its_message_so_that_the_client_invents_none() -> None:
    """Bug: TanStack made a message id of its own, resent the call under it, and the thread had the call twice."""
    with serving(App(calling)) as server, server.run(headers=AS_TANSTACK, protocolVersion=...) as stream:
        starts = [event for event in stream.rest() if event["type"] == "TOOL_CALL_START"]
        messages = server.get("/threads/thread").json()["messages"]
    assert [start["parentMessageId"] for start in starts] == [message["id"] for message in messages]


def test_declared_peers_get_no_custom_events_for_their_tools() -> None:
    tools = [{"name": "pick", "description": "", "parameters": {"type": "object"}}]
    with serving(App(calling)) as server, server.run(tools=tools, protocolVersion="1.1") as stream:
        assert "CUSTOM" not in types(stream.rest())


def test_messages_become_ui_messages() -> None:
    call = ToolCall(id="c1", function=FunctionCall(name="look", arguments='{"at": 1}'))
    open_call = ToolCall(id="c2", function=FunctionCall(name="wait", arguments="not json"))
    image = ImagePart(source=UrlSource(value="https://files.example/a", mime_type="image/png"))
    messages: list[Message] = [
        SystemMessage(id="s", content="Be brief"),
        UserMessage(id="u", content=[TextPart(text="Look"), image]),
        ReasoningMessage(id="r1", content="So", encrypted_value="x"),
        ActivityMessage(id="a", activity_type="PLAN", content={}),
        AssistantMessage(id="m1", content="I look", tool_calls=[call, open_call]),
        ToolMessage(id="t1", tool_call_id="c1", content='{"seen": true}'),
        ToolMessage(id="t0", tool_call_id="unknown", content=[image], error="late"),
        ReasoningMessage(id="r2", content="Hm"),
    ]
    shown = json.loads(json.dumps(to_ui_messages(messages), default=lambda one: {"type": one.type}))
    assert [(one["id"], one["role"]) for one in shown] == [("s", "system"), ("u", "user"), ("m1", "assistant")]
    assert shown[1]["parts"] == [{"type": "text", "content": "Look"}, {"type": "image"}]
    thought, text, closed, waiting, result, stray, later = shown[2]["parts"]
    assert thought == {"type": "thinking", "content": "So", "signature": "x"}
    assert text == {"type": "text", "content": "I look"}
    assert closed == {
        "type": "tool-call",
        "id": "c1",
        "name": "look",
        "arguments": '{"at": 1}',
        "input": {"at": 1},
        "state": "complete",
        "output": {"seen": True},
    }
    assert waiting == {
        "type": "tool-call",
        "id": "c2",
        "name": "wait",
        "arguments": "not json",
        "input": "not json",
        "state": "input-complete",
    }
    assert result == {
        "type": "tool-result",
        "id": "t1",
        "toolCallId": "c1",
        "content": '{"seen": true}',
        "state": "complete",
    }
    assert (stray["toolCallId"], stray["error"], stray["state"]) == ("unknown", "late", "error")
    assert later == {"type": "thinking", "content": "Hm"}


@pytest.mark.parametrize("content", ["[" * 100_000, "[" * 800 + "]" * 800, "NaN", "1" * 5_000])
def test_a_result_that_is_no_json_or_nests_too_deep_is_shown_as_text(content: str) -> None:
    call = ToolCall(id="c1", function=FunctionCall(name="look", arguments=content))
    messages: list[Message] = [
        AssistantMessage(id="m", content="", tool_calls=[call]),
        ToolMessage(id="t", tool_call_id="c1", content=content),
    ]
    (shown,) = to_ui_messages(messages)
    assert encode(shown)
    assert [part["output"] for part in shown["parts"] if part["type"] == "tool-call"] == [content]


def test_messages_are_grouped_as_the_client_groups_them() -> None:
    def call(call_id: str) -> AssistantMessage:
        return AssistantMessage(
            id=f"of {call_id}", tool_calls=[ToolCall(id=call_id, function=FunctionCall(name="look", arguments="{}"))]
        )

    messages: list[Message] = [
        UserMessage(id="u1", content="Look"),
        call("c1"),
        ToolMessage(id="t1", tool_call_id="c1", content="1"),
        AssistantMessage(id="m1", content="One"),
        call("c2"),
        AssistantMessage(id="m2", content="Two"),
        UserMessage(id="u2", content="Again"),
        call("c3"),
    ]
    assert [(one["id"], [part["type"] for part in one["parts"]]) for one in to_ui_messages(messages)] == [
        ("u1", ["text"]),
        ("m1", ["tool-call", "tool-result", "text", "tool-call"]),
        ("m2", ["text"]),
        ("u2", ["text"]),
        ("of c3", ["tool-call"]),
    ]


def test_to_canonical_json_is_sorted_and_written_as_javascript_writes_it() -> None:
    value = {
        "b": [1.0, -0.0, 1e21, 1.5e-7, 0.00001, 0.1, 12345678901234567890, True, None],
        "a": 'é\n"',
        "😀": 1,
        "ﬀ": 2,
    }
    assert to_canonical_json(value) == (
        '{"a":"é\\n\\"","b":[1,0,1e+21,1.5e-7,0.00001,0.1,12345678901234567000,true,null],"😀":1,"ﬀ":2}'
    )
