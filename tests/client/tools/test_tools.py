"""Function tools: the schema that is sent, the arguments that are checked, the loop that answers calls."""

import asyncio
import logging
import threading
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
import pytest
from builders import text_message_json, tool_call_json
from scripted_server import Answer, ScriptedServer, run_of
from typing_checks import pyright_findings, revealed
from waiting import DEADLINE

from aguila.chat.tools import FunctionTool, Toolbox
from aguila.client import ToolError, part, tool
from aguila.client.tools import plan_call
from aguila.errors import HTTPRejected, IllegalStep, ToolRoundsExceeded
from aguila.protocol import FunctionCall, Tool, ToolCall, ToolMessage


@dataclass
class Place:
    city: str
    zip: str | None = None


def test_the_schema_comes_from_signature_and_docstring():
    @tool
    def weather(place: Place, days: Annotated[int, msgspec.Meta(ge=1)] = 1, unit: Literal["c", "f"] = "c") -> str:
        """The weather somewhere.

        For tourists.

        Args:
            place: Where
                it is wanted.
            days (int): How far ahead.

        Returns:
            A sentence.
        """
        return ""

    declared = weather.declaration
    assert declared.name == "weather"
    assert declared.description == "The weather somewhere.\n\nFor tourists."
    schema = declared.parameters
    assert schema["type"] == "object"
    assert schema["required"] == ["place"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["days"] == {
        "type": "integer",
        "minimum": 1,
        "description": "How far ahead.",
        "default": 1,
    }
    assert schema["properties"]["unit"]["enum"] == ["c", "f"]
    assert schema["properties"]["place"]["description"] == "Where it is wanted."
    assert schema["$defs"]["Place"]["required"] == ["city"]


def test_arguments_are_converted_and_checked():
    @tool
    def go(place: Place, steps: list[int] = [1], speed: float = 1.0) -> None:  # noqa: B006
        """Go."""

    assert go.bind('{"place": {"city": "Rome"}}') == {"place": Place("Rome")}, "its defaults are its own business"
    assert go.bind('{"place": {"city": "Rome"}, "steps": [2]}')["steps"] == [2]
    for wrong in ("", "[]", "{", '{"place": {}}', '{"place": {"city": 5}}', '{"place": {"city": "x"}, "more": 1}'):
        with pytest.raises(ToolError):
            go.bind(wrong)


def test_a_whole_number_is_an_integer_as_the_advertised_schema_says():
    @tool
    def plan(n: int, sizes: list[int], place: dict[str, int], share: float) -> None: ...

    bound = plan.bind('{"n": 1.0, "sizes": [2, 3e1], "place": {"x": 4.0}, "share": 5.0}')
    assert bound == {"n": 1, "sizes": [2, 30], "place": {"x": 4}, "share": 5.0}
    assert [type(bound["n"]), type(bound["sizes"][1]), type(bound["place"]["x"])] == [int, int, int]
    assert isinstance(bound["share"], float)
    for wrong in ("1.5", '"1"', "true", "1e400"):
        with pytest.raises(ToolError):
            plan.bind('{"n": WRONG, "sizes": [], "place": {}, "share": 1}'.replace("WRONG", wrong))


def test_a_function_without_parameters_takes_an_empty_text():
    @tool
    def now() -> str:
        """Now."""
        return "now"

    assert now.bind("") == {}
    assert now.bind("{}") == {}
    assert now() == "now", "it is still the function"


def test_a_given_schema_is_advertised_and_enforced():
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 3}}, "required": ["n"]}

    @tool(name="count", description="Counts.", parameters=schema, metadata={"a": 1})
    def anything(**arguments: object) -> object:
        return arguments

    assert anything.declaration == Tool(name="count", description="Counts.", parameters=schema, metadata={"a": 1})
    assert anything.bind('{"n": 3, "x": null}') == {"n": 3, "x": None}
    for wrong in ('{"n": 4}', "{}", "7", "nonsense"):
        with pytest.raises(ToolError):
            anything.bind(wrong)


def test_a_signature_that_cannot_be_advertised_is_refused():
    def variadic(*args: int) -> None: ...
    def positional(a: int, /) -> None: ...
    def odd(a: threading.Lock) -> None: ...  # type: ignore[valid-type]

    for function in (variadic, positional, odd, lambda x: x):
        with pytest.raises(TypeError):
            FunctionTool(function)


@pytest.mark.parametrize(
    ("value", "content"),
    [("text", "text"), (None, ""), ({"a": [1, None]}, '{"a":[1,null]}'), (5, "5"), (False, "false"), ([], "[]")],
)
def test_results_are_text_or_json(value, content):
    planned = plan_call(Toolbox([tool(name="f", parameters={})(lambda: value)]), _call("f", "{}"), "m")
    assert planned.answer(value) == ToolMessage(id="m", tool_call_id="c", content=content)


