"""Servers that answer OpenAI's Chat Completions in their own way: content is mapped, or named in a notice."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from builders import chat_user
from models.answers import next_turn
from models.model_server import Recorded, sse
from models.request_checkers import check_chat, check_mistral
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk
from serving import text_of

from aguila.chat import (
    ChatMessage,
    ChatUpdate,
    DataContent,
    FunctionCallContent,
    FunctionResultContent,
    ReasoningContent,
    TextContent,
    UsageContent,
)
from aguila.chat.property_keys import ENCRYPTED_VALUE
from aguila.providers import Prompt, openai, openai_chat
from aguila.providers._encrypted_values import pack
from aguila.providers._response.reader import FINISH_REASON

pytestmark = [
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
    pytest.mark.anyio,
]

Json = dict[str, Any]
Start = Callable[..., tuple[Any, Recorded]]

HEAD = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def chunk(delta: Json, finish: str | None = None) -> Json:
    return {**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def answer(*deltas: Json, finish: str = "stop") -> tuple[int, bytes]:
    """Return an answer with these deltas, as it is sent."""
    return sse([*[chunk(delta) for delta in deltas], chunk({}, finish)], done=True)


async def updates_from(*made: Json, **options: Any) -> list[ChatUpdate]:
    """Return the updates of an answer with these chunks, as objects of the SDK."""

    async def stream() -> AsyncIterator[Any]:
        for one in made:
            yield ChatCompletionChunk.construct(**one)

    async def collect() -> list[ChatUpdate]:
        return [update async for update in openai_chat.updates(stream(), model="m", **options)]

    return await collect()


# Usage


@pytest.mark.parametrize(
    ("completion", "reasoning", "total", "output"),
    [
        (9, 94, 135, 103),  # xAI: 32 + 9 + 94
        (200, 94, 326, 294),
        (103, 94, 135, 103),  # OpenAI: 32 + 103
        (9, 94, None, 103),  # a part is not larger than its whole
        (103, 94, None, 103),
        (9, 0, 41, 9),
        (9, None, 41, 9),
    ],
)
async def test_thoughts_that_are_counted_beside_the_output_are_added_use_3(
    completion: int, reasoning: int | None, total: int | None, output: int
) -> None:
    details = {"completion_tokens_details": {"reasoning_tokens": reasoning}}
    usage = {"prompt_tokens": 32, "completion_tokens": completion, "total_tokens": total, **details}
    last = (await updates_from(chunk({"content": "ok"}, "stop"), {**HEAD, "choices": [], "usage": usage}))[-1]
    (told,) = [content.usage for content in last.contents if isinstance(content, UsageContent)]
    assert (told.input_tokens, told.output_tokens, told.total_tokens) == (32, output, 32 + output)
    assert told.reasoning_tokens == reasoning


# Errors


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"code": 429, "message": "secret"}, "provider_rate_limit"),  # OpenRouter
        ({"code": "429", "message": "secret"}, "provider_rate_limit"),
        ({"code": "insufficient_quota", "type": "insufficient_quota"}, "provider_rate_limit"),
        ({"code": 400, "type": "BadRequestError"}, "provider_rejected"),  # vLLM
        ({"code": 401}, "provider_auth"),
        ({"code": 502}, "provider_unavailable"),
        ({"code": "3280", "type": "rate_limit_error"}, "provider_rate_limit"),  # a number that is no status
        ({"code": True}, "provider_unavailable"),
        ({"message": "secret"}, "provider_unavailable"),
    ],
)
def test_an_error_within_a_stream_has_the_code_of_its_status(answering: Start, error: Json, code: str) -> None:
    failed = {**HEAD, "error": error, "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]}
    thread, _ = answering("openai chat", sse([chunk({"content": "par"}), failed], done=True))
    events = thread.send("Hi")
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", code)
    assert "secret" not in events[-1]["message"]


# Ends


@pytest.mark.parametrize(
    ("reason", "known"),
    [("eos", "stop"), ("eos_token", "stop"), ("stop_sequence", "stop"), ("model_length", "length")],
)
async def test_other_words_for_the_same_end_are_known(reason: str, known: str) -> None:
    assert (await updates_from(chunk({"content": "ok"}, reason)))[-1].additional_properties[FINISH_REASON] == known


def test_an_answer_of_gemini_that_could_be_continued_was_cut_off(answering: Start) -> None:
    last = {"content": {"role": "model", "parts": [{"text": "par"}]}, "finishReason": "CONTINUATION"}
    thread, _ = answering("gemini", sse([{"candidates": [last]}]))
    (told,) = [event for event in thread.send("Hi") if event["type"] == "CUSTOM"]
    assert told["value"]["reason"] == "length"


# Thoughts

LOOK = {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "look", "arguments": "{}"}}]}


def look() -> str:
    """Look."""
    return "seen"


def text_detail(**members: Any) -> Json:
    return {"type": "reasoning.text", "index": 0, **members}


def secret(data: str, **members: Any) -> Json:
    return {"type": "reasoning.encrypted", "data": data, "index": 0, **members}


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        ([secret("AAA", id="rs_1"), secret("BBB", id="rs_2")], None),
        ([secret("AAA"), secret("BBB")], None),  # OpenRouter's own client joins text and summaries only
        ([text_detail(text="a", id="x"), text_detail(text="b", id="y")], None),
        (
            [text_detail(text="a", id="x"), text_detail(text="b"), text_detail(signature="S")],
            [text_detail(text="ab", id="x", signature="S")],
        ),
        (
            [text_detail(text="a", id=None), text_detail(text="b", id="x")],
            [text_detail(text="ab", id="x")],
        ),
    ],
)
def test_details_of_thoughts_are_joined_with_their_own_pieces_only(
    answering: Start, pieces: list[Json], whole: list[Json] | None
) -> None:
    deltas = [{"reasoning_details": [piece]} for piece in pieces]
    thread, recorded = answering(
        "openai chat", answer(*deltas, LOOK, finish="tool_calls"), {"text": "Bye."}, tools=[look]
    )
    thread.send("Hi")
    assert recorded.requests[1]["messages"][1]["reasoning_details"] == (pieces if whole is None else whole)


def thinking(text: str) -> Json:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}


def test_thoughts_in_chunks_of_the_content_are_shown_and_sent_back_to_their_provider_p18(
    answering: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Mistral: chunks while it thinks, then chunks or plain text."""
    odd = {"type": "reference", "reference_ids": [1]}
    first = answer(
        {"content": [thinking("Hm")]}, {"content": [thinking("m."), thinking("")]}, LOOK, finish="tool_calls"
    )
    second = answer(
        {"content": [thinking("So."), {"type": "text", "text": "It is "}]}, {"content": "Paris."}, {"content": [odd]}
    )
    thread, recorded = answering("openai chat", first, second, {"text": "Bye."}, tools=[look], provider="mistral")
    events = thread.send("Hi")
    assert text_of(events) == "It is Paris."
    assert [event["delta"] for event in events if event["type"] == "REASONING_MESSAGE_CONTENT"] == ["Hm", "m.", "So."]
    assert "'reference': it is dropped" in caplog.text
    next_turn(thread, events)
    for request in recorded.requests:
        assert check_chat(request) == []
    said = [[thinking("Hmm.")], [thinking("So."), {"type": "text", "text": "It is Paris."}]]
    assert recorded.requests[1]["messages"][1]["content"] == said[0]
    sent = [one["content"] for one in recorded.requests[2]["messages"] if one["role"] == "assistant"]
    assert sent == said
    other, elsewhere = answering("openai chat", {"text": "Bye."}, tools=[look], provider="another")
    next_turn(other, events)
    assert "thinking" not in json.dumps(elsewhere.requests[0])


