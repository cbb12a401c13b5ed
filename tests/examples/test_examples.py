"""Every example, started as its docstring says and driven over HTTP."""

from __future__ import annotations

import ast
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from builders import user_json
from processes.commands import Command, example
from serving import REPOSITORY, check_valid, text_of, types

from aguila.stream import consume

NAMES = [path.name for path in sorted((REPOSITORY / "examples").glob("0[1-8]*.py"))]
HEALTH = {"07_fastapi_auth.py": "/agent/healthz"}


def valid_text(events: list[dict[str, Any]]) -> str:
    check_valid(events)
    return text_of(events)


def commands_of(name: str) -> list[list[str]]:
    """Return the curl commands of an example's docstring, as the shell would split them."""
    docstring = ast.get_docstring(ast.parse((REPOSITORY / "examples" / name).read_text()))
    assert docstring is not None
    assert f"python examples/{name}" in docstring
    text = docstring.replace("\\\n", " ")
    return [shlex.split("curl" + one.split("\n\n")[0]) for one in text.split("curl")[1:]]


def obey(server: Command, command: list[str]) -> tuple[int, str]:
    """Send the request of a curl command to the server's port."""
    path, body, headers = "", None, {}
    words = iter(command[1:])
    for word in words:
        if word == "-H":
            header, _, value = next(words).partition(": ")
            headers[header] = value
        elif word == "-d":
            body = next(words)
        elif word != "-N":
            assert word.startswith("http://127.0.0.1:8000"), word
            path = word.removeprefix("http://127.0.0.1:8000") or "/"
    response = server.get(path, headers=headers) if body is None else server.post(path, content=body, headers=headers)
    return response.status_code, response.text


@pytest.mark.parametrize("name", NAMES)
def test_the_commands_in_the_docstring_work(name: str, tmp_path: Path) -> None:
    commands = [command for command in commands_of(name) if "int_..." not in " ".join(command)]
    assert commands
    with example(name, tmp_path, HEALTH.get(name, "/healthz")) as server:
        for command in commands:
            status, answer = obey(server, command)
            assert status == 200, answer
            assert "-N" not in command or '"type":"RUN_FINISHED"' in answer


def test_the_examples_are_short() -> None:
    assert len(NAMES) == 8
    for name in NAMES:
        assert len((REPOSITORY / "examples" / name).read_text().splitlines()) <= 60, name


def test_01_hello(tmp_path: Path) -> None:
    with example("01_hello.py", tmp_path) as server:
        assert valid_text(server.events(messages=[user_json("m1", "Hi")])) == "Hello, world!"


def test_02_backend_tools_are_called_together_and_answered(tmp_path: Path) -> None:
    with example("02_backend_tools.py", tmp_path) as server:
        events = server.events(messages=[user_json("m1", "Is it warmer in Lisbon or in Oslo?")])
        assert valid_text(events) == "It is warmest in Lisbon: 24 degrees."
        assert types(events).index("TOOL_CALL_RESULT") > max(
            place for place, type_ in enumerate(types(events)) if type_ == "TOOL_CALL_START"
        )
        results = [json.loads(event["content"]) for event in events if event["type"] == "TOOL_CALL_RESULT"]
        assert sorted(result["city"] for result in results) == ["Lisbon", "Oslo"]
        assert "Quito" in valid_text(server.events(run_id="other", messages=[user_json("m1", "And on Mars?")]))


def test_03_a_frontend_tool_is_left_pending_and_its_answer_used(tmp_path: Path) -> None:
    with example("03_frontend_tools.py", tmp_path) as server:
        tools = [{"name": "pick_time", "description": "Lets the user pick a time", "parameters": {}}]
        messages = [user_json("m1", "Book a table")]
        events = server.events(messages=messages, tools=tools)
        (start,) = [event for event in events if event["type"] == "TOOL_CALL_START"]
        assert events[-1]["outcome"] == {"type": "success", "pendingToolCallIds": [start["toolCallId"]]}
        call = {"id": start["toolCallId"], "type": "function", "function": {"name": "pick_time", "arguments": "{}"}}
        messages.append({"id": "m2", "role": "assistant", "toolCalls": [call]})
        messages.append({"id": "m3", "role": "tool", "toolCallId": start["toolCallId"], "content": "19:30"})
        assert valid_text(server.events(run_id="then", messages=messages, tools=tools)) == "A table at 19:30: booked."
        assert valid_text(server.events(thread_id="other", messages=messages[:1])) == "When? I cannot show you a clock."


def test_04_changes_of_the_state_go_out_as_patches(tmp_path: Path) -> None:
    with example("04_shared_state.py", tmp_path) as server:
        plants = {"title": "water the plants", "done": True}
        events = server.events(messages=[user_json("m1", "buy leeks, cook soup")], state={"todos": [plants]})
        check_valid(events)
        assert "STATE_DELTA" in types(events)
        reached = consume(events, state={"todos": [plants]}).state
        assert [todo["title"] for todo in reached["todos"]] == ["water the plants", "buy leeks", "cook soup"]
        assert reached["open"] == 2
        assert valid_text(server.events(run_id="bare", messages=[user_json("m1", "sleep")])) == "Noted: sleep. "


def answer(server: Command, run_id: str, last: dict[str, Any], payload: Any, thread_id: str = "thread") -> Any:
    assert last["outcome"]["type"] == "interrupt", last
    entries = [
        {"interruptId": one["id"], "status": "resolved", "payload": payload} for one in last["outcome"]["interrupts"]
    ]
    return server.events(thread_id=thread_id, run_id=run_id, messages=[], resume=entries)