def test_results_may_be_parts_and_a_result_without_a_json_form_is_an_error():
    picture = part(b"\x89PNG\r\n\x1a\n")
    planned = plan_call(Toolbox([tool(name="f", parameters={})(lambda: 1)]), _call("f", "{}"), "m")
    assert planned.answer(picture).content == [picture]
    assert planned.answer([picture, picture]).content == [picture, picture]
    assert planned.answer(object()).error is not None
    assert planned.answer(float("nan")).error is not None


def _call(name: str, arguments: str) -> ToolCall:
    return ToolCall(id="c", function=FunctionCall(name=name, arguments=arguments))


def test_calls_are_answered_and_the_run_goes_on_until_nothing_is_pending(twin):
    def weather(city: str) -> str:
        """The weather."""
        return f"sunny in {city}"

    with ScriptedServer(
        run_of(*tool_call_json("c1", "weather", {"city": "Rome"})),
        run_of(
            *tool_call_json("c2", "weather", {"city": "Oslo"}),
            outcome={"type": "success", "pendingToolCallIds": ["c2"]},
        ),
        run_of(*text_message_json("m", "Nice")),
    ) as server:
        thread = twin.client(server.url, tools=[weather]).thread()
        result = twin.result(thread.run("?"))
        assert (result.text, result.pending_tool_calls) == ("Nice", [])
        assert [t["name"] for t in server.requests[0].json["tools"]] == ["weather"]
        tool_messages = [m for m in server.requests[2].json["messages"] if m["role"] == "tool"]
        assert [(m["toolCallId"], m["content"]) for m in tool_messages] == [
            ("c1", "sunny in Rome"),
            ("c2", "sunny in Oslo"),
        ]
        assert len({r.json["runId"] for r in server.requests}) == 3
        assert len(thread.runs) == 3


def test_events_of_all_rounds_come_in_one_loop(twin):
    with ScriptedServer(run_of(*tool_call_json("c1", "f", {})), run_of(*text_message_json("m", "x"))) as server:
        thread = twin.client(server.url).thread()
        events = twin.events(thread.run("?", tools=[tool(name="f", parameters={})(lambda: 1)]))
        assert [e.type for e in events].count("RUN_STARTED") == 2


def test_parallel_calls_run_side_by_side_and_are_answered_in_order(twin):
    meet = threading.Barrier(3, timeout=DEADLINE)

    def slow(n: int) -> int:
        meet.wait()
        return n

    async def slow_async(n: int) -> int:
        await asyncio.to_thread(meet.wait)
        return n

    calls = [
        *tool_call_json("c1", "slow", {"n": 1}),
        *tool_call_json("c2", "slow_async", {"n": 2}),
        *tool_call_json("c3", "slow", {"n": 3}),
    ]
    with ScriptedServer(run_of(*calls), run_of()) as server:
        twin.result(twin.client(server.url).thread().run("?", tools=[slow, slow_async]))
        sent = [m for m in server.requests[1].json["messages"] if m["role"] == "tool"]
        assert [(m["toolCallId"], m["content"]) for m in sent] == [("c1", "1"), ("c2", "2"), ("c3", "3")]


def test_whatever_goes_wrong_with_a_call_is_an_answer_with_error(twin, caplog):
    def broken(n: int) -> int:
        raise ValueError("no such thing")

    def picky(n: int) -> int:
        raise ToolError("try 5")

    calls = [
        *tool_call_json("c1", "broken", {"n": 1}),
        *tool_call_json("c2", "broken", {"n": "x"}),
        *tool_call_json("c3", "broken", "{not json"),
        *tool_call_json("c4", "unheard_of", {}),
        *tool_call_json("c5", "picky", {"n": 1}),
    ]
    with ScriptedServer(run_of(*calls), run_of()) as server, caplog.at_level(logging.CRITICAL):
        result = twin.result(twin.client(server.url).thread().run("?", tools=[broken, picky]))
        assert result.outcome == "success"
        sent = {m["toolCallId"]: m for m in server.requests[1].json["messages"] if m["role"] == "tool"}
        assert sent["c1"]["error"] == "ValueError: no such thing"
        assert "do not fit" in sent["c2"]["error"]
        assert "not JSON" in sent["c3"]["error"]
        assert sent["c4"]["error"] == "there is no tool 'unheard_of'"
        assert sent["c5"]["error"] == "try 5"
        assert all(m["content"] == m["error"] for m in sent.values())


def test_rounds_are_limited_and_the_last_calls_are_not_made(twin):
    made = []

    def again(n: int) -> int:
        made.append(n)
        return n

    with ScriptedServer(*(run_of(*tool_call_json(f"c{n}", "again", {"n": n})) for n in range(4)), run_of()) as server:
        thread = twin.client(server.url, tools=[again]).thread()
        with pytest.raises(ToolRoundsExceeded):
            twin.result(thread.run("?", max_rounds=2))
        assert made == [0, 1]
        assert [c.id for c in thread.pending_tool_calls] == ["c2"]
        assert len(server.requests) == 3
        server.script.pop(0)
        twin.result(thread.run())
        assert made == [0, 1, 2], "what is pending is answered before the thread goes on"


