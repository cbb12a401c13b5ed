"""Any history, however broken, becomes a request that each provider's own rules accept."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from google.genai import Client
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from models import request_checkers
from models.model_server import Recorded, stream
from models.request_checkers import (
    SOURCES,
    check_anthropic,
    check_chat,
    check_gemini,
    check_mistral,
    check_responses,
    from_gemini_wire,
)
from openai import AsyncOpenAI

from aguila.chat import (
    ChatMessage,
    Content,
    DataContent,
    ErrorContent,
    FunctionCallContent,
    FunctionResultContent,
    HostedFileContent,
    ReasoningContent,
    TextContent,
    UriContent,
    as_agui_messages,
    as_chat_messages,
    provider_history,
)
from aguila.chat.property_keys import ENCRYPTED_VALUE, METADATA, PROVIDER
from aguila.codec.notices import Notice
from aguila.protocol import Context, Tool
from aguila.providers import Prompt, anthropic, gemini, openai, openai_chat, openai_responses
from aguila.providers._encrypted_values import pack

pytestmark = pytest.mark.anyio


def wire_client(provider: str, url: str) -> Any:
    """Return an official client of a provider for a server at ``url``."""
    match provider:
        case "anthropic":
            return AsyncAnthropic(base_url=url, api_key="key", max_retries=0)
        case "gemini":
            return Client(api_key="key", http_options={"base_url": url})
        case _:
            return AsyncOpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0)


async def ask(provider: str, url: str, asked: list[Prompt]) -> None:
    """Ask a model over the official SDK."""
    client = wire_client(provider, url)
    model = {
        "openai chat": lambda: openai._Chat(client, "m", "openai", {}),
        "openai responses": lambda: openai._Responses(client, "m", "openai", {}),
        "anthropic": lambda: anthropic._Messages(client, "m", "anthropic", {}),
        "gemini": lambda: gemini._Gemini(client, "m", "google", {}),
    }[provider]()
    try:
        for prompt in asked:
            async for _ in model.answer(prompt, lambda _: None):
                pass
    finally:
        await (client.aio.aclose() if provider == "gemini" else client.close())


PROVIDERS: dict[str, tuple[Callable[..., dict[str, Any]], Callable[[dict[str, Any]], list[str]]]] = {
    "openai chat": (openai_chat.request, check_chat),
    "openai responses": (openai_responses.request, check_responses),
    "anthropic": (anthropic.request, check_anthropic),
    "gemini": (gemini.request, check_gemini),
}

IDS = st.sampled_from(["c1", "c2", "c3", "", " ", "call with spaces", "x" * 90, "ünï", "call:1/2", "\ud83d", "\ud83e"])
NAMES = st.sampled_from(["weather", "get weather", "a.b", "", "1st", "n" * 90, "wetter/ü", "get_weather", "\ud83d"])
TEXTS = st.sampled_from(["Hello", "", "   ", "\n", "I call it", "{}", "half \ud83d", "\ude00\ud83d\ude00"])
ARGUMENTS = st.sampled_from(['{"city":"Oslo"}', "", "{", "[1]", "null", "text", '{"city":"\\ud83d"}', '{"\ud83d":1'])
MEDIA = st.sampled_from(["image/png", "image/bmp", "audio/wav", "audio/ogg", "video/mp4", "application/pdf"])
ARTEFACTS = st.sampled_from(
    [
        None,
        "somebody else's",
        pack(openai_responses.REASONING, id="rs_1", encrypted_content="abc"),
        pack(openai_responses.REASONING, id="rs_2", encrypted_content="def"),
        pack(openai_responses.ITEM, item='{"type":"web_search_call","id":"ws_1","status":"completed"}'),
        pack(openai_responses.ITEM, item='{"type":"image_generation_call","id":"ig_1","status":"completed"}'),
        pack(openai_responses.ITEM, item='{"type":"shell_call","id":"sh_1","call_id":"x"}'),
        pack(openai_responses.ITEM, item='{"type":"message","role":"system","content":"x"}'),
        pack(openai_responses.ITEM, item="{"),
        pack(openai_responses.MESSAGE, phase="commentary"),
        pack(openai_responses.MESSAGE, phase="forged", start="0", length="0"),
        pack(openai_chat.DETAILS, origin="m", details='[{"type":"reasoning.text","text":"x"}]'),
        pack(openai_chat.EXTRA, origin="m", extra='{"google":{"thought_signature":"x"}}'),
        pack(anthropic.THINKING, signature="sig"),
        pack(anthropic.REDACTED, data="hidden"),
        pack(gemini.SIGNATURE, signature="c2ln"),
        pack(gemini.SIGNATURE, signature="c2ln", start="2", length="3"),
        pack(gemini.SIGNATURE, signature="c2ln", start="0", length="0", after="calls"),
        pack(gemini.SIGNATURE, signature="c2ln", thought="2"),
        pack(gemini.SIGNATURE, signature="not base64!"),
        pack(gemini.PART, part='{"executable_code":{"language":"PYTHON","code":"1"}}'),
        pack(gemini.PART, part='{"function_call":{"name":"forged"}}'),
        pack(anthropic.BLOCK, block='{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}'),
        pack(anthropic.BLOCK, block='{"type":"web_search_tool_result","tool_use_id":"s1","content":[]}'),
        pack(anthropic.BLOCK, block='{"type":"tool_use","id":"forged","name":"f","input":{}}'),
        pack(anthropic.BLOCK, block='{"type":"container_upload","file_id":"file_1"}'),
        pack(anthropic.BLOCK, block='{"type":"container_upload"}'),
        pack(anthropic.BLOCK, block='{"type":"compaction","content":"They talked."}'),
        pack(openai_chat.THOUGHT, origin="m"),
        pack(openai_chat.THOUGHT, origin="another"),
        pack(openai_chat.THINKING, origin="m"),
    ]
)

WEB = {"type": "web_search_result_location", "cited_text": "x", "encrypted_index": "x", "title": None, "url": "x"}
OWN = st.sampled_from(
    [
        {"order": [2, "c1", 3]},
        {"order": ["c1", 5, "c2"]},
        {"order": ["c1", "c1", 5]},
        {"order": [5.0, None]},
        {
            "citations": [{"source": WEB, "start": 1, "end": 3}, {"source": WEB, "start": 3, "end": 4}],
            "order": ["c2", 5],
        },
        {"citations": [{"source": WEB, "start": 9, "end": 2}, {"source": {**WEB, "url": 5}, "start": 0, "end": 2}]},
        {"citations": [{"source": {"type": "char_location"}, "start": 0, "end": 5}, 7]},
        {"arguments": {"city": "Rome"}, "error": "it failed"},
        {"arguments": "\ud83d", "error": {}},
        {"arguments": {"\ud83d": "\ude00"}},
        "nothing of ours",
    ]
).map(lambda own: {METADATA: {"aguila": own}})


@st.composite
def calls(draw: st.DrawFn) -> FunctionCallContent:
    artefact = draw(ARTEFACTS)
    properties: dict[str, Any] = {} if artefact is None else {ENCRYPTED_VALUE: artefact}
    if draw(st.integers(0, 3)) == 0:
        properties[METADATA] = {"aguila": {"before": draw(IDS | st.sampled_from([None, 3]))}}
    return FunctionCallContent(draw(IDS), draw(NAMES), draw(ARGUMENTS), additional_properties=properties)


@st.composite
def files(draw: st.DrawFn) -> Content:
    media_type = draw(MEDIA | st.sampled_from(["", "text/plain", "application/octet-stream"]))
    match draw(st.integers(0, 3)):
        case 0:
            return DataContent(draw(st.sampled_from([b"", b"abc", b"\xff"])), media_type)
        case 1:
            address = draw(st.sampled_from(["https://a.example/x", "file:///etc/passwd", "data:image/png;base64,aGk="]))
            return UriContent(address, media_type or None)
        case 2:
            provider = draw(st.sampled_from(["openai", "anthropic", "google", "aguila"]))
            return HostedFileContent("file-1", media_type or None, additional_properties={PROVIDER: provider})
        case _:
            return HostedFileContent("upload-1", media_type or None)


def results() -> st.SearchStrategy[FunctionResultContent]:
    value = TEXTS | st.lists(files() | TEXTS.map(TextContent), max_size=2) | st.sampled_from([{"a": 1}, 5, None])
    return st.builds(FunctionResultContent, IDS, value, st.sampled_from([None, None, "it failed"]))


def messages() -> st.SearchStrategy[ChatMessage]:
    thoughts = st.builds(ReasoningContent, TEXTS, ARTEFACTS)
    texts = TEXTS.map(TextContent)
    said = st.lists(texts | files(), max_size=3)
    assistant = st.lists(st.one_of(texts, calls(), calls(), thoughts, files()), max_size=4)
    plain = st.builds(lambda text, made: [text, *made], texts, st.lists(calls(), max_size=2))  # as AG-UI has it
    signed = ARTEFACTS.map(lambda artefact: {} if artefact is None else {ENCRYPTED_VALUE: artefact})
    odd = st.lists(st.one_of(texts, calls(), results(), st.just(ErrorContent("x"))), max_size=2)
    return st.one_of(
        st.builds(
            ChatMessage,
            st.sampled_from(["user", "user", "system", "developer"]),
            said,
            author_name=st.sampled_from([None, None, "alice", "bob b"]),
        ),
        st.builds(ChatMessage, st.just("assistant"), assistant),
        st.builds(ChatMessage, st.just("assistant"), assistant, additional_properties=signed),
        st.builds(ChatMessage, st.just("assistant"), plain, additional_properties=OWN),
        st.builds(ChatMessage, st.just("tool"), st.lists(results(), min_size=1, max_size=2)),
        st.builds(ChatMessage, st.just("tool"), st.lists(results(), min_size=1, max_size=2), additional_properties=OWN),
        st.builds(ChatMessage, st.sampled_from(["critic", "user", "tool"]), odd),
    )


def schemas() -> st.SearchStrategy[Any]:
    leaves = st.sampled_from(
        [
            {"type": "string"},
            {"type": ["integer", "null"]},
            {"type": "array"},
            {"enum": ["a", 1, None]},
            {"const": "x"},
            {"$ref": "#/$defs/node"},
            {"$ref": "#/$defs/nowhere"},
            {"$ref": "https://a.example/schema"},
            {"type": "string", "format": "uuid", "x-hint": 1},
            {"type": "nonsense"},
            True,
            None,
            {},
        ]
    )

    def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        named = st.dictionaries(st.sampled_from(["a", "b c", "$d", "ü", "e" * 70]), inner, max_size=3)
        return st.one_of(
            st.builds(
                lambda properties, required: {"type": "object", "properties": properties, "required": required},
                named,
                st.lists(st.sampled_from(["a", "zz"]), max_size=2),
            ),
            st.builds(lambda items: {"type": "array", "items": items}, inner),
            st.builds(
                lambda kind, choices: {kind: choices},
                st.sampled_from(["anyOf", "oneOf", "allOf"]),
                st.lists(inner, max_size=3),
            ),
        )

    whole = st.recursive(leaves, larger, max_leaves=6)
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "value": {"type": "integer"}}}
    return whole.map(lambda s: {"$schema": "x", "$defs": {"node": node}, **s} if isinstance(s, dict) else s)


def tools() -> st.SearchStrategy[list[Tool]]:
    made = st.builds(lambda name, parameters: Tool(name=name, description="", parameters=parameters), NAMES, schemas())
    return st.lists(made, max_size=3, unique_by=lambda tool: tool.name)


SAID = {"role": "user", "parts": [{"text": "hi"}]}
RESPONSE = {"id": "c", "name": "f", "response": {}}
DAMAGE = (
    "orphan call",
    "orphan result",
    "duplicate call id",
    "reordered result",
    "interleaved",
    "empty message",
    "empty history",
    "unknown role",
    "unparsable arguments",
    "assistant last",
    "assistant first",
    "unusable file",
    "foreign artefact",
    "metadata in our name",
    "a role twice",
)


def damage_of(history: list[ChatMessage]) -> set[str]:
    """Return the kinds of damage that a history has."""
    found: set[str] = set()
    made: list[str] = []
    answered: list[str] = []
    for index, message in enumerate(history):
        if not message.contents or all(isinstance(one, TextContent) and one.text == "" for one in message.contents):
            found.add("empty message")
        if message.role not in ("user", "system", "developer", "assistant", "tool"):
            found.add("unknown role")
        if index and message.role == history[index - 1].role:
            found.add("a role twice")
        if METADATA in message.additional_properties:
            found.add("metadata in our name")
        for content in message.contents:
            match content:
                case FunctionCallContent() if message.role == "assistant":
                    if content.call_id in made:
                        found.add("duplicate call id")
                    made.append(content.call_id)
                    if content.parsed_arguments is None:
                        found.add("unparsable arguments")
                case FunctionResultContent():
                    if content.call_id not in made:
                        found.add("reordered result")
                    answered.append(content.call_id)
                    before = history[index - 1] if index else None
                    if before is not None and before.role != "tool" and content.call_id in made and not before.calls:
                        found.add("interleaved")
                case DataContent() | HostedFileContent():
                    found.add("unusable file")
                case ReasoningContent() if content.protected_data is not None:
                    found.add("foreign artefact")
                case _:
                    pass
    if set(made) - set(answered):
        found.add("orphan call")
    if set(answered) - set(made):
        found.add("orphan result")
    if not history:
        found.add("empty history")
    else:
        found |= {"assistant last"} if history[-1].role == "assistant" else set()
        found |= {"assistant first"} if history[0].role == "assistant" else set()
    return found


def prompts() -> st.SearchStrategy[Prompt]:
    context = st.sampled_from([[], [Context(description="Where", value="Oslo")]])
    return st.builds(
        Prompt,
        messages=st.lists(messages(), max_size=8),
        tools=tools(),
        instructions=st.sampled_from([None, "", "Be brief."]),
        context=context,
    )


SERVERS = {**PROVIDERS, "mistral": (partial(openai_chat.request, ids="mistral"), check_mistral)}


@pytest.mark.parametrize("provider", SERVERS)
def test_any_history_becomes_a_request_that_the_rules_accept(provider: str) -> None:
    make, check = SERVERS[provider]
    seen: Counter[str] = Counter()

    @settings(
        max_examples=300,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(prompts())
    def holds(prompt: Prompt) -> None:
        seen.update(damage_of(prompt.messages))
        notices: list[Notice] = []
        request = make(prompt, model="m", warn=notices.append)
        assert check(request) == []
        if prompt.context:
            assert "Where: Oslo" in repr(request)

    holds()
    missing = [kind for kind in DAMAGE if seen[kind] == 0]
    assert missing == [], f"{dict(seen)}"


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_what_the_official_sdk_sends_of_any_history_the_rules_accept(provider: str) -> None:
    """The same for the request that arrives, after the SDK's own conversion."""
    check = PROVIDERS[provider][1]
    made: list[Prompt] = []

    @settings(
        max_examples=40,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(prompts())
    def collect(prompt: Prompt) -> None:
        made.append(prompt)

    collect()
    with Recorded([stream(provider, text="Hi")] * len(made)) as recorded:
        await ask(provider, recorded.url, made)
    assert len(recorded.requests) == len(made)
    for body in recorded.requests:
        assert check(from_gemini_wire(body) if provider == "gemini" else body) == []


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_whole_history_loses_nothing_but_what_the_provider_cannot_take(provider: str) -> None:
    make, check = PROVIDERS[provider]
    history = [
        ChatMessage("user", "How warm is it?"),
        ChatMessage("assistant", [TextContent("I look."), FunctionCallContent("c1", "weather", '{"city":"Oslo"}')]),
        ChatMessage("tool", [FunctionResultContent("c1", "3 degrees")]),
        ChatMessage("assistant", "3 degrees."),
        ChatMessage("user", "Thanks."),
    ]
    notices: list[Notice] = []
    request = make(Prompt(messages=history), model="m", warn=notices.append)
    assert check(request) == []
    assert notices == []
    for text in ("How warm is it?", "I look.", "Oslo", "3 degrees", "3 degrees.", "Thanks."):
        assert text in repr(request)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_repairs_make_notices_and_the_history_stays_as_it_was(provider: str) -> None:
    make, check = PROVIDERS[provider]
    history = [ChatMessage("user", "Hi"), ChatMessage("assistant", [FunctionCallContent("c1", "pick_date")])]
    before = as_agui_messages(history, new_id=lambda: "m")
    notices: list[Notice] = []
    assert check(make(Prompt(messages=history), model="m", warn=notices.append)) == []
    assert any("dropped_call" in notice.message for notice in notices)
    assert as_agui_messages(history, new_id=lambda: "m") == before
    assert as_chat_messages(before)[1].calls[0].call_id == "c1"


def test_every_rule_has_a_source_and_every_source_a_rule() -> None:
    text = Path(request_checkers.__file__).read_text()
    used = set(re.findall(r'"f?([A-Z]-\d+) ', text)) | set(re.findall(r'f"([A-Z]-\d+) ', text))
    used |= set(re.findall(r'"([A-Z]-\d+)"[,)]', text))
    assert used == set(SOURCES)


def test_the_checkers_refuse_what_the_providers_refuse() -> None:
    """A checker that accepts everything would prove nothing."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    user = {"role": "user", "content": "hi"}
    assert check_chat({"messages": []})
    assert check_chat({"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}, user]})
    assert check_chat({"messages": [{"role": "tool", "tool_call_id": "c", "content": ""}]})
    function = {"type": "function", "function": {"name": "f", "parameters": {"anyOf": []}}}
    assert check_chat({"messages": [user], "tools": [function]})
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    assert check_responses({"input": [item]})
    thought = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"}
    assert check_responses({"input": [thought, {"role": "user", "content": [{"type": "input_text", "text": "x"}]}]})
    text = [{"type": "text", "text": "hi"}]
    use = [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]
    told = {"role": "user", "content": text}
    assert check_anthropic({"max_tokens": 1, "messages": [told, told]})
    assert check_anthropic({"max_tokens": 1, "messages": [told, {"role": "assistant", "content": use}, told]})
    assert check_anthropic({"max_tokens": 1, "messages": [told, {"role": "assistant", "content": text}]})
    answer = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": ""}]}
    called = [told, {"role": "assistant", "content": use}, answer]
    assert check_anthropic({"max_tokens": 1, "messages": called}) == ["A-4 calls, and no tools"]
    own = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    loose = [told, {"role": "assistant", "content": [*text, own]}]
    assert check_anthropic({"max_tokens": 1, "messages": [*loose, told]})
    assert check_anthropic({"max_tokens": 1, "messages": loose}, is_paused=True) == []
    made = {"function_call": {"id": "c", "name": "f", "args": {}}}
    result = {"role": "user", "parts": [{"function_response": RESPONSE}]}
    unsigned = {"contents": [SAID, {"role": "model", "parts": [made]}, result], "config": {}}
    assert [one[:3] for one in check_gemini(unsigned)] == ["G-3"]
    other = {"function_call": {"id": "d", "name": "f", "args": {}}, "thought_signature": b"A"}
    answers = {"role": "user", "parts": [*result["parts"], {"function_response": {**RESPONSE, "id": "d"}}]}
    for step in ([made, other], [{"text": "Hm", "thought_signature": b"A"}, made, other]):
        second = {"contents": [SAID, {"role": "model", "parts": step}, answers], "config": {}}
        assert [one[:3] for one in check_gemini(second)] == ["G-3"]
    first = {"contents": [SAID, {"role": "model", "parts": [other, made]}, answers], "config": {}}
    assert check_gemini(first) == []
    assert check_gemini({**unsigned, "contents": [*unsigned["contents"], SAID]}) == []
    said = {"role": "user", "parts": [{"text": "hi"}]}
    assert check_gemini({"contents": [said, {"role": "model", "parts": [made]}, said], "config": {}})
    bad = {"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}}
    declared = [{"name": "f", "description": "d", "parameters_json_schema": bad}]
    assert check_gemini({"contents": [said], "config": {"tools": [{"function_declarations": declared}]}})


def test_provider_history_pairs_what_the_generator_breaks() -> None:
    """The generator makes damage: most of its histories need a repair."""
    repaired: list[bool] = []

    @settings(
        max_examples=100,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(st.lists(messages(), min_size=2, max_size=8))
    def generate(history: list[ChatMessage]) -> None:
        repaired.append(bool(provider_history(history).repairs))

    generate()
    assert sum(repaired) > len(repaired) / 2