def test_05_input_then_approval_with_edits_pays_once(tmp_path: Path) -> None:
    with example("05_approval_and_input.py", tmp_path) as server:
        asked = server.events(messages=[user_json("m1", "Pay the rent")])
        gated = answer(server, "r2", asked[-1], {"amount": 900})
        (interrupt,) = gated[-1]["outcome"]["interrupts"]
        assert interrupt["reason"] == "tool_call"
        edited = {"approved": True, "editedArgs": {"amount": 850, "to": "the landlord"}}
        assert valid_text(answer(server, "r3", gated[-1], edited)) == "Paid 850 to the landlord: transfer 1."
        messages = server.get("/threads/thread").json()["messages"]
        assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]  # with the call

        asked = server.events(thread_id="other", messages=[user_json("m1", "Pay the rent")])
        gated = answer(server, "r2", asked[-1], {"amount": 900}, "other")
        assert valid_text(answer(server, "r3", gated[-1], {"approved": False}, "other")) == "I have not paid."


def test_05_an_answer_that_does_not_fit_the_schema_is_refused(tmp_path: Path) -> None:
    with example("05_approval_and_input.py", tmp_path) as server:
        asked = server.events(messages=[user_json("m1", "Pay the rent")])
        entry = {"interruptId": asked[-1]["outcome"]["interrupts"][0]["id"], "status": "resolved"}
        with server.run(run_id="r2", resume=[{**entry, "payload": {"amount": "much"}}]) as refused:
            assert refused.status == 422
        last = server.events(
            run_id="r3", messages=[user_json("m1", "Pay the rent")], resume=[{**entry, "status": "cancelled"}]
        )
        assert valid_text(last) == "Then I leave it."


def test_06_a_run_goes_on_unwatched_is_joined_and_survives_a_restart(tmp_path: Path) -> None:
    with example("06_durable_threads.py", tmp_path) as server:
        with server.run(run_id="r1", messages=[user_json("m1", "Count to 12")]) as stream:
            stream.read_until("TEXT_MESSAGE_CONTENT")
            seen = stream.next()
            assert seen is not None
        with server.stream("GET", "/threads/thread/events", headers={"last-event-id": str(seen.id)}) as rest:
            assert text_of(rest.rest()) == "".join(f" {number}" for number in range(2, 13))
        assert server.terminate() is not None
    with example("06_durable_threads.py", tmp_path) as server:
        assert [one["threadId"] for one in server.get("/threads").json()["threads"]] == ["thread"]
        with server.stream("GET", "/threads/thread/events") as whole:
            assert valid_text(whole.rest()).endswith(" 11 12")


def test_06_a_branch_goes_on_from_an_earlier_run(tmp_path: Path) -> None:
    with example("06_durable_threads.py", tmp_path) as server:
        server.events(run_id="r1", messages=[user_json("m1", "Count to 1")])
        on = server.events(run_id="r2", messages=[user_json("m2", "Count to 1")])
        branch = server.events(run_id="r3", parentRunId="r1", messages=[user_json("m3", "Count to 2")])
        assert valid_text(on) == "You have asked 2 times here, 2 in all. 1"
        assert valid_text(branch) == "You have asked 2 times here, 3 in all. 1 2"
        for run, ids in {"r2": ["m1", "m2"], "r3": ["m1", "m3"]}.items():
            messages = server.get(f"/threads/thread?run={run}").json()["messages"]
            assert [one["id"] for one in messages if one["role"] == "user"] == ids


def test_07_everybody_sees_their_own_threads_only(tmp_path: Path) -> None:
    with example("07_fastapi_auth.py", tmp_path, "/agent/healthz") as server:
        assert server.get("/").json() == {"agent": "/agent"}
        ada, bob = ({"authorization": f"Bearer {name}-token"} for name in ("ada", "bob"))
        for path in ("/agent", "/agent/"):
            with server.run(path, run_id=f"at {path}", headers=ada, messages=[user_json("m1", "Who am I?")]) as stream:
                assert valid_text(stream.rest()) == "You are Ada."
        assert [one["threadId"] for one in server.get("/agent/threads", headers=ada).json()["threads"]] == ["thread"]
        assert server.get("/agent/threads", headers=bob).json()["threads"] == []
        assert server.get("/agent/threads/thread", headers=bob).status_code == 404
        assert server.get("/agent/threads").status_code == 401


def test_08_payloads_pass_unchanged(tmp_path: Path) -> None:
    with example("08_generative_ui.py", tmp_path) as server:
        events = server.events(messages=[user_json("m1", "Flights?")])
        check_valid(events)
        surface = next(one for one in consume(events).messages if one.role == "activity")
        rows = surface.content["a2ui_operations"][1]["updateComponents"]["components"][1:]
        assert [row["text"] for row in rows] == ["LIS 08:10", "OSL 09:45"]
        assert "ACTIVITY_DELTA" in types(events)
        (custom,) = [event for event in events if event["type"] == "CUSTOM"]
        assert custom["value"]["spec"]["children"][1] == {"type": "button", "label": "Book"}
        (result,) = [event for event in events if event["type"] == "TOOL_CALL_RESULT"]
        assert json.loads(result["content"])["content"][0]["resource"]["mimeType"] == "text/html"
