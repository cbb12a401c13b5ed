"""One run through client, server, agent and tools is one trace."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from opentelemetry import propagate
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes, server_attributes
from opentelemetry.trace import SpanKind, StatusCode
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings
from serving import serving
from tracing import Traces, attributes_of, parent_of
from waiting import wait_until

from aguila import App, AsyncClient, tool
from aguila.client import Client
from aguila.client.transports.asgi import ASGITransport
from aguila.errors import RunFailed
from aguila.frameworks import pydantic_ai, upstream
from aguila.frameworks.pydantic_ai.model_chat import make_chat
from aguila.protocol import TokenUsage

pytestmark = pytest.mark.anyio


def client_of(app: App) -> AsyncClient:
    return AsyncClient("http://localhost/", transport=ASGITransport(app))


async def model(messages: Any, info: Any) -> AsyncIterator[Any]:
    """Call the tool once, then answer."""
    if len(messages) == 1:
        yield {0: DeltaToolCall(name="weather", json_args='{"city": "Paris"}', tool_call_id="call-1")}
    else:
        yield "It "
        yield "rains."


def weather_agent(traces: Traces, *, asks: bool = False) -> Any:
    made = Agent(
        FunctionModel(stream_function=model),
        name="weather",
        capabilities=[Instrumentation(settings=InstrumentationSettings(tracer_provider=traces.provider))],
    )

    @made.tool_plain(requires_approval=asks)
    async def weather(city: str) -> str:
        with traces.tracer.start_as_current_span("look up"):
            return f"rain in {city}"

    return pydantic_ai.agent(made)


WEATHER = {
    "chat function::model": {},
    "execute_tool weather": {"look up": {}},
}


async def test_a_run_through_client_server_model_and_tools_is_one_tree(traces: Traces) -> None:
    with serving(App(weather_agent(traces), store=":memory:")) as server:
        async with AsyncClient(server.url) as client:
            with traces.tracer.start_as_current_span("checkout"):
                result = await client.thread("thread").run("Weather?", run_id="run")
    assert result.text == "It rains."
    assert traces.tree() == {
        "checkout": {"invoke_agent": {"invoke_agent default": {"invoke_agent weather": WEATHER}}},
    }
    assert len({span.context.trace_id for span in traces.ended}) == 1


@pytest.mark.parametrize("has_contents", [True, False])
async def test_the_model_and_the_tools_of_serve_model_have_spans(
    traces: Traces, monkeypatch: pytest.MonkeyPatch, has_contents: bool
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", str(has_contents).lower())
    tools = ModuleType("tools")
    exec("def count_eagles(park: str) -> str:\n    return 'eleven'", vars(tools))
    await ran(make_chat("test", tools=[tools]))
    (model,) = traces.tree()["invoke_agent"]["invoke_agent default"].values()
    assert list(model) == ["chat test", "execute_tool count_eagles"]
    assert ("eleven" in "".join(span.to_json() for span in traces.ended)) is has_contents


async def test_a_run_that_answers_a_question_is_linked_to_the_run_that_asked(traces: Traces) -> None:
    with serving(App(weather_agent(traces, asks=True), store=":memory:")) as server:
        async with AsyncClient(server.url) as client:
            thread = client.thread("thread")
            await thread.run("Weather?")
            await thread.resume({thread.interrupts[0].id: {"approved": True}})
    asked, answered = [span for span in traces.ended if span.name == "invoke_agent default"]
    assert attributes_of(asked)["aguila.outcome"] == "interrupt"
    assert attributes_of(answered)["aguila.outcome"] == "success"
    assert [link.context.span_id for link in answered.links] == [asked.context.span_id]
    assert answered.context.trace_id != asked.context.trace_id
    assert [span.name for span in traces.ended if parent_of(span) == answered.context.span_id] == [
        "invoke_agent weather"
    ]


async def ran(agent: Any, **options: Any) -> Any:
    """Run an agent through a client in this process, and return the result."""
    async with App(agent, store=":memory:", **options) as app, client_of(app) as client:
        return await client.thread("thread").run("Go.", run_id="run")


# Names


DOCUMENT = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text()
KNOWN = {
    value
    for module in (gen_ai_attributes, error_attributes, server_attributes)
    for value in vars(module).values()
    if isinstance(value, str)
}


async def spending(run: Any) -> None:
    run.add_usage(TokenUsage(provider="openai", model="a", input_tokens=3, output_tokens=2, cached_input_tokens=1))
    run.add_usage(
        TokenUsage(provider="openai", model="b", input_tokens=4, reasoning_tokens=5, cache_write_input_tokens=6)
    )
    await run.call_tool(double, {"number": 4})


@tool
async def double(number: int) -> int:
    """Double a number."""
    return 2 * number


async def test_every_attribute_has_a_name_of_the_conventions_and_is_documented(
    traces: Traces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    await ran(spending)
    with pytest.raises(RunFailed):
        await ran(failing)
    names = {name for span in traces.ended for name in attributes_of(span)}
    assert {name for name in names if not name.startswith("aguila.")} <= KNOWN
    assert {name for name in names if name.startswith("aguila.")} == {"aguila.run.id", "aguila.outcome", "aguila.scope"}
    assert {"error.type", "gen_ai.agent.id", "gen_ai.tool.call.result"} <= names
    assert {name for name in names if f"`{name.removeprefix('gen_ai.usage.')}`" not in DOCUMENT} == set()


async def test_the_span_of_a_run_says_what_ran_how_it_ended_and_what_it_used(traces: Traces) -> None:
    await ran({"helper": spending})
    span = traces.named("invoke_agent helper")
    assert span.kind is SpanKind.INTERNAL
    attributes = attributes_of(span)
    assert len(attributes.pop("aguila.scope")) == 16
    assert attributes == {
        "gen_ai.operation.name": gen_ai_attributes.GenAiOperationNameValues.INVOKE_AGENT.value,
        "gen_ai.provider.name": "aguila",
        "gen_ai.agent.id": "helper",
        "gen_ai.agent.name": "helper",
        "gen_ai.conversation.id": "thread",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 1,
        "gen_ai.usage.cache_creation.input_tokens": 6,
        "gen_ai.usage.reasoning.output_tokens": 5,
        "aguila.run.id": "run",
        "aguila.outcome": "success",
    }


async def test_the_span_of_the_client_says_where_the_agent_is(traces: Traces) -> None:
    await ran(spending)
    span = traces.named("invoke_agent")
    assert span.kind is SpanKind.CLIENT
    attributes = attributes_of(span)
    assert (attributes["server.address"], attributes["server.port"]) == ("localhost", 80)
    assert (attributes["aguila.outcome"], attributes["gen_ai.usage.input_tokens"]) == ("success", 7)


async def test_the_span_of_an_upstream_names_the_agent_of_its_url(traces: Traces) -> None:
    with serving(App({"helper": spending}, store=":memory:")) as server:
        await ran(upstream(f"{server.url}/agents/helper"))
    found = [span for span in traces.ended if span.name == "invoke_agent helper"]
    assert [span.kind for span in found] == [SpanKind.INTERNAL, SpanKind.CLIENT]
    assert [attributes_of(span)["gen_ai.agent.name"] for span in found] == ["helper", "helper"]


async def test_a_scope_is_hashed_unless_it_is_asked_for(traces: Traces, monkeypatch: pytest.MonkeyPatch) -> None:
    await ran(spending, authenticate=lambda request: "ada@example.com")
    assert "ada" not in attributes_of(traces.named("invoke_agent default"))["aguila.scope"]
    monkeypatch.setenv("AGUILA_TRACE_SCOPE", "plain")
    await ran(spending, authenticate=lambda request: "ada@example.com")
    assert attributes_of(traces.named("invoke_agent default"))["aguila.scope"] == "ada@example.com"


# Outcomes


async def failing(run: Any) -> None:
    raise ValueError("the password is hunter2")


async def refusing(run: Any) -> None:
    raise RunFailed("Too expensive.", code="over_budget")


async def asking(run: Any) -> None:
    await run.ask("Sure?")


@pytest.mark.parametrize(("agent", "kind"), [(failing, "ValueError"), (refusing, "over_budget")])
async def test_a_run_that_fails_has_the_type_of_its_error_and_not_its_text(
    traces: Traces, agent: Any, kind: str
) -> None:
    with pytest.raises(RunFailed):
        await ran(agent)
    span = traces.named("invoke_agent default")
    assert (attributes_of(span)["error.type"], span.status.status_code) == (kind, StatusCode.ERROR)
    assert attributes_of(span)["aguila.outcome"] == "error"
    assert "hunter2" not in span.to_json()
    assert traces.named("invoke_agent").status.status_code is StatusCode.ERROR


async def test_a_run_that_asks_is_no_error(traces: Traces) -> None:
    await ran(asking)
    assert attributes_of(traces.named("invoke_agent default"))["aguila.outcome"] == "interrupt"
    assert all(span.status.status_code is StatusCode.UNSET for span in traces.ended)


# Tools


async def test_a_tool_is_a_span_with_its_call(traces: Traces) -> None:
    await ran(spending)
    span = traces.named("execute_tool double")
    attributes = attributes_of(span)
    assert attributes.pop("gen_ai.tool.call.id")
    assert attributes == {
        "gen_ai.operation.name": gen_ai_attributes.GenAiOperationNameValues.EXECUTE_TOOL.value,
        "gen_ai.tool.name": "double",
        "gen_ai.tool.type": "function",
    }
    assert parent_of(span) == traces.named("invoke_agent default").context.span_id


async def test_a_tool_that_fails_is_an_error_of_its_span_only(traces: Traces) -> None:
    @tool
    def breaking() -> None:
        """Break."""
        raise ValueError("no")

    async def agent(run: Any) -> None:
        await run.call_tool(breaking, {})

    await ran(agent)
    assert attributes_of(traces.named("execute_tool breaking"))["error.type"] == "tool_error"
    assert traces.named("invoke_agent default").status.status_code is StatusCode.UNSET


async def test_a_tool_of_the_client_is_a_span_of_the_client(traces: Traces) -> None:
    @tool
    def locate() -> str:
        """Say where the user is."""
        return "Paris"

    async def agent(run: Any) -> None:
        if run.messages[-1].role == "user":
            await run.tool_call("locate")

    async with App(agent, store=":memory:") as app, client_of(app) as client:
        with traces.tracer.start_as_current_span("page"):
            await client.thread(tools=[locate]).run("Go.")
    span = traces.named("execute_tool locate")
    assert parent_of(span) == traces.named("page").context.span_id


class Place(BaseModel):
    """A value that ``encode`` does not take."""

    city: str


async def test_a_tool_of_the_client_is_recorded_with_the_arguments_that_were_sent(
    traces: Traces, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool
    def locate(place: Place) -> str:
        """Say where a place is."""
        return f"here: {place.city}"

    async def agent(run: Any) -> None:
        if run.messages[-1].role == "user":
            await run.tool_call("locate", {"place": {"city": "Rome"}})

    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    async with App(agent, store=":memory:") as app, client_of(app) as client:
        await client.thread(tools=[locate]).run("Go.")
    attributes = attributes_of(traces.named("execute_tool locate"))
    assert json.loads(attributes["gen_ai.tool.call.arguments"]) == {"place": {"city": "Rome"}}
    assert attributes["gen_ai.tool.call.result"] == "here: Rome"


# Contexts


async def test_spans_of_a_generator_that_streams_are_children_of_the_run(traces: Traces) -> None:
    async def agent(run: Any) -> AsyncIterator[str]:
        with run.span("plan", steps=2):
            yield "one "
            with traces.tracer.start_as_current_span("model"):
                yield "two "
                await asyncio.sleep(0)
            yield "three "
        with traces.tracer.start_as_current_span("after"):
            yield "four"

    await ran(agent)
    expected = {"plan": {"model": {}}, "after": {}}
    assert traces.tree() == {"invoke_agent": {"invoke_agent default": expected}}
    assert attributes_of(traces.named("plan")) == {"steps": 2}


async def test_two_runs_that_stream_at_once_keep_their_spans_apart(traces: Traces) -> None:
    both = asyncio.Barrier(2)

    async def agent(run: Any) -> AsyncIterator[str]:
        with run.span(f"plan {run.run_id}"):
            yield "one"
            await both.wait()
            with run.span(f"act {run.run_id}"):
                yield "two"

    async with App(agent, store=":memory:") as app, client_of(app) as client:
        await asyncio.gather(*(client.thread(name).run("Go.", run_id=name) for name in ("a", "b")))
    for name in ("a", "b"):
        acted = traces.named(f"act {name}")
        planned = traces.named(f"plan {name}")
        invoked = next(span for span in traces.ended if span.context.span_id == parent_of(planned))
        assert parent_of(acted) == planned.context.span_id
        assert attributes_of(invoked)["aguila.run.id"] == name


async def test_spans_of_a_cancelled_generator_end_with_the_run(
    traces: Traces, caplog: pytest.LogCaptureFixture
) -> None:
    has_begun = asyncio.Event()

    async def agent(run: Any) -> AsyncIterator[str]:
        with run.span("endless"):
            yield "one"
            has_begun.set()
            await asyncio.Event().wait()

    async with App(agent, store=":memory:") as app, client_of(app) as client:
        thread = client.thread("thread")
        running = asyncio.ensure_future(thread.run("Go.", run_id="run"))
        await has_begun.wait()
        await client.thread("thread").cancel("run")
        await running
    assert traces.tree() == {"invoke_agent": {"invoke_agent default": {"endless": {}}}}
    assert attributes_of(traces.named("invoke_agent default"))["aguila.outcome"] == "cancelled"
    assert "Failed to detach context" not in caplog.text


async def test_a_span_ends_if_its_generator_is_left_and_closed_in_another_task(
    traces: Traces, caplog: pytest.LogCaptureFixture
) -> None:
    async def agent(run: Any) -> AsyncIterator[str]:
        async def search() -> AsyncIterator[str]:
            with run.span("search"):
                yield "one"
                yield "two"

        found = search()
        yield await anext(found)
        await asyncio.create_task(found.aclose())  # what Python does with a generator that a loop has left

    await ran(agent)
    assert parent_of(traces.named("search")) == traces.named("invoke_agent default").context.span_id
    assert "detach" not in caplog.text


async def test_spans_of_branches_are_children_of_the_run(traces: Traces) -> None:
    async def work(run: Any, name: str) -> None:
        with run.span(f"book {name}"):
            await asyncio.sleep(0)
            await run.call_tool(double, {"number": 1})

    async def agent(run: Any) -> None:
        async with asyncio.TaskGroup() as group:
            for name in ("flight", "hotel"):
                group.create_task(run.branch(name, work, run, name))

    await ran(agent)
    expected = {f"book {name}": {"execute_tool double": {}} for name in ("flight", "hotel")}
    assert traces.tree() == {"invoke_agent": {"invoke_agent default": expected}}


async def test_spans_of_an_agent_in_a_thread_are_children_of_the_run(traces: Traces) -> None:
    @tool
    def halve(number: int) -> float:
        """Halve a number."""
        return number / 2

    def agent(run: Any) -> Iterator[str]:
        with run.span("outer"):
            yield "one "
            run.call_tool(halve, {"number": 3})
            run.call_tool(double, {"number": 3})
        with traces.tracer.start_as_current_span("next"):
            yield "two"

    await ran(agent)
    expected = {"outer": {"execute_tool halve": {}, "execute_tool double": {}}, "next": {}}
    assert traces.tree() == {"invoke_agent": {"invoke_agent default": expected}}


async def test_spans_of_the_threads_of_an_agent_are_children_of_the_run(traces: Traces) -> None:
    def work(run: Any) -> None:
        with run.span("work"):
            run.call_tool(double, {"number": 1})

    def agent(run: Any) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(copy_context().run, run.branch, "work", work, run).result()

    await ran(agent)
    assert traces.tree() == {"invoke_agent": {"invoke_agent default": {"work": {"execute_tool double": {}}}}}


async def test_a_run_of_an_upstream_is_a_child_of_the_run(traces: Traces) -> None:
    async def agent(run: Any) -> AsyncIterator[str]:
        with run.span("work"):
            yield "Hello"

    with serving(App({"inner": agent}, store=":memory:")) as server:
        await ran({"gateway": upstream(server.url)})
    inner = {"invoke_agent": {"invoke_agent inner": {"work": {}}}}
    assert traces.tree() == {"invoke_agent": {"invoke_agent gateway": inner}}
    kinds = [span.kind for span in sorted(traces.ended, key=lambda span: span.start_time or 0)]
    assert kinds == [SpanKind.CLIENT, SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.INTERNAL, SpanKind.INTERNAL]


async def test_the_blocking_client_sends_its_trace_context(traces: Traces) -> None:
    with (
        serving(App(spending, store=":memory:")) as server,
        Client(server.url) as client,
        traces.tracer.start_as_current_span("script"),
    ):
        client.thread().run("Go.").result()
    expected = {"invoke_agent": {"invoke_agent default": {"execute_tool double": {}}}}
    assert traces.tree() == {"script": expected}


# The request


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


HEADERS = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}


def test_the_parent_of_a_run_is_the_traceparent_of_its_request(traces: Traces) -> None:
    with serving(App(spending, store=":memory:")) as server, server.run(headers=HEADERS) as stream:
        started = stream.rest()[0]
    span = traces.named("invoke_agent default")
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{parent_of(span):016x}" == "00f067aa0ba902b7"
    traceparent = f"00-{TRACE}-{span.context.span_id:016x}-01"
    assert started["metadata"] == {"aguila": {"traceparent": traceparent}}


def test_the_parent_of_a_run_is_the_span_of_an_instrumented_server(traces: Traces) -> None:
    app = App(spending, store=":memory:")

    async def instrumented(scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope.get("headers", ())}
        with traces.tracer.start_as_current_span("POST /", context=propagate.extract(headers)):
            await app(scope, receive, send)

    with serving(instrumented, lifespan="off") as server, server.run(headers=HEADERS) as stream:
        stream.rest()
        server.call(lambda: asyncio.ensure_future(app.close()))
        wait_until(lambda: any(span.name == "invoke_agent default" for span in traces.ended))
    assert parent_of(traces.named("invoke_agent default")) == traces.named("POST /").context.span_id


@pytest.mark.parametrize("sent", ["", "00-0-0-00", "garbage", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_malformed_traceparent_begins_a_trace(traces: Traces, sent: str) -> None:
    with serving(App(spending, store=":memory:")) as server, server.run(headers={"traceparent": sent}) as stream:
        assert stream.rest()[-1]["type"] == "RUN_FINISHED"
    assert parent_of(traces.named("invoke_agent default")) is None


@pytest.mark.usefixtures("traces")
def test_baggage_of_a_client_is_not_passed_on() -> None:
    passed: list[dict[str, str]] = []

    async def remember(run: Any) -> str:
        passed.append({})
        propagate.inject(passed[0])
        return "done"

    headers = {**HEADERS, "baggage": "user=admin"}
    with serving(App(remember, store=":memory:")) as server, server.run(headers=headers) as stream:
        stream.rest()
    (found,) = passed
    assert TRACE in found["traceparent"]
    assert "baggage" not in found


async def test_nothing_is_traced_without_a_provider() -> None:
    async with App(spending, store=":memory:") as app, client_of(app) as client:
        async for event in client.thread().run("Go."):
            assert getattr(event, "metadata", None) is None


# Contents


async def test_contents_are_recorded_only_if_that_is_asked_for(traces: Traces, monkeypatch: pytest.MonkeyPatch) -> None:
    await ran(spending)
    assert "gen_ai.tool.call.arguments" not in attributes_of(traces.named("execute_tool double"))
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    await ran(spending)
    attributes = attributes_of(traces.named("execute_tool double"))
    assert (attributes["gen_ai.tool.call.arguments"], attributes["gen_ai.tool.call.result"]) == ('{"number":4}', "8")
    attributes = attributes_of(traces.named("invoke_agent default"))
    assert json.loads(attributes["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "Go."}]}
    ]
    asked, answered = json.loads(attributes["gen_ai.output.messages"])
    ((call,), (response,)) = asked["parts"], answered["parts"]
    assert (asked["role"], call["type"], call["name"], call["arguments"]) == (
        "assistant",
        "tool_call",
        "double",
        '{"number":4}',
    )
    assert (answered["role"], response["type"], response["id"]) == ("tool", "tool_call_response", call["id"])
    assert response["response"] == "8"
