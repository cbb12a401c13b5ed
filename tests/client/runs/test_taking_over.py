"""Use a thread that another client began: answer its open interrupts and calls."""

import json

import msgspec
import pytest
from builders import run_started_json, text_message_json, tool_call_json
from scripted_server import Answer, ScriptedServer, frames, run_of
from serving import serving

from aguila import App
from aguila.client import GIVE_UP
from aguila.codec import encode
from aguila.errors import IllegalStep, ProtocolError, StreamTruncated
from aguila.protocol import AssistantMessage, Tool, ToolMessage

INC = Tool(name="inc", description="", parameters={"type": "object"})


async def calls_inc(run):
    last = run.messages[-1]
    if last.content == "tools":
        await run.tool_call("inc", {"k": 1})
        await run.tool_call("inc", {"k": 2})
    else:
        yield ", ".join(f"{m.role} {m.content or ''}".strip() for m in run.messages)


@pytest.fixture
def made():
    return []


@pytest.fixture
def inc(made):
    def inc(k: int) -> str:
        made.append(k)
        return f"r{k}"

    return inc


@pytest.fixture(scope="module")
def server():
    with serving(App(calls_inc, allow_anonymous=True)) as server:
        yield server


def left_open(twin, server, name):
    thread = twin.client(server.url, tools=[INC]).thread(f"{twin.name}-{name}")
    assert len(twin.result(thread.run("tools")).pending_tool_calls) == 2
    return thread


def ids(calls):
    return [call.id for call in calls]


def test_calls_that_another_client_left_are_made_after_refreshing_ft5(twin, server, inc, made):
    left = left_open(twin, server, "refreshed")
    thread = twin.client(server.url, tools=[inc]).thread(left.id)
    conversation = twin.wait(thread.refresh())
    assert ids(thread.pending_tool_calls) == ids(conversation.pending_tool_calls) == ids(left.pending_tool_calls)
    assert thread.runs[-1].run_id == left.run_id
    result = twin.result(thread.run("go on"))
    assert sorted(made) == [1, 2]
    assert result.text.endswith("tool r1, tool r2, user go on")
    twin.wait(thread.refresh())
    assert thread.pending_tool_calls == []


def test_calls_that_the_given_messages_end_with_are_made_ft5(twin, server, inc, made):
    left = left_open(twin, server, "given")
    thread = twin.client(server.url, tools=[inc]).thread(left.id, messages=msgspec.json.decode(encode(left.messages)))
    assert ids(thread.pending_tool_calls) == ids(left.pending_tool_calls)
    twin.result(thread.run("go on"))
    assert sorted(made) == [1, 2]
    assert thread.pending_tool_calls == []


def test_calls_of_a_declared_tool_are_refused_until_the_application_answers_them_ft5(twin, server):
    left = left_open(twin, server, "declared")
    client = twin.client(server.url, tools=[INC])
    refreshed = client.thread(left.id)
    twin.wait(refreshed.refresh())
    for thread in (refreshed, client.thread(left.id, messages=left.messages), left):
        with pytest.raises(IllegalStep, match="has no answer") as caught:
            twin.result(thread.run("go on"))
        assert caught.value.rule == "FT-5"
    answers = [ToolMessage(id=f"a{c.id}", tool_call_id=c.id, content="x") for c in refreshed.pending_tool_calls]
    assert "tool x, tool x" in twin.result(refreshed.run([*answers, {"id": "u", "role": "user", "content": "?"}])).text


def test_refreshing_the_thread_that_made_the_calls_keeps_them(twin, server):
    left = left_open(twin, server, "own")
    before = ids(left.pending_tool_calls)
    twin.wait(left.refresh())
    assert ids(left.pending_tool_calls) == before
    assert len(left.runs) == 1


def test_a_call_that_an_open_interrupt_is_about_waits_for_its_answer(twin):
    made = []

    def send(to: str) -> None:
        made.append(to)

    async def asks(run):
        approval = await run.approve("send", {"to": "Ada"})
        await approval.call.result("sent" if approval else "refused")

    with serving(App(asks, allow_anonymous=True)) as server:
        client = twin.client(server.url, tools=[send])
        twin.result(client.thread("t").run("x"))
        thread = client.thread("t")
        twin.wait(thread.refresh())
        assert len(thread.pending_tool_calls) == len(thread.interrupts) == 1
        twin.result(thread.resume({thread.interrupts[0].id: GIVE_UP}))
        assert made == []


