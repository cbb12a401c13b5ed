"""Answers of models beyond the matrix: each part is shown, kept for the next request, or named in a notice."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from models.answers import blocks, call_part, history, next_turn, of_type, parts, resumed, use
from models.model_server import CUT, PROVIDERS, Recorded, frames, sse, stream
from models.request_checkers import check_gemini, from_gemini_wire
from serving import text_of

from aguila.chat import tool
from aguila.stream import consume

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.* is not a valid FinishReason:UserWarning"),
]

Json = dict[str, Any]
Start = Callable[..., tuple[Any, Recorded]]

FRONT = {"name": "front", "description": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
USAGE = {
    "openai chat": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
    "openai responses": {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12},
    "anthropic": {"input_tokens": 10, "output_tokens": 2},
    "gemini": {"promptTokenCount": 10, "candidatesTokenCount": 2, "totalTokenCount": 12},
}


def weather(city: str) -> str:
    """The weather."""
    return f"{city}: 3 degrees"


@tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


# Tools that ran before a question


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("rounds", [1, 2])
def test_a_tool_with_the_run_is_not_called_again_when_a_question_is_answered(
    answering: Start, provider: str, rounds: int
) -> None:
    sent: list[str] = []

    async def mail(to: str, run: Any) -> str:
        """Mail."""
        sent.append(to)
        run.state.setdefault("sent", []).append(to)
        await run.say(f"Mailing {to}.")
        return f"sent #{len(sent)}"

    calls = [("c1", "mail", {"to": "bob"}), ("c2", "pay", {"amount": 1})]
    asked = [{"calls": calls}] if rounds == 1 else [{"calls": [call]} for call in calls]
    thread, recorded = answering(provider, *asked, {"text": "Done."}, tools=[mail, pay])
    first = thread.send("Hi", state={"kept": 1})
    second = resumed(thread, first)
    assert sent == ["bob"]
    assert text_of(second) == "Done."
    assert "sent #1" in json.dumps(recorded.requests[-1])
    assert consume([*first, *second]).state == {"kept": 1, "sent": ["bob"]}


def test_tools_that_ask_one_after_another_are_asked_each_question_once(answering: Start) -> None:
    done: list[str] = []

    async def first(run: Any) -> str:
        """First."""
        answer = await run.ask("Which one?")
        done.append(f"first {answer}")
        return "first done"

    async def second(run: Any) -> str:
        """Second."""
        async with run.text() as text:
            await text.write("I would ")
            answer = await run.ask("And then?")
            await text.write("go.")
        done.append(f"second {answer}")
        return "second done"

    rounds = [{"calls": [("c1", "first", {})]}, {"calls": [("c2", "second", {})]}, {"text": "Done."}]
    thread, recorded = answering("openai chat", *rounds, tools=[first, second])
    one = thread.send("Hi")
    two = resumed(thread, one, "r2", "a")
    three = resumed(thread, two, "r3", "b")
    assert done == ["first a", "second b"]
    assert text_of(three).endswith("Done.")
    assert len(recorded.requests) == 3
    begun = of_type(two, "TEXT_MESSAGE_START")[-1]["messageId"]
    assert of_type(three, "TEXT_MESSAGE_CONTENT")[0]["messageId"] == begun


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), ValueError("secret")])
@pytest.mark.parametrize("is_async", [True, False])
def test_a_tool_that_raises_what_ends_a_process_has_failed(
    answering: Start, error: BaseException, is_async: bool
) -> None:
    def plain() -> str:
        """Boom."""
        raise error

    async def boom() -> str:
        """Boom."""
        raise error

    made = tool(name="boom")(boom if is_async else plain)
    thread, _ = answering("openai chat", {"calls": [("c1", "boom", {})]}, {"text": "Done."}, tools=[made])
    events = thread.send("Hi")
    assert [one["content"] for one in of_type(events, "TOOL_CALL_RESULT")] == ["The tool failed."]
    assert text_of(events) == "Done."


# Halves of characters


@pytest.mark.parametrize("provider", PROVIDERS)
def test_half_a_character_becomes_another_and_joins_its_other_half_for_the_provider(
    answering: Start, provider: str, caplog: pytest.LogCaptureFixture
) -> None:
    def cut(text: str) -> str:
        """Cut."""
        return f"\ud800 {text}"

    calls = [("c1", "cut", {"text": "\ud83d"})]
    thread, recorded = answering(provider, {"calls": calls}, {"text": "Done."}, tools=[cut])
    events = thread.send("x\ud83d y\ud83d\ude00")
    assert [one["content"] for one in of_type(events, "TOOL_CALL_RESULT")] == ["\ufffd \ufffd"]
    assert text_of(events) == "Done."
    sent = json.dumps(recorded.requests[-1], ensure_ascii=False)
    assert "x\ufffd y\U0001f600" in sent
    assert "\ufffd \ufffd" in sent
    assert sent.encode().decode() == sent
    assert "lone surrogates" in caplog.text


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_empty_answer_sends_a_custom_event(answering: Start, provider: str) -> None:
    thread, _ = answering(provider, {"text": ""})
    events = thread.send("Hi")
    assert [event["value"]["reason"] for event in of_type(events, "CUSTOM")] == ["empty"]
    assert events[-1]["outcome"] == {"type": "success"}


# Anthropic's blocks


def test_a_thought_that_does_not_show_goes_back_with_its_signature_p18(answering: Start) -> None:
    hidden = {"type": "thinking", "thinking": "", "signature": "SIG"}
    first = blocks(hidden, use("c1", "Oslo"), stop="tool_use")
    thread, recorded = answering("anthropic", first, {"text": "Cold."}, {"text": "Bye."}, tools=[weather])
    events = thread.send("Hi")
    assert recorded.requests[1]["messages"][1]["content"][0] == hidden
    next_turn(thread, events)
    assert recorded.requests[2]["messages"][1]["content"][0] == hidden


def at_once(*made: Json, stop: str) -> tuple[int, bytes]:
    """Return an answer whose blocks come whole when they begin, as servers that are compatible may send them."""
    status, body = blocks(*made, stop=stop)
    told = [json.loads(line.removeprefix("data: ")) for line in body.decode().splitlines() if line.startswith("data: ")]
    events = [event for event in told if event["type"] != "content_block_delta"]
    for event in events:
        if event["type"] == "content_block_start":
            event["content_block"] = made[event["index"]]
    return status, sse(events, named=True)[1]


def test_an_answer_of_anthropic_goes_back_in_the_order_it_was_said(answering: Start) -> None:
    made = [
        {"type": "thinking", "thinking": "one", "signature": "S1"},
        {"type": "text", "text": "t1"},
        use("c1", "Oslo"),
        {"type": "text", "text": "t2"},
        use("c2", "Rome"),
    ]
    thread, recorded = answering("anthropic", blocks(*made, stop="tool_use"), {"text": "Cold."}, tools=[weather])
    thread.send("Hi")
    assert recorded.requests[1]["messages"][1]["content"] == made


SEARCH = [
    {"type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {"query": "Oslo"}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srv1",
        "content": [
            {"type": "web_search_result", "title": "Oslo", "url": "https://a.example", "encrypted_content": "E"}
        ],
    },
]


# Gemini's parts


SIGNED: dict[str, list[Json]] = {
    "a call": [call_part("Oslo", thoughtSignature="QQ=="), call_part("Rome")],
    "an empty part after a call": [call_part("Oslo"), {"text": "", "thoughtSignature": "QQ=="}],
    "an empty part after text and a call": [
        {"text": "I look."},
        call_part("Oslo"),
        {"text": "", "thoughtSignature": "QQ=="},
    ],
    "a thought before a call": [
        {"text": "Hm.", "thought": True, "thoughtSignature": "QQ=="},
        call_part("Oslo", thoughtSignature="Qg=="),
    ],
    "an empty part before a call": [{"text": "", "thoughtSignature": "QQ=="}, call_part("Oslo")],
    "a text before a call": [{"text": "I look.", "thoughtSignature": "QQ=="}, call_part("Oslo")],
}


MARK = "UNUSED"


def without_mark(part: Json) -> Json:
    return {name: value for name, value in part.items() if name != "thoughtSignature"}


@pytest.mark.parametrize(
    "before", [[], [{"text": "Well."}], [{"text": "H", "thought": True, "thoughtSignature": "QQ=="}]]
)
@pytest.mark.parametrize("between", [[], [{"text": "Hm.", "thought": True, "thoughtSignature": "QQ=="}]])
def test_a_front_ends_call_that_was_held_back_stands_where_the_model_made_it(
    answering: Start, before: list[Json], between: list[Json]
) -> None:
    """G-3: the first call of the step has the signature, in the part that it came with; ``pay`` may ask."""
    front = {"functionCall": {"id": "c1", "name": "front", "args": {}}, "thoughtSignature": "Qg=="}
    made = [*before, front, *between, call_part("Oslo"), call_part("Rome")]
    thread, recorded = answering("gemini", parts(*made), {"text": "Bye."}, tools=[pay, weather])
    events = thread.send("Hi", tools=[FRONT])
    assert [event["toolCallId"] for event in of_type(events, "TOOL_CALL_START")] == ["call-Oslo", "call-Rome", "c1"]
    answer = {"id": "t1", "role": "tool", "toolCallId": "c1", "content": "done"}
    thread.events(run_id="r2", messages=[*history(events), answer], tools=[FRONT])
    (sent,) = recorded.requests[1:]
    assert check_gemini(from_gemini_wire(sent)) == []
    found = [part for content in sent["contents"] for part in content["parts"] if "functionCall" in part]
    assert [part["functionCall"]["id"] for part in found] == ["c1", "call-Oslo", "call-Rome"]
    assert found[0] == front
    if not between:
        assert sent["contents"][1]["parts"] == made


@pytest.mark.parametrize("provider", PROVIDERS)
def test_calls_that_were_sent_late_stand_where_they_were_made_for_every_provider(
    answering: Start, provider: str
) -> None:
    calls = [
        ("c1", "front", {}),
        ("c2", "weather", {"city": "Oslo"}),
        ("c3", "front", {}),
        ("c4", "pay", {"amount": 1}),
    ]
    thread, recorded = answering(provider, {"calls": calls}, {"text": "Bye."}, tools=[pay, weather])
    first = thread.send("Hi", tools=[FRONT])
    (question,) = first[-1]["outcome"]["interrupts"]
    resume = [{"interruptId": question["id"], "status": "resolved", "payload": {"approved": True}}]
    said = [{"id": "m1", "role": "user", "content": "Hi"}]
    second = thread.events(run_id="r2", messages=said, tools=[FRONT], resume=resume)
    waiting = second[-1]["outcome"]["pendingToolCallIds"]
    answers = [{"id": f"t-{one}", "role": "tool", "toolCallId": one, "content": "done"} for one in waiting]
    thread.events(run_id="r3", messages=[*history([*first, *second]), *answers], tools=[FRONT])
    sent = {name: value for name, value in recorded.requests[1].items() if name != "tools"}
    names = re.findall(r'"name": "(front|weather|pay)"', json.dumps(sent))
    assert names[:4] == ["front", "weather", "front", "pay"]


def test_a_picture_that_the_model_makes_is_an_activity_and_seen_again_within_the_run(answering: Start) -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(b"PNG").decode()}}
    made = [{"text": "Look: "}, {**picture, "thoughtSignature": "QQ=="}, {"text": "nice"}, call_part("Oslo")]
    thread, recorded = answering("gemini", parts(*made), {"text": "Cold."}, tools=[weather])
    events = thread.send("Draw")
    (activity,) = of_type(events, "ACTIVITY_SNAPSHOT")
    assert activity["activityType"] == "aguila.file"
    source = {"type": "data", "value": picture["inlineData"]["data"], "mimeType": "image/png"}
    assert activity["content"] == {"type": "image", "source": source}
    sent = json.dumps(recorded.requests[1]["contents"][1]["parts"])
    *others, call = json.loads(sent.replace("mime_type", "mimeType"))  # the SDK's spelling, which the API knows as well
    assert [*others, without_mark(call)] == made
    kinds = [message["role"] for message in history(events)]
    assert kinds[:4] == ["user", "assistant", "activity", "assistant"]  # the order survives


def test_a_picture_alone_is_an_answer(answering: Start) -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "UE5H"}}
    thread, _ = answering("gemini", parts(picture))
    events = thread.send("Draw")
    assert events[-1]["type"] == "RUN_FINISHED"
    assert len(of_type(events, "ACTIVITY_SNAPSHOT")) == 1


@pytest.mark.parametrize("reason", ["OTHER", "SOMETHING_NEW"])
def test_an_unknown_finish_reason_is_reported_and_fails_a_run_without_output(
    answering: Start, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    thread, _ = answering("gemini", parts(finish=reason), parts({"text": "Hm"}, finish=reason))
    last = thread.send("Hi")[-1]
    assert (last["type"], last["code"]) == ("RUN_ERROR", "other")
    events = thread.send("Hi", run_id="r2")
    assert [event["value"]["reason"] for event in of_type(events, "CUSTOM")] == ["other"]
    assert f"the model stopped for the unknown reason '{reason}' [models]" in caplog.text


# OpenAI, and servers that speak it


def chunks(*deltas: Json, finish: str = "stop") -> tuple[int, bytes]:
    """Return an answer of Chat Completions, one delta after the other."""
    head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    made = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    made.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return sse(made, done=True)


def call_delta(index: int, call_id: str | None, city: str | None, arguments: str = "") -> Json:
    function = (
        {"arguments": arguments} if city is None else {"name": "weather", "arguments": json.dumps({"city": city})}
    )
    return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}


DETAIL = {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1"}


def test_parallel_calls_with_one_id_are_two_calls(answering: Start) -> None:
    same = chunks(
        call_delta(0, "c", "Oslo"), call_delta(1, "c", "Rome"), call_delta(1, "c", None), call_delta(0, "c", None)
    )
    thread, recorded = answering("openai chat", same, {"text": "Cold."}, tools=[weather])
    events = thread.send("Hi")
    results = sorted(event["content"] for event in of_type(events, "TOOL_CALL_RESULT"))
    assert results == ["Oslo: 3 degrees", "Rome: 3 degrees"]
    assert len({call["id"] for call in recorded.requests[1]["messages"][1]["tool_calls"]}) == 2


@pytest.mark.parametrize("sends_history", [False, True])
def test_a_call_id_that_the_thread_has_is_replaced_also_if_the_client_sends_only_new_messages_p21(
    answering: Start, sends_history: bool
) -> None:
    turns: list[Json] = [{"calls": [("call_0", "weather", {"city": city})]} for city in ("Oslo", "Rome")]
    thread, _ = answering("openai chat", turns[0], {"text": "Cold."}, turns[1], {"text": "Warm."}, tools=[weather])
    first = thread.send("Hi")
    new: Json = {"id": "m2", "role": "user", "content": "And Rome?"}
    second = thread.events(run_id="r2", messages=[*(history(first) if sends_history else []), new])
    calls = [event["toolCallId"] for event in of_type([*first, *second], "TOOL_CALL_START")]
    assert calls[0] == "call_0" != calls[1]
    messages = thread.server.get(f"/threads/{thread.thread_id}").json()["messages"]
    made = [call["function"]["arguments"] for one in messages for call in one.get("toolCalls", ())]
    assert [json.loads(arguments)["city"] for arguments in made] == ["Oslo", "Rome"]


# Ends: usage, calls that were cut off, one set of codes


def cut_frames(provider: str, ending: str) -> list[bytes]:
    """Return the beginning of an answer, with early usage if the provider sends it, without the rest."""
    whole = frames(stream(provider, text="Once upon", usage=USAGE[provider]))
    return [frame for frame in whole if ending not in frame.decode() and b"[DONE]" not in frame]


TOLD_EARLY = ("anthropic", "gemini")
ENDINGS = {"anthropic": "message_delta", "gemini": "finishReason"}


@pytest.mark.parametrize("provider", TOLD_EARLY)
@pytest.mark.parametrize("way", ["ended", "cut", "error", "broken"])
def test_usage_that_was_received_is_reported_by_a_run_that_fails_use_1(
    answering: Start, provider: str, way: str
) -> None:
    begun = [frame for frame in cut_frames(provider, ENDINGS[provider]) if b"message_stop" not in frame]
    error: Json = {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}
    if provider == "gemini":
        error = {"error": {"code": 503, "message": "x", "status": "UNAVAILABLE"}}
    more: dict[str, list[Any]] = {
        "ended": [],
        "cut": [CUT],
        "error": [b"event: error\ndata: %s\n\n" % json.dumps(error).encode()],
        "broken": [b"event: content_block_delta\ndata: {broken\n\n"],
    }
    thread, _ = answering(provider, (200, [*begun, *more[way]]))
    last = thread.send("Hi")[-1]
    assert last["type"] == "RUN_ERROR"
    assert last["usage"][0]["inputTokens"] == 10


@pytest.mark.parametrize("provider", TOLD_EARLY)
def test_usage_that_was_received_is_reported_by_a_run_that_is_cancelled_p27(answering: Start, provider: str) -> None:
    begun = [frame for frame in cut_frames(provider, ENDINGS[provider]) if b"message_stop" not in frame]
    gate = threading.Event()
    thread, _ = answering(provider, (200, [*begun, gate, b"data: {}\n\n"]))
    try:
        with thread.server.run(
            thread_id=thread.thread_id, run_id="r", messages=[{"id": "m", "role": "user", "content": "Hi"}]
        ) as told:
            told.read_until("TEXT_MESSAGE_CONTENT")
            thread.server.post(f"/threads/{thread.thread_id}/runs/r/cancel")
            last = told.rest()[-1]
    finally:
        gate.set()
    assert last["outcome"]["type"] == "cancelled"
    assert last["usage"][0]["inputTokens"] == 10


BROKEN = b"event: content_block_delta\ndata: {broken\n\n"


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("way", "code"),
    [
        ("ended", "provider_truncated"),
        ("cut", "provider_truncated"),
        ("broken", "provider_malformed"),
        ("cut at once", "provider_unreachable"),
    ],
)
def test_the_same_broken_stream_has_the_same_code_with_every_provider(
    answering: Start, provider: str, way: str, code: str
) -> None:
    whole = frames(stream(provider, text="Once upon"))
    begun = whole[: 1 + next(index for index, frame in enumerate(whole) if b"upon" in frame)]
    more: dict[str, list[Any]] = {
        "ended": begun,
        "cut": [*begun, CUT],
        "broken": [*begun, BROKEN],
        "cut at once": [CUT],
    }
    thread, _ = answering(provider, (200, more[way]))
    events = thread.send("Hi")
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", code)
    assert text_of(events) == ("" if way == "cut at once" else "Once upon")


@pytest.mark.parametrize("provider", ["openai chat", "openai responses", "anthropic"])
@pytest.mark.parametrize("tools", [[], [pay]], ids=["told at once", "held back"])
@pytest.mark.parametrize("finish", ["length", None])
def test_a_call_that_was_cut_off_is_not_ended_and_fails_the_run_tool_3(
    answering: Start, provider: str, tools: list[Any], finish: str | None
) -> None:
    """Gemini's calls come whole."""
    whole = frames(stream(provider, calls=[("c1", "front", {"a": "x" * 40})], finish="length"))
    first = next(index for index, frame in enumerate(whole) if b"xxx" in frame)
    end: list[bytes] = []
    if finish is not None:
        end = frames(stream(provider, text="", finish=finish))
        end = [frame for frame in end if b"message_start" not in frame and b"response.created" not in frame]
        stop = b'event: content_block_stop\ndata: {"type": "content_block_stop", "index": 0}\n\n'
        end = [stop, *end] if provider == "anthropic" else end
    thread, _ = answering(provider, (200, b"".join([*whole[: first + 1], *end])), tools=tools)
    events = thread.send("Hi", tools=[FRONT])
    assert of_type(events, "TOOL_CALL_END") == []
    assert len(of_type(events, "TOOL_CALL_ARGS")) == (0 if tools else 1)
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", finish or "provider_truncated")