# Calls


def piece(arguments: str, **members: Any) -> Json:
    """Return a piece of a call; its ``name`` is the function's."""
    name = {"name": members.pop("name")} if "name" in members else {}
    return {"tool_calls": [{**members, "function": {**name, "arguments": arguments}}]}


async def calls_of(*deltas: Json) -> list[tuple[str, str]]:
    """Return the names and arguments of the calls in these deltas."""
    made: dict[str, tuple[str, str]] = {}
    for update in await updates_from(*[chunk(delta) for delta in deltas], chunk({}, "tool_calls")):
        for content in update.contents:
            if isinstance(content, FunctionCallContent):
                _, before = made.get(content.call_id, ("", ""))
                made[content.call_id] = (content.name, before + content.arguments)
    return [*made.values()]


@pytest.mark.parametrize(
    "deltas",
    [
        [piece("", id="a", name="f"), piece('{"x"'), piece(":1}"), piece("", id="b", name="g"), piece("{}")],
        [piece('{"x"', id="a", name="f"), piece(":1}", id="a"), piece("{}", id="b", name="g")],
        [piece('{"x":1}', name="f"), piece("{", name="g"), piece("}")],  # neither place nor id
        [piece('{"x"', id="a"), piece(":1}", name="f", id="a"), piece("{}", id="b", name="g")],  # the name comes late
        [piece('{"x"', index=0), piece("{}", index=1, name="g"), piece(":1}", index=0, name="f")],
    ],
)
async def test_pieces_of_calls_without_a_place_belong_to_the_last_call_p21(deltas: list[Json]) -> None:
    assert sorted(await calls_of(*deltas)) == [("f", '{"x":1}'), ("g", "{}")]