def history(*more):
    return [{"id": "u", "role": "user", "content": "x"}, *more]


def assistant(id, *calls):
    function = {"name": "inc", "arguments": '{"k": 1}'}
    return {
        "id": id,
        "role": "assistant",
        "toolCalls": [{"id": one, "type": "function", "function": function} for one in calls],
    }


@pytest.mark.parametrize(
    ("messages", "open_calls"),
    [
        (history(assistant("a", "c", "d")), ["c", "d"]),
        (history(assistant("a", "c"), assistant("b", "d")), ["c", "d"]),
        (history(assistant("a", "c", "d"), {"id": "t", "role": "tool", "toolCallId": "d", "content": ""}), ["c"]),
        (history(assistant("a", "c"), {"id": "v", "role": "user", "content": "y"}), ["c"]),
        (history(assistant("a", "c"), {"id": "v", "role": "user", "content": "y"}, assistant("b")), []),
        (history(), []),
    ],
    ids=["together", "a message each", "one answered", "asked again", "given up", "none"],
)
def test_pending_calls_are_found_in_the_messages_if_the_server_lists_none(twin, messages, open_calls):
    body = json.dumps({"messages": messages}).encode()
    with ScriptedServer(
        Answer([body], 200, "application/json"), run_of(), Answer([body], 200, "application/json")
    ) as server:
        client = twin.client(server.url)
        thread = client.thread("t")
        twin.wait(thread.refresh())
        assert ids(thread.pending_tool_calls) == open_calls
        assert ids(client.thread("t", messages=messages).pending_tool_calls) == open_calls
        seen = client.thread("t")
        twin.result(seen.run("x"))
        twin.wait(seen.refresh())
        assert ids(seen.pending_tool_calls) == open_calls, "also where a run was seen"


def test_a_run_that_was_cut_off_here_and_finished_there_has_finished(twin, inc, made):
    def cut(asked):
        begun = [run_started_json(asked.json["runId"], "t"), *tool_call_json("c", "inc", {"k": 7})]
        return Answer([frames(begun)], cut=True)

    def held(asked):
        run = server.requests[0].json["runId"]
        messages = history(AssistantMessage(id="a"), assistant("b", "c"))
        document = {
            "threadId": "t",
            "messages": [msgspec.to_builtins(m) if isinstance(m, AssistantMessage) else m for m in messages],
            "tip": run,
            "runs": [{"runId": "old", "status": "error"}, {"runId": run, "status": "success"}],
            "pendingToolCallIds": ["c"],
        }
        return Answer([json.dumps(document).encode()], 200, "application/json")

    with ScriptedServer(cut, held, run_of(*text_message_json("m", "ok"))) as server:
        thread = twin.client(server.url, tools=[inc]).thread("t")
        with pytest.raises(StreamTruncated):
            twin.result(thread.run("x"))
        twin.wait(thread.refresh())
        assert thread.runs[-1].outcome == "success"
        twin.result(thread.run("y"))
        assert made == [1], "the arguments are those that the server has"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"id": 5}',
        b'{"messages": null}',
        b'{"messages": [{"role": "user"}]}',
        b'{"messages": [], "interrupts": {}}',
        b'{"messages": [], "runs": 1}',
        b'{"messages": [], "threadId": "another"}',
        b"\xff",
    ],
)
def test_an_answer_that_is_no_thread_is_a_protocol_error_and_what_was_held_stays(twin, body):
    with ScriptedServer(run_of(*text_message_json("m", "hello")), Answer([body], 200, "application/json")) as server:
        thread = twin.client(server.url).thread("t")
        twin.result(thread.run("x"))
        before = thread.conversation
        with pytest.raises(ProtocolError):
            twin.wait(thread.refresh())
        assert thread.conversation is before


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"7", b'{"id": 5}', b"\xff", b"[" * 100_000])
def test_an_answer_to_an_upload_that_says_nothing_about_it_is_a_protocol_error(twin, body):
    with ScriptedServer(Answer([body], 200, "application/json")) as server:
        with pytest.raises(ProtocolError, match="response to the upload is invalid") as caught:
            twin.wait(twin.client(server.url).upload(b"abc", mime_type="image/png"))
        assert "attribute" not in str(caught.value)
