"""Interrupts: shown, answered, and checked before anything is sent."""

from datetime import UTC, datetime, timedelta

import pytest
from builders import run_started_json, text_message_json, tool_call_json
from scripted_server import Answer, ScriptedServer, frames, run_of

from aguila.chat.expiry import is_expired
from aguila.client import GIVE_UP, approve, deny, tool
from aguila.client.interrupts import resume_entries
from aguila.errors import IllegalStep, RunFailed
from aguila.protocol import Interrupt, ResumeEntry

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def asks(*interrupts, events=()):
    return run_of(*events, outcome={"type": "interrupt", "interrupts": list(interrupts)})


ONE = {"id": "int-1", "reason": "confirm", "message": "Sure?"}
TWO = {"id": "int-2", "reason": "input"}


def test_interrupts_are_shown_and_resumed(twin):
    with ScriptedServer(asks(ONE, TWO), run_of(*text_message_json("m", "done"))) as server:
        thread = twin.client(server.url).thread()
        result = twin.result(thread.run("Hi"))
        assert result.outcome == "interrupt"
        assert [i.id for i in result.interrupts] == [i.id for i in thread.interrupts] == ["int-1", "int-2"]
        done = twin.result(thread.resume({"int-2": GIVE_UP, "int-1": approve({"n": 5})}))
        assert done.outcome == "success"
        assert thread.interrupts == []
        sent = server.requests[1].json
        assert sent["resume"] == [
            {"interruptId": "int-1", "status": "resolved", "payload": {"approved": True, "editedArgs": {"n": 5}}},
            {"interruptId": "int-2", "status": "cancelled"},
        ]
        assert sent["threadId"] == server.requests[0].json["threadId"]
        assert sent["runId"] != server.requests[0].json["runId"]


def test_an_open_interrupt_is_never_passed_over_int8(twin):
    with ScriptedServer(asks(ONE, TWO)) as server:
        thread = twin.client(server.url).thread()
        twin.result(thread.run("Hi"))
        for attempt in (
            lambda: thread.run("never mind"),
            lambda: thread.resume({"int-1": 1}),
            lambda: thread.resume({}),
        ):
            with pytest.raises(IllegalStep) as caught:
                twin.result(attempt())
            assert caught.value.rule == "INT-8"
        with pytest.raises(IllegalStep) as caught:
            twin.result(thread.resume({"int-1": 1, "int-2": 1, "int-3": 1}))
        assert caught.value.rule == "INT-7"
        assert len(server.requests) == 1
        assert len(thread.messages) == 1


def test_there_is_nothing_to_resume_without_interrupts(twin):
    with ScriptedServer(run_of()) as server:
        thread = twin.client(server.url).thread()
        with pytest.raises(IllegalStep):
            twin.result(thread.resume({"int-1": True}))
        assert server.requests == []


def test_an_expired_interrupt_can_only_be_given_up_int9(twin):
    with ScriptedServer(asks({**ONE, "expiresAt": "2026-10-31T23:59:59Z"}), run_of()) as server:
        thread = twin.client(server.url, now=lambda: NOW).thread()
        twin.result(thread.run("Hi"))
        with pytest.raises(IllegalStep) as caught:
            twin.result(thread.resume({"int-1": True}))
        assert caught.value.rule == "INT-9"
        twin.result(thread.resume({"int-1": GIVE_UP}))
        assert server.requests[1].json["resume"][0]["status"] == "cancelled"


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (None, False),
        ("soon", False),
        ("2026-11-01T00:00:00Z", True),
        ("2026-11-01T00:00:00.001Z", False),
        ("2026-11-01T01:00:00+02:00", True),
        ("2026-10-31T23:00:00", True),
        ("2026-10-31", True),
    ],
)
def test_expiry_is_a_date_by_convention_int4(when, expected):
    assert is_expired(when, NOW) is expected