def test_a_declared_tool_without_a_function_is_left_to_the_application_ft5(twin):
    ask = Tool(name="ask", description="Ask the user.")
    made = []
    with ScriptedServer(run_of(*tool_call_json("c1", "ask", {}), *tool_call_json("c2", "f", {})), run_of()) as server:
        thread = twin.client(server.url, tools=[ask, tool(name="f", parameters={})(lambda: made.append(1))]).thread()
        result = twin.result(thread.run("?"))
        assert [c.id for c in result.pending_tool_calls] == ["c1"]
        assert made == [1]
        with pytest.raises(IllegalStep) as caught:
            twin.result(thread.run("never mind"))
        assert caught.value.rule == "FT-5"
        assert len(server.requests) == 1
        twin.result(thread.run(ToolMessage(id="x", tool_call_id="c1", content="yes")))
        answered = {m["toolCallId"] for m in server.requests[1].json["messages"] if m["role"] == "tool"}
        assert answered == {"c1", "c2"}


def test_calls_of_the_agents_own_tools_without_result_do_not_stop_the_thread(twin):
    with ScriptedServer(run_of(*tool_call_json("c1", "backend", {})), run_of()) as server:
        thread = twin.client(server.url).thread()
        assert [c.id for c in twin.result(thread.run("?")).pending_tool_calls] == ["c1"]
        assert twin.result(thread.run("go on")).outcome == "success"


def test_calls_answered_by_the_agent_are_not_made(twin):
    done = {"type": "TOOL_CALL_RESULT", "toolCallId": "c1", "messageId": "r", "content": "done"}
    made = []
    with ScriptedServer(run_of(*tool_call_json("c1", "f", {}), done)) as server:
        thread = twin.client(server.url, tools=[tool(name="f", parameters={})(lambda: made.append(1))]).thread()
        assert twin.result(thread.run("?")).pending_tool_calls == []
        assert made == []


def test_calls_of_a_cancelled_run_are_answered_as_not_executed(twin):
    made = []
    with ScriptedServer(run_of(*tool_call_json("c1", "f", {}), outcome={"type": "cancelled"}), run_of()) as server:
        thread = twin.client(server.url, tools=[tool(name="f", parameters={})(lambda: made.append(1))]).thread()
        assert twin.result(thread.run("?")).outcome == "cancelled"
        twin.result(thread.run("go on"))
        assert made == []
        sent = [m for m in server.requests[1].json["messages"] if m["role"] == "tool"]
        assert "cancelled" in sent[0]["error"]


def test_results_survive_a_continuation_that_is_refused_and_nothing_runs_twice(twin):
    made = []
    with ScriptedServer(
        run_of(*tool_call_json("c1", "f", {})), Answer([b""], 500, None), run_of(*text_message_json("m", "ok"))
    ) as server:
        thread = twin.client(server.url, tools=[tool(name="f", parameters={})(lambda: made.append(1))]).thread()
        with pytest.raises(HTTPRejected):
            twin.result(thread.run("?"))
        assert twin.result(thread.run()).text == "ok"
        assert made == [1]
        assert [m["role"] for m in server.requests[2].json["messages"]] == ["user", "assistant", "tool"]


def test_tools_of_client_thread_and_run_add_up_and_the_nearest_wins(twin):
    far, near = tool(name="f", parameters={})(lambda: "far"), tool(name="f", parameters={})(lambda: "near")
    other = tool(name="g", parameters={})(lambda: "g")
    with ScriptedServer(run_of(*tool_call_json("c1", "f", {})), run_of()) as server:
        thread = twin.client(server.url, tools=[far]).thread(tools=[other])
        twin.result(thread.run("?", tools=[near]))
        assert sorted(t["name"] for t in server.requests[0].json["tools"]) == ["f", "g"]
        assert server.requests[1].json["messages"][-1]["content"] == "near"


TYPED = """
from aguila import Client
from aguila.client import tool

@tool
def add(a: int, b: int = 2) -> str:
    return str(a + b)

@tool(confirm=False)
async def later(a: int) -> bytes:
    return bytes(a)

reveal_type(add(1))
reveal_type(add.__call__)
reveal_type(later(1))
Client("http://x", tools=[add, later])
"""


def test_a_tool_keeps_the_signature_of_its_function_for_a_type_checker(tmp_path):
    assert revealed(tmp_path, TYPED) == ["str", "(a: int, b: int = 2) -> str", "CoroutineType[Any, Any, bytes]"]
    wrong = pyright_findings(
        tmp_path, "from aguila.client import tool\n@tool\ndef add(a: int) -> int: return a\nadd('1', 2)\n"
    )
    assert [one["severity"] for one in wrong] == ["error"]