@pytest.mark.parametrize("provider", ["openai chat", "openai responses", "anthropic"])
def test_a_call_that_is_complete_is_made_although_the_answer_was_cut_off_after_it(
    answering: Start, provider: str
) -> None:
    answer = stream(provider, calls=[("c1", "weather", {"city": "Oslo"})], finish="length")
    body = answer[1]
    assert isinstance(body, bytes)
    for normal, cut in (
        (b'"tool_calls"}', b'"length"}'),
        (b'"stop_reason": "tool_use"', b'"stop_reason": "max_tokens"'),
    ):
        body = body.replace(normal, cut)
    thread, _ = answering(provider, (200, body), {"text": "Cold."}, tools=[weather])
    events = thread.send("Hi")
    assert [event["content"] for event in of_type(events, "TOOL_CALL_RESULT")] == ["Oslo: 3 degrees"]
    assert [event["value"]["reason"] for event in of_type(events, "CUSTOM")] == ["length"]
    assert text_of(events) == "Cold."


@pytest.mark.parametrize("provider", PROVIDERS)
def test_calls_in_an_answer_that_was_refused_are_not_made_and_the_model_is_not_asked_again(
    answering: Start, provider: str
) -> None:
    called: list[str] = []

    def wipe(disk: str) -> str:
        """Wipe a disk."""
        called.append(disk)
        return "wiped"

    refused = {"refusal": "No.", "calls": [("c1", "wipe", {"disk": "a"}), ("c2", "pay", {"amount": 1})]}
    thread, recorded = answering(provider, refused, {"text": "As you like."}, tools=[wipe, pay])
    events = thread.send("Hi")
    assert (called, len(recorded.requests)) == ([], 1)
    assert events[-1]["outcome"] == {"type": "success"}
    assert [event["value"]["reason"] in ("refusal", "content_filter") for event in of_type(events, "CUSTOM")] == [True]
    assert ["not executed" in event["content"] for event in of_type(events, "TOOL_CALL_RESULT")] == [True, True]
    next_turn(thread, events)
    assert "not executed" in json.dumps(recorded.requests[-1])


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("tools", [[], [pay]], ids=["told at once", "held back"])
def test_a_front_end_is_not_left_to_make_a_call_of_an_answer_that_was_refused(
    answering: Start, provider: str, tools: list[Any]
) -> None:
    thread, _ = answering(provider, {"refusal": "No.", "calls": [("c1", "front", {"a": "x"})]}, tools=tools)
    events = thread.send("Hi", tools=[FRONT])
    if tools:
        assert of_type(events, "TOOL_CALL_START") == []
        assert events[-1]["outcome"] == {"type": "success"}
    else:
        assert events[-1]["type"] == "RUN_ERROR"
        assert events[-1]["code"] in ("refusal", "content_filter")


# Items of OpenAI's Responses


THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "E1"}
WEB = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}
FOUND = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Found.", "annotations": []}],
}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "c1",
    "name": "weather",
    "arguments": '{"city":"Oslo"}',
    "status": "completed",
}
