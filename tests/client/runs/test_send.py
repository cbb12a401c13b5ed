"""``client.send``: an input goes out as it is, and its run comes back, for gateways."""

import pytest
from builders import run_started_json, text_message_json, tool_call_json, user
from scripted_server import Answer, ScriptedServer, frames, run_of

from aguila.codec import decode, encode
from aguila.errors import RunFailed
from aguila.protocol import ResumeEntry, RunAgentInput, Tool

INPUT = RunAgentInput(
    thread_id="t1",
    run_id="r1",
    parent_run_id="r0",
    protocol_version="1.1",
    messages=[user("u1", "Hi")],
    state={"n": 1},
    tools=[Tool(name="pick", description="Pick.", parameters={"type": "object"})],
    context=[],
    forwarded_props={"a": 1},
    resume=[ResumeEntry(interrupt_id="i1", status="resolved", payload=5)],
)


def test_an_input_is_sent_as_it_is_and_its_events_come_back(twin):
    with ScriptedServer(run_of(*text_message_json("m1", "Hello"))) as server:
        run = twin.client(server.url).send(INPUT, headers={"X-Tenant": "acme"})
        events = twin.events(run)
        assert decode(encode(server.requests[0].json), RunAgentInput) == INPUT
        assert server.requests[0].headers["x-tenant"] == "acme"
        assert [event.type for event in events][-2:] == ["TEXT_MESSAGE_END", "RUN_FINISHED"]


def test_the_result_has_the_conversation_and_tools_are_not_called(twin):
    calls = []

    def pick() -> str:
        calls.append(1)
        return "red"

    with ScriptedServer(run_of(*tool_call_json("c1", "pick", {}))) as server:
        result = twin.result(twin.client(server.url, tools=[pick]).send(INPUT))
        assert (result.run_id, result.outcome, result.state) == ("r1", "success", {"n": 1})
        assert [call.id for call in result.pending_tool_calls] == ["c1"]
        assert [message.id for message in result.conversation.messages] == ["u1", "c1"]
        assert calls == []


def test_a_failed_run_is_raised_after_its_events(twin):
    failed = [run_started_json("r1", "t1"), {"type": "RUN_ERROR", "message": "no", "code": "E1"}]
    with ScriptedServer(Answer([frames(failed)])) as server:
        with pytest.raises(RunFailed, match="no") as caught:
            twin.events(twin.client(server.url).send(INPUT))
        assert caught.value.code == "E1"