def test_an_answer_has_to_fit_the_schema_of_its_interrupt(twin):
    schema = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}
    with ScriptedServer(asks({**ONE, "responseSchema": schema}), run_of()) as server:
        thread = twin.client(server.url).thread()
        twin.result(thread.run("Hi"))
        for wrong in (None, True, {}, {"approved": "yes"}):
            with pytest.raises(IllegalStep):
                twin.result(thread.resume({"int-1": wrong}))
        assert len(server.requests) == 1
        twin.result(thread.resume({"int-1": deny("no")}))
        assert server.requests[1].json["resume"][0]["payload"] == {"approved": False, "reason": "no"}


def test_a_schema_that_is_none_or_points_elsewhere_checks_nothing_and_is_never_fetched():
    notices = []
    for schema in ({"$ref": "http://127.0.0.1:9/secret"}, {"type": "nonsense"}, {"$ref": "file:///etc/passwd"}):
        interrupt = Interrupt(id="i", reason="r", response_schema=schema)
        entries = resume_entries([interrupt], {"i": 5}, NOW, warn=notices.append)
        assert entries == [ResumeEntry(interrupt_id="i", status="resolved", payload=5)]
    assert len(notices) == 3


def test_an_entry_can_be_given_whole():
    interrupt = Interrupt(id="i", reason="r")
    entry = ResumeEntry(interrupt_id="i", status="resolved", payload=0, metadata={"signature": "x"})
    assert resume_entries([interrupt], {"i": entry}, NOW) == [entry]
    with pytest.raises(IllegalStep):
        resume_entries([interrupt], {"i": ResumeEntry(interrupt_id="j", status="resolved")}, NOW)
    late = Interrupt(id="i", reason="r", expires_at=(NOW - timedelta(days=1)).isoformat())
    with pytest.raises(IllegalStep):
        resume_entries([late], {"i": entry}, NOW)


def test_a_failed_run_leaves_the_interrupts_open(twin):
    def fails(asked):
        return Answer([frames([run_started_json(asked.json["runId"], "t"), {"type": "RUN_ERROR", "message": "x"}])])

    with ScriptedServer(asks(ONE), fails, run_of()) as server:
        thread = twin.client(server.url).thread()
        twin.result(thread.run("Hi"))
        with pytest.raises(RunFailed):
            twin.result(thread.resume({"int-1": True}))
        assert [i.id for i in thread.interrupts] == ["int-1"]
        twin.result(thread.resume({"int-1": True}))


def test_on_an_interrupt_ungated_calls_are_made_and_gated_ones_wait(twin):
    made = []

    @tool(parameters={})
    def f(**arguments):
        made.append(arguments)

    gated = {**ONE, "toolCallId": "c2"}
    events = [
        *tool_call_json("c1", "f", {"n": 1}),
        *tool_call_json("c2", "f", {"n": 2}),
        *tool_call_json("c3", "backend", {}),
    ]
    with ScriptedServer(asks(gated, events=events), run_of()) as server:
        thread = twin.client(server.url, tools=[f]).thread()
        twin.result(thread.run("Hi"))
        assert made == [{"n": 1}]
        assert len(server.requests) == 1, "the run is not continued past a question"
        twin.result(thread.resume({"int-1": approve()}))
        assert made == [{"n": 1}]


def test_a_call_that_is_asked_about_is_not_left_to_the_application(twin):
    asked = {"type": "interrupt", "interrupts": [{"id": "i", "reason": "tool_call", "toolCallId": "c1"}]}
    with ScriptedServer(
        run_of(*tool_call_json("c1", "pay", "{}"), *tool_call_json("c2", "pick", "{}"), outcome=asked)
    ) as server:
        result = twin.result(twin.client(server.url).thread().run("Pay"))
        assert [one.id for one in result.pending_tool_calls] == ["c2"]
        assert [one.id for one in result.conversation.pending_tool_calls] == ["c1", "c2"]
