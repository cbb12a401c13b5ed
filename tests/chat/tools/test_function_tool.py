"""One ``tool`` for clients and agents: the same object works in both."""

from __future__ import annotations

from typing import Any

import pydantic
import pytest
from agent_threads import Thread

from aguila.agent.tool_calls import call_function
from aguila.chat import FunctionTool, ToolError, tool
from aguila.chat.tools import Toolbox, content_of
from aguila.client.tools import check_tools, plan_call
from aguila.errors import EncodeError
from aguila.protocol import FunctionCall, ImagePart, TextPart, ToolCall, ToolCallResultEvent, UrlSource

pytestmark = pytest.mark.anyio


class Place(pydantic.BaseModel):
    city: str
    zip: str = pydantic.Field(default="", description="The postal code.")


@tool
def weather(place: Place, days: int = 1) -> dict[str, Any]:
    """The weather somewhere.

    Args:
        place: Where.
        days: How far ahead.
    """
    return {"city": place.city, "days": days}


@tool(needs_approval=lambda arguments: arguments["amount"] > 100)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(confirm=True)
def delete(name: str) -> str:
    """Delete a file."""
    return f"deleted {name}"


def call_of(name: str, arguments: str) -> ToolCall:
    return ToolCall(id="c", function=FunctionCall(name=name, arguments=arguments))


def test_there_is_one_tool() -> None:
    import aguila.client

    assert aguila.tool is aguila.client.tool is tool
    assert aguila.ToolError is aguila.client.ToolError is ToolError
    assert aguila.client.FunctionTool is FunctionTool


def test_a_function_is_made_a_tool_with_options_and_keeps_its_type() -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    plus: FunctionTool[[int, int], int] = tool(add, name="plus", needs_approval=True)
    assert (plus.name, plus(1, 2)) == ("plus", 3)


def test_its_schema_comes_from_the_signature_with_models_of_pydantic() -> None:
    schema = weather.declaration.parameters
    assert schema["required"] == ["place"]
    assert schema["properties"]["days"] == {"type": "integer", "description": "How far ahead.", "default": 1}
    assert schema["$defs"]["Place"]["properties"]["zip"]["description"] == "The postal code."
    assert weather.bind('{"place": {"city": "Rome"}}') == {"place": Place(city="Rome")}


async def test_the_same_object_works_in_a_client_and_an_agent() -> None:
    planned = plan_call(Toolbox([weather]), call_of("weather", '{"place": {"city": "Rome"}}'), "m")
    assert planned.problem is None
    assert planned.answer(weather(**planned.arguments)).content == '{"city":"Rome","days":1}'

    result = await call_function(weather, {"place": {"city": "Rome"}}, None)  # type: ignore[arg-type]
    assert result.content == '{"city":"Rome","days":1}'

    async def agent(run: Any) -> None:
        await run.call_tool(weather, {"place": {"city": "Rome"}})

    outcome = await Thread().run(agent)
    assert [event.content for event in outcome.of(ToolCallResultEvent)] == ['{"city":"Rome","days":1}']


def test_a_client_asks_for_a_call_that_needs_approval() -> None:
    small, large = (call_of("pay", f'{{"amount": {amount}}}') for amount in (5, 500))
    assert plan_call(Toolbox([pay]), small, "m").problem is None
    assert "consent" in str(plan_call(Toolbox([pay]), large, "m").problem)
    assert plan_call(Toolbox([pay]), large, "m", lambda name, arguments: True).confirm is not None


def test_an_agent_asks_for_a_call_of_a_tool_with_confirm() -> None:
    assert delete.needs_approval({"name": "x"})
    assert delete.may_ask
    assert not tool(confirm=False)(lambda_free).may_ask
    assert not tool(confirm=True, needs_approval=False)(lambda_free).may_ask


def lambda_free(name: str) -> str:
    """Nothing."""
    return name


def test_a_client_refuses_a_tool_that_takes_the_run() -> None:
    async def helper(task: str, run: Any) -> None: ...

    with pytest.raises(TypeError, match="has a parameter 'run'"):
        check_tools(Toolbox([helper]))


def test_an_argument_named_run_with_a_json_type_is_an_argument() -> None:
    def laps(run: int) -> int:
        return run

    made = check_tools(Toolbox([laps])).functions["laps"]
    assert not made.takes_run
    assert made.bind('{"run": 3}') == {"run": 3}


async def test_arguments_are_held_to_a_given_schema_in_an_agent_too() -> None:
    strict = tool(name="f", parameters={"type": "object", "properties": {"n": {"type": "integer"}}})(lambda n: n)
    assert "do not fit" in str((await call_function(strict, {"n": "x"}, None)).error)  # type: ignore[arg-type]
    assert (await call_function(strict, {"n": 5}, None)).content == "5"  # type: ignore[arg-type]


PICTURE = ImagePart(source=UrlSource(value="https://example.com/a.png"))


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (None, ""),
        ("text", "text"),
        ([], "[]"),
        ((1, 2), "[1,2]"),
        (PICTURE, [PICTURE]),
        (["look:", PICTURE], [TextPart(text="look:"), PICTURE]),
        (Place(city="Rome"), '{"city":"Rome","zip":""}'),
        ([Place(city="Rome")], '[{"city":"Rome","zip":""}]'),
    ],
)
def test_what_a_function_returns_becomes_the_content_of_a_result(value: Any, content: Any) -> None:
    assert content_of(value) == content


@pytest.mark.parametrize("value", [object(), float("nan"), [object()]])
def test_a_value_without_a_json_form_is_refused(value: Any) -> None:
    with pytest.raises(EncodeError):
        content_of(value)