def test_a_call_as_it_was_before_there_could_be_several_is_made(answering: Start) -> None:
    deltas = [{"function_call": {"name": "look", "arguments": "{"}}, {"function_call": {"arguments": "}"}}]
    thread, recorded = answering("openai chat", answer(*deltas, finish="function_call"), {"text": "Bye."}, tools=[look])
    thread.send("Hi")
    (call,) = recorded.requests[1]["messages"][1]["tool_calls"]
    assert call["function"] == {"name": "look", "arguments": "{}"}
    assert recorded.requests[1]["messages"][2]["content"] == "seen"


async def test_a_call_without_a_name_is_left_out_with_a_notice(caplog: pytest.LogCaptureFixture) -> None:
    assert await calls_of(piece('{"x":1}', index=0, id="a")) == []
    assert "it has no name" in caplog.text


# What is not text


def test_the_transcript_of_audio_is_shown_with_a_notice(answering: Start, caplog: pytest.LogCaptureFixture) -> None:
    deltas = [
        {"audio": {"id": "a", "transcript": "Hel"}},
        {"audio": {"data": "AAAA"}},
        {"audio": {"transcript": "lo."}},
    ]
    thread, _ = answering("openai chat", answer({"content": None}, *deltas))
    assert text_of(thread.send("Hi")) == "Hello."
    assert "its sound is dropped" in caplog.text


def test_images_become_files_or_are_left_out_with_a_notice(answering: Start, caplog: pytest.LogCaptureFixture) -> None:
    urls = ["data:image/webp;base64,UE5H", "data:image/png;base64,???", "https://example.org/x.png"]
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    thread, _ = answering("openai chat", answer({"content": "Here.", "images": [*images, {}]}))
    events = thread.send("Hi")
    (shown,) = [event for event in events if event["type"] == "ACTIVITY_SNAPSHOT"]
    assert shown["content"]["source"] == {"type": "data", "value": "UE5H", "mimeType": "image/webp"}
    assert "'image': it is dropped" in caplog.text


# Turns


def sent(*messages: ChatMessage, **members: Any) -> list[Json]:
    made = openai_chat.request(Prompt(messages=list(messages), **members), model="m")
    assert check_chat(made) == []
    return made["messages"]


