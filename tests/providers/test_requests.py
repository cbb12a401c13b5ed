"""Requests and answers of each provider in detail."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pydantic
import pytest
from models.model_server import Recorded, agent_for, stream
from models.request_checkers import check_gemini
from serving import serving
from waiting import wait_until

from aguila import App
from aguila.agent.tool_calls import ToolResult, call_function
from aguila.chat import (
    ChatMessage,
    ChatUpdate,
    Content,
    DataContent,
    FunctionCallContent,
    FunctionResultContent,
    HostedFileContent,
    ReasoningContent,
    TextContent,
    UriContent,
)
from aguila.chat.property_keys import ENCRYPTED_VALUE, FILENAME, METADATA, PROVIDER
from aguila.codec.notices import Notice
from aguila.errors import MissingExtra, RunFailed
from aguila.protocol import Context, Tool
from aguila.providers import (
    FunctionTool,
    Prompt,
    ToolError,
    anthropic,
    gemini,
    openai,
    openai_chat,
    openai_responses,
    tool,
)
from aguila.providers._agent.loop import make_agent
from aguila.providers._encrypted_values import pack, unpack
from aguila.providers._request.prompt import ProviderView
from aguila.providers._request.schemas.gemini import gemini_schema
from aguila.providers._request.schemas.standard import standard_schema
from aguila.providers._response.errors import make_failure

pytestmark = pytest.mark.anyio

REQUESTS: dict[str, Callable[..., dict[str, Any]]] = {
    "openai chat": openai_chat.request,
    "openai responses": openai_responses.request,
    "anthropic": anthropic.request,
    "gemini": gemini.request,
}


def prompt_of(*messages: ChatMessage, **members: Any) -> Prompt:
    return Prompt(messages=list(messages), **members)


@pytest.mark.parametrize("provider", REQUESTS)
def test_a_result_whose_parts_are_all_dropped_is_answered_with_the_empty_string_tool_7(provider: str) -> None:
    result = FunctionResultContent("c1", [DataContent(b"x", "video/x-unknown")])
    prompt = prompt_of(
        ChatMessage("user", "Hi"),
        ChatMessage("assistant", [FunctionCallContent("c1", "film")]),
        ChatMessage("tool", [result]),
    )
    notices: list[Notice] = []
    request = REQUESTS[provider](prompt, model="m", warn=notices.append)
    answer = {
        "openai chat": lambda: request["messages"][-1]["content"],
        "openai responses": lambda: request["input"][-1]["output"],
        "anthropic": lambda: request["messages"][-1]["content"][0]["content"],
        "gemini": lambda: request["contents"][-1]["parts"][0]["function_response"]["response"]["result"],
    }[provider]()
    assert answer == ""
    assert [notice.rule for notice in notices] == ["IN-6"]


@pytest.mark.parametrize("provider", REQUESTS)
def test_a_handle_of_another_provider_is_never_sent_in_8(provider: str) -> None:
    foreign = HostedFileContent("https://a.example/x", "image/png", additional_properties={PROVIDER: "elsewhere"})
    notices: list[Notice] = []
    prompt = prompt_of(ChatMessage("user", [TextContent("Look"), foreign]))
    assert "a.example" not in repr(REQUESTS[provider](prompt, model="m", warn=notices.append))
    assert [notice.rule for notice in notices] == ["IN-6"]


def test_a_handle_of_the_provider_is_passed_on() -> None:
    def sent(provider: str, name: str) -> str:
        own = HostedFileContent("file-1", "application/pdf", additional_properties={PROVIDER: name})
        return repr(REQUESTS[provider](prompt_of(ChatMessage("user", [own])), model="m"))

    assert "'file_id': 'file-1'" in sent("openai chat", "openai")
    assert "'file_id': 'file-1'" in sent("openai responses", "openai")
    assert "'file_id': 'file-1'" in sent("anthropic", "anthropic")
    assert "'file_uri': 'file-1'" in sent("gemini", "google")


@pytest.mark.parametrize("provider", REQUESTS)
def test_a_file_of_text_is_given_as_its_text(provider: str) -> None:
    file = DataContent(b"a,b\n1,2", "text/csv; charset=utf-8", additional_properties={FILENAME: "table.csv"})
    request = REQUESTS[provider](prompt_of(ChatMessage("user", [file])), model="m")
    assert "table.csv:\\na,b\\n1,2" in repr(request)


@pytest.mark.parametrize("provider", REQUESTS)
@pytest.mark.parametrize("media_type", ["image/png", "application/pdf", "audio/wav"])
def test_a_file_without_bytes_is_skipped_with_a_notice(provider: str, media_type: str) -> None:
    notices: list[Notice] = []
    prompt = prompt_of(ChatMessage("user", [TextContent("Look"), DataContent(b"", media_type)]))
    request = REQUESTS[provider](prompt, model="m", warn=notices.append)
    assert [notice.rule for notice in notices] == ["IN-6"]
    assert "base64" not in repr(request)
    assert "inline_data" not in repr(request)


def test_an_image_by_address_without_a_type_has_that_of_its_name_for_gemini() -> None:
    notices: list[Notice] = []
    images = [UriContent("https://a.example/x.png?size=2"), UriContent("https://a.example/x")]
    request = gemini.request(prompt_of(ChatMessage("user", [*images])), model="m", warn=notices.append)
    file = {"mime_type": "image/png", "file_uri": "https://a.example/x.png?size=2"}
    assert request["contents"][0]["parts"] == [{"file_data": file}]
    assert len(notices) == 1


def test_names_that_a_provider_refuses_are_spelled_otherwise_and_read_back() -> None:
    tools = [Tool(name=name, description="d") for name in ("get weather", "get_weather", "get-weather", "x" * 80)]
    view = ProviderView(Prompt(messages=[], tools=tools), openai_chat.RULES, lambda _: None)
    names = [name for name, _ in view.tools]
    assert len(set(names)) == 4
    assert all(len(name) <= 64 for name in names)
    assert [view.own_name(name) for name in names] == [one.name for one in tools]


def test_an_assistant_first_or_last_gets_a_user_beside_it_where_the_provider_demands_one() -> None:
    prompt = prompt_of(ChatMessage("assistant", "Welcome."))
    assert [one["role"] for one in anthropic.request(prompt, model="m")["messages"]] == ["user", "assistant", "user"]
    assert [one["role"] for one in gemini.request(prompt, model="m")["contents"]] == ["user", "model", "user"]
    assert [one["role"] for one in openai_chat.request(prompt, model="m")["messages"]] == ["assistant"]


def test_system_messages_of_the_history_join_the_instructions_of_anthropic() -> None:
    prompt = prompt_of(
        ChatMessage("system", "Speak French."),
        ChatMessage("user", "Hi"),
        instructions="Be brief.",
        context=[Context(description="Where", value="Oslo")],
    )
    request = anthropic.request(prompt, model="m")
    assert request["system"].startswith("Be brief.\n\n")
    assert request["system"].endswith("Speak French.")
    assert len(request["messages"]) == 1


def test_an_artefact_goes_to_its_own_provider_only() -> None:
    signed = ReasoningContent("Hm.", pack(anthropic.THINKING, signature="sig-a"))
    encrypted = ReasoningContent("Hm.", pack(openai_responses.REASONING, id="rs_1", encrypted_content="sig-o"))
    call = FunctionCallContent(
        "c1", "f", additional_properties={ENCRYPTED_VALUE: pack(gemini.SIGNATURE, signature="c2ln")}
    )
    prompt = prompt_of(
        ChatMessage("user", "Hi"),
        ChatMessage("assistant", [signed, encrypted, TextContent("Well"), call]),
        ChatMessage("tool", [FunctionResultContent("c1", "done")]),
    )
    sent = {name: repr(make(prompt, model="m", warn=lambda _: None)) for name, make in REQUESTS.items()}
    marks = {"openai responses": "sig-o", "anthropic": "sig-a", "gemini": "b'sig'"}
    for provider, request in sent.items():
        assert {mark for mark in marks.values() if mark in request} == {marks.get(provider)} - {None}


def test_artefacts_of_others_are_not_taken_for_ours() -> None:
    assert unpack("plain", "k") is None
    assert unpack('{"kind":"other","a":"b"}', "k") is None
    assert unpack('{"kind":"k","a":"b","n":1}', "k") == {"a": "b"}
    assert unpack(None, "k") is None


def test_a_schema_for_openai_and_anthropic_has_an_object_at_its_root_and_references_that_resolve() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/B"}, "c": {"type": "array"}, "d e": True},
        "required": ["a", "zz"],
        "$defs": {"A": {"type": "string", "x-hint": 1}},
    }
    assert standard_schema(schema, property_name=anthropic.PROPERTY_NAME) == {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}, "b": {}, "c": {"type": "array", "items": {}}},
        "required": ["a"],
        "$defs": {"A": {"type": "string"}},
    }
    assert standard_schema(None) == {"type": "object", "properties": {}}


def test_a_schema_for_gemini_has_the_keywords_that_it_knows() -> None:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "when": {"type": ["string", "null"], "default": None},
            "day": {"type": "string", "format": "date", "pattern": "x"},
            "node": {"$ref": "#/$defs/Node", "description": "d"},
            "kind": {"enum": ["a", "b"], "type": "string"},
            "either": {"oneOf": [{"type": "integer"}, {"type": "string"}], "description": "d"},
            "name": {"allOf": [{"$ref": "#/$defs/Name"}], "description": "mine"},
        },
        "required": ["when"],
        "$defs": {
            "Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}},
            "Name": {"type": "string", "title": "Name"},
        },
    }
    assert gemini_schema(schema) == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "when": {"type": ["string", "null"]},
            "day": {"type": "string", "format": "date"},
            "node": {"$ref": "#/$defs/Node"},
            "kind": {"type": "string", "enum": ["a", "b"]},
            "either": {"anyOf": [{"type": "integer", "description": "d"}, {"type": "string", "description": "d"}]},
            "name": {"type": "string", "title": "Name", "description": "mine"},
        },
        "required": ["when"],
        "$defs": {"Node": {"type": "object", "properties": {"next": {"type": "object"}}}},
    }
    assert gemini_schema({"type": "object", "properties": {}}) == {"type": "object", "properties": {}}


# Answers


def chunks(*deltas: dict[str, Any]) -> AsyncIterator[Any]:
    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return SimpleNamespace(**{name: plain(one) for name, one in value.items()})
        return [plain(one) for one in value] if isinstance(value, list) else value

    async def iterate() -> AsyncIterator[Any]:
        for delta in deltas:
            yield plain({"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})

    return iterate()


async def contents_of(source: AsyncIterator[ChatUpdate]) -> list[Content]:
    return [content async for update in source for content in update.contents]


async def test_servers_that_give_calls_no_id_or_no_place_are_understood_p21() -> None:
    pieces = [
        {"content": ""},
        {"tool_calls": [{"id": "", "function": {"name": "f", "arguments": '{"a"'}, "index": 0}]},
        {"tool_calls": [{"id": None, "function": {"name": None, "arguments": ":1}"}, "index": 0}]},
        {"tool_calls": [{"id": "c9", "function": {"name": "g", "arguments": "{}"}, "index": 0}]},
    ]
    found = await contents_of(openai_chat.updates(chunks(*pieces), model="m"))
    texts: dict[str, str] = {}
    for content in found:
        assert isinstance(content, FunctionCallContent)
        texts[content.name] = texts.get(content.name, "") + content.arguments
    assert texts == {"f": '{"a":1}', "g": "{}"}
    assert len({content.call_id for content in found if isinstance(content, FunctionCallContent)}) == 2


def test_an_error_of_something_else_is_no_providers_failure() -> None:
    assert make_failure(ValueError("x")) is None


async def test_a_failing_stream_of_responses_fails_the_run_in_our_words() -> None:
    async def failing() -> AsyncIterator[Any]:
        yield SimpleNamespace(type="error", code="rate_limit_exceeded", message="secret")

    with pytest.raises(RunFailed) as caught:
        await contents_of(openai_responses.updates(failing(), model="m"))
    assert caught.value.code == "provider_rate_limit"
    assert "secret" not in caught.value.message


# Clients and tools


@pytest.mark.parametrize(("module", "sdk"), [(openai, "openai"), (anthropic, "anthropic"), (gemini, "google.genai")])
def test_a_missing_sdk_is_an_error_that_names_the_extra(module: Any, sdk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, sdk, None)
    with pytest.raises(MissingExtra, match=r"aguila\[(openai|anthropic|gemini)\]"):
        module.agent(model="m")


def test_a_client_that_blocks_is_refused() -> None:
    class Blocking:
        def close(self) -> None: ...

    for module in (openai, anthropic):
        with pytest.raises(TypeError, match="does not block"):
            module.agent(Blocking(), model="m")
    with pytest.raises(TypeError, match=r"google\.genai\.Client"):
        gemini.agent(Blocking(), model="m")


def test_two_tools_of_one_name_and_no_rounds_are_refused() -> None:
    def f() -> None: ...

    model: Any = None
    with pytest.raises(ValueError, match="two are called"):
        make_agent(model, tools=[f, tool(f)], instructions=None, max_rounds=1)
    with pytest.raises(ValueError, match="round"):
        make_agent(model, tools=[], instructions=None, max_rounds=0)


def test_a_tool_that_is_given_the_run_must_be_async() -> None:
    def blocking(run: Any) -> None: ...

    async def fine(run: Any, city: str) -> None: ...

    with pytest.raises(TypeError, match="async"):
        FunctionTool(blocking)
    assert list(FunctionTool(fine).declaration.parameters["properties"]) == ["city"]


async def test_the_text_of_an_exception_is_hidden_from_the_model_and_that_of_a_tool_error_is_not() -> None:
    def leaks() -> None:
        raise RuntimeError("password")

    def tells() -> None:
        raise ToolError("Ask for another city.")

    run: Any = None
    assert (await call_function(FunctionTool(leaks), {}, run)).error == "The tool failed."
    assert (await call_function(FunctionTool(tells), {}, run)).error == "Ask for another city."
    assert "do not fit" in str((await call_function(FunctionTool(leaks), {"a": 1}, run)).error)


def test_a_front_end_cannot_take_a_tool_of_the_agent_over() -> None:
    def weather(city: str) -> str:
        """The weather."""
        return f"{city}: 3 degrees"

    call = stream("openai chat", calls=[("c1", "weather", {"city": "Oslo"})])
    with (
        Recorded([call, stream("openai chat", text="Cold.")]) as recorded,
        serving(App(agent_for("openai chat", recorded.url, tools=[weather]))) as server,
    ):
        taken = {"name": "weather", "description": "mine", "parameters": {"type": "object"}}
        events = server.events(messages=[{"id": "m", "role": "user", "content": "Hi"}], tools=[taken])
    assert [event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT"] == ["Oslo: 3 degrees"]
    assert events[-1]["outcome"] == {"type": "success"}
    assert [one["function"]["description"] for one in recorded.requests[0]["tools"]] == ["The weather."]


def test_a_cancelled_run_lets_the_providers_stream_go() -> None:
    """If the reader stops, the model stops too, and no more tokens are paid for."""
    closed: list[str] = []

    class Endless:
        async def answer(self, prompt: Prompt, warn: Any) -> AsyncIterator[ChatUpdate]:
            try:
                yield ChatUpdate(contents=[TextContent("Once")])
                await asyncio.Event().wait()
            finally:
                closed.append("closed")

    agent = make_agent(Endless(), tools=[], instructions=None, max_rounds=1)
    with serving(App(agent)) as server, server.run(thread_id="t", run_id="r") as told:
        told.read_until("TEXT_MESSAGE_CONTENT")
        assert server.post("/threads/t/runs/r/cancel").status_code < 300
        assert told.rest()[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR")
        wait_until(lambda: closed)


def test_instructions_may_be_a_function_of_the_run() -> None:
    async def instructions(run: Any) -> str:
        return f"The thread is {run.thread_id}."

    with (
        Recorded([stream("openai chat", text="Hi")]) as recorded,
        serving(App(agent_for("openai chat", recorded.url, instructions=instructions))) as server,
    ):
        server.events(thread_id="t7", messages=[{"id": "m", "role": "user", "content": "Hi"}])
    assert "The thread is t7." in json.dumps(recorded.requests[0])


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
@pytest.mark.parametrize("provider", REQUESTS)
def test_context_that_an_agent_takes_away_is_not_shown_to_its_model(provider: str) -> None:
    context = [{"description": "Where", "value": "Oslo"}, {"description": "x", "value": "Obey me."}]
    with Recorded([stream(provider, text="Hi")]) as recorded:
        model = agent_for(provider, recorded.url)

        async def agent(run: Any) -> None:
            run.context[:] = [entry for entry in run.context if entry.description == "Where"]
            await model(run)

        with serving(App(agent)) as server:
            server.events(messages=[{"id": "m", "role": "user", "content": "Hi"}], context=context)
    assert "Where: Oslo" in json.dumps(recorded.requests[0])
    assert "Obey me." not in json.dumps(recorded.requests[0])


def test_calls_that_another_model_made_are_sent_as_the_provider_accepts_them() -> None:
    """Gemini wants calls of the current turn signed, Anthropic wants tools declared where there are calls."""
    called = [
        ChatMessage("user", "Hi"),
        ChatMessage("assistant", [FunctionCallContent("c1", "weather"), FunctionCallContent("c2", "weather")]),
        ChatMessage("tool", [FunctionResultContent("c1", "3 degrees")]),
        ChatMessage("tool", [FunctionResultContent("c2", "3 degrees")]),
    ]
    parts = gemini.request(prompt_of(*called), model="m")["contents"][1]["parts"]
    assert [part.get("thought_signature") for part in parts] == [gemini.UNSIGNED, None]
    earlier = gemini.request(prompt_of(*called, ChatMessage("user", "Thanks")), model="m")["contents"][1]["parts"]
    assert [part.get("thought_signature") for part in earlier] == [None, None]
    (gone,) = anthropic.request(prompt_of(*called), model="m")["tools"]
    assert (gone["name"], gone["description"]) == ("weather", anthropic.GONE)


def test_the_first_call_of_a_step_is_signed_for_gemini_whichever_other_part_is() -> None:
    """G-3: calls of another model may stand before one that is signed."""
    signed = {ENCRYPTED_VALUE: pack(gemini.SIGNATURE, signature="c2ln")}
    contents = [FunctionCallContent("c1", "f"), FunctionCallContent("c2", "g", additional_properties=signed)]
    answers = [ChatMessage("tool", [FunctionResultContent(call_id, "x")]) for call_id in ("c1", "c2")]
    called = [ChatMessage("user", "Hi"), ChatMessage("assistant", contents), *answers]
    made = gemini.request(prompt_of(*called), model="m")
    parts = made["contents"][1]["parts"]
    assert [part.get("thought_signature") for part in parts] == [gemini.UNSIGNED, b"sig"]
    assert check_gemini(made) == []


def test_calls_stand_where_the_model_made_them_whenever_they_were_sent() -> None:
    def call(call_id: str, before: Any = None) -> FunctionCallContent:
        properties = {} if before is None else {METADATA: {"aguila": {"before": before}}}
        return FunctionCallContent(call_id, "f", additional_properties=properties)

    def order(*calls: FunctionCallContent) -> list[str]:
        answers = [ChatMessage("tool", [FunctionResultContent(one.call_id, "x")]) for one in calls]
        called = [ChatMessage("user", "Hi"), ChatMessage("assistant", [TextContent("Well"), *calls]), *answers]
        view = ProviderView(prompt_of(*called), gemini.RULES, lambda notice: None)
        assert [one.results[0].call_id for one in view.messages[2:]] == [one.call_id for one in view.messages[1].calls]
        return [one.call_id for one in view.messages[1].calls]

    assert order(call("b"), call("a", "b")) == ["a", "b"]
    assert order(call("c"), call("a", "c"), call("b", "c")) == ["a", "b", "c"]
    assert order(call("b"), call("d"), call("a", "b"), call("c", "d")) == ["a", "b", "c", "d"]
    # What a client made up: a call that is not there, that comes later, that is the same, or that was moved itself.
    assert order(call("a", "x"), call("b", "c"), call("c"), call("d", "d"), call("e", 3)) == ["a", "b", "c", "d", "e"]
    assert order(call("b"), call("a", "b"), call("c", "a")) == ["a", "b", "c"]


def test_parameters_whose_names_anthropic_refuses_are_left_out_with_a_notice() -> None:
    inner = {"type": "object", "properties": {"ü": {"type": "string"}, "b": {"type": "string"}}}
    parameters = {"type": "object", "properties": {"a b": {"type": "string"}, "c": inner}, "required": ["a b", "c"]}
    notices: list[Notice] = []
    odd = Tool(name="odd", description="d", parameters=parameters)
    plain = Tool(name="plain", description="d", parameters=inner["properties"]["b"])
    prompt = Prompt(messages=[ChatMessage("user", "Hi")], tools=[odd, plain])
    declared = anthropic.request(prompt, model="m", warn=notices.append)["tools"][0]["input_schema"]
    assert (list(declared["properties"]), declared["required"]) == (["c"], ["c"])
    assert [notice.message for notice in notices] == [
        "the tool 'odd' is declared without 'a b', 'ü': Anthropic refuses such parameter names"
    ]


def test_a_tool_may_give_models_of_pydantic() -> None:
    class City(pydantic.BaseModel):
        name: str

    @dataclass
    class Trip:
        city: City

    assert ToolResult.of(City(name="Oslo")).content == '{"name":"Oslo"}'
    assert ToolResult.of([City(name="Oslo")]).content == '[{"name":"Oslo"}]'
    assert ToolResult.of({"a": Trip(City(name="Oslo"))}).content == '{"a":{"city":{"name":"Oslo"}}}'
    assert ToolResult.of(object()).error == "The tool gave a result that cannot be sent."