def test_neighbours_of_one_role_are_one_message_p4() -> None:
    call = FunctionCallContent("c1", "look", "{}")
    made = sent(
        ChatMessage("system", [TextContent("Be kind.")]),
        chat_user("a"),
        chat_user("b"),
        ChatMessage("assistant", [TextContent("Let me")]),
        ChatMessage("assistant", [ReasoningContent("hm")]),
        ChatMessage("assistant", [TextContent("see."), call]),
        ChatMessage("tool", [FunctionResultContent("c1", "seen")]),
        ChatMessage("assistant", [TextContent("It is there.")]),
        ChatMessage("assistant", [TextContent("Look.")]),
        chat_user("c", DataContent(b"PNG", "image/png")),
        chat_user("d"),
        instructions="Be brief.",
    )
    assert [(one["role"], one["content"]) for one in made[:-1]] == [
        ("system", "Be brief.\nBe kind."),
        ("user", "a\nb"),
        ("assistant", "Let me\nsee."),
        ("tool", "seen"),
        ("assistant", "It is there.\nLook."),
    ]
    assert made[2]["tool_calls"][0]["id"] == "c1"
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,UE5H"}}
    assert made[-1]["content"] == [{"type": "text", "text": "c"}, image, {"type": "text", "text": "d"}]


def test_names_of_neighbours_that_are_joined_stay_with_what_they_say() -> None:
    assert sent(chat_user("a", name="ann"), chat_user("b", name="ann")) == [
        {"role": "user", "content": "a\nb", "name": "ann"}
    ]
    both = sent(chat_user("a", name="ann"), chat_user("b"), chat_user("c", name="bob"))
    assert both == [{"role": "user", "content": "ann: a\nb\nbob: c"}]
    picture = DataContent(b"PNG", "image/png")
    parts = sent(chat_user("a", name="ann"), chat_user(picture, name="bob"))[0]["content"]
    assert [part.get("text") for part in parts] == ["ann: a", "bob:", None]


def test_what_a_server_wants_back_survives_when_neighbours_are_joined() -> None:
    def said(text: str, kind: str, **members: str) -> ChatMessage:
        properties = {ENCRYPTED_VALUE: pack(kind, origin="m", **members)}
        return ChatMessage("assistant", [TextContent(text)], additional_properties=properties)

    details = [said(text, openai_chat.DETAILS, details=f'["{text}"]') for text in "ab"]
    assert sent(chat_user("Hi"), *details)[1]["reasoning_details"] == ["a", "b"]
    extra = [said(text, openai_chat.EXTRA, extra=f'{{"{text}":1}}') for text in "ab"]
    plain = ChatMessage("assistant", [TextContent("c")])
    made = sent(chat_user("Hi"), *extra, plain)[1:]
    assert [one["content"] for one in made] == ["a", "b", "c"]
    assert [one.get("extra_content") for one in made] == [{"a": 1}, {"b": 1}, None]


def test_an_answer_that_thoughts_have_cut_in_two_is_one_message_in_the_next_run_too(answering: Start) -> None:
    first = answer(
        {"reasoning_content": "A"}, {"content": "x"}, {"reasoning_content": "B"}, {"content": "y"}, LOOK, finish="stop"
    )
    thread, recorded = answering("openai chat", first, {"text": "Done."}, {"text": "Bye."}, tools=[look])
    next_turn(thread, thread.send("Hi"))
    within = recorded.requests[1]["messages"]
    assert within[1]["content"] == "x\ny"
    assert recorded.requests[2]["messages"][: len(within)] == within


# Ids


def test_ids_are_nine_letters_and_digits_for_mistral_whoever_made_them(answering: Start) -> None:
    def calling(call_id: str) -> tuple[int, bytes]:
        return answer(piece("{}", index=0, id=call_id, name="look"), finish="tool_calls")

    rounds = [calling("D681PevKs"), calling("D681PevKs"), calling("call_of_another"), {"text": "Bye."}]
    thread, recorded = answering("openai chat", *rounds, tools=[look], ids="mistral")
    thread.send("Hi")
    assert check_mistral(recorded.requests[-1]) == []
    made = [call["id"] for one in recorded.requests[-1]["messages"] for call in one.get("tool_calls", ())]
    answered = [one["tool_call_id"] for one in recorded.requests[-1]["messages"] if one["role"] == "tool"]
    assert made == answered
    assert made[0] == "D681PevKs"
    assert len(set(made)) == 3


def test_an_unknown_value_of_ids_is_refused() -> None:
    client = AsyncOpenAI(api_key="key")
    for options in ({"ids": "other"}, {"ids": "mistral", "api": "responses"}):
        with pytest.raises(ValueError, match="ids"):
            openai.agent(client, model="m", **options)
