"""Scenario by provider: the official SDKs against aimock, and against recorded-style streams for the rest.

Every cell of the table in docs/models.md is a test here, and the last test holds the page to it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import user_json
from models.model_server import MODELS, PROVIDERS, Recorded, agent_for, aimock, stream, turn_fixtures
from models.request_checkers import WIRE_CHECKERS
from serving import REPOSITORY, text_of, types

from aguila.chat import tool
from aguila.stream import consume

pytestmark = [
    # What google-genai does with aiohttp, where that is installed.
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
    # aimock ends Gemini's calls with a reason that the SDK does not know.
    pytest.mark.filterwarnings("ignore:FUNCTION_CALL is not a valid FinishReason:UserWarning"),
]

Json = dict[str, Any]
Events = list[Json]

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
PICK_DATE = {
    "name": "pick_date",
    "description": "Lets the user pick a date",
    "parameters": {"type": "object", "properties": {"month": {"type": "string"}}},
}
USAGE = {
    "openai chat": {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 5},
    },
    "openai responses": {
        "input_tokens": 100,
        "output_tokens": 20,
        "total_tokens": 120,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        "output_tokens_details": {"reasoning_tokens": 5},
    },
    # Anthropic counts what was cached beside the rest, Gemini its thoughts and what tools brought (USE-3).
    "anthropic": {
        "input_tokens": 30,
        "output_tokens": 20,
        "cache_read_input_tokens": 60,
        "cache_creation_input_tokens": 10,
        "output_tokens_details": {"thinking_tokens": 5},
    },
    "gemini": {
        "promptTokenCount": 90,
        "toolUsePromptTokenCount": 10,
        "cachedContentTokenCount": 60,
        "candidatesTokenCount": 15,
        "thoughtsTokenCount": 5,
        "totalTokenCount": 999,
    },
    "mistral": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
}
PARTS = ("reasoningTokens", "cachedInputTokens", "cacheWriteInputTokens")
"""Counts that Mistral does not send."""
VENDOR = {
    "openai chat": "openai",
    "openai responses": "openai",
    "anthropic": "anthropic",
    "gemini": "google",
    "mistral": "mistral",
}


def weather(city: str) -> str:
    """The weather in a city."""
    return f"{city}: 3 degrees"


paid: list[float] = []


@tool(needs_approval=True)
def pay(amount: float) -> str:
    """Pay an amount."""
    paid.append(amount)
    return f"paid {amount:g}"


TOOLS = [weather, pay]


def of_type(events: Events, type_: str) -> Events:
    return [event for event in events if event["type"] == type_]


def run_events(thread: Any, **members: Any) -> Events:
    return thread.events(**members)


# aimock


def usage_fixtures() -> list[Json]:
    made: list[Json] = []
    for provider in PROVIDERS:
        plain = {name: value for name, value in USAGE[provider].items() if isinstance(value, int)}
        match = {"userMessage": "count", "model": MODELS[provider]}
        made.append({"match": match, "response": {"content": "One, two.", "usage": plain}})
    return made


@pytest.fixture(scope="module")
def mock_url() -> Iterator[str]:
    with aimock([*turn_fixtures(), *usage_fixtures()]) as url:
        yield url


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "provider" in metafunc.fixturenames:  # aimock does not speak Mistral's API, which has no refusals
        is_of_ours = "mocked" in metafunc.fixturenames or metafunc.function is test_recorded_refusal
        metafunc.parametrize("provider", PROVIDERS if is_of_ours else MODELS)


@pytest.fixture
def mocked(provider: str, mock_url: str, thread_for: Callable[[Any], Any]) -> Any:
    return thread_for(agent_for(provider, mock_url, tools=TOOLS, instructions="Be brief."))


def test_aimock_text(mocked: Any) -> None:
    events = run_events(mocked, messages=[user_json("m1", "hello")])
    assert text_of(events) == "Hi there, friend!"
    assert events[-1]["outcome"] == {"type": "success"}


def test_aimock_tools(mocked: Any) -> None:
    events = run_events(mocked, messages=[user_json("m1", "weather in one")])
    assert [event["content"] for event in of_type(events, "TOOL_CALL_RESULT")] == ["Oslo: 3 degrees"]
    assert text_of(events) == "That is done."


def test_aimock_parallel_tools(mocked: Any) -> None:
    events = run_events(mocked, messages=[user_json("m1", "weather in two")])
    results = sorted(event["content"] for event in of_type(events, "TOOL_CALL_RESULT"))
    assert results == ["Oslo: 3 degrees", "Rome: 3 degrees"]
    assert len({event["parentMessageId"] for event in of_type(events, "TOOL_CALL_START")}) == 1
    assert text_of(events) == "That is done."


def test_aimock_frontend_tools(mocked: Any) -> None:
    first = run_events(mocked, messages=[user_json("m1", "date")], tools=[PICK_DATE])
    (call,) = of_type(first, "TOOL_CALL_START")
    assert of_type(first, "TOOL_CALL_RESULT") == []
    assert first[-1]["outcome"] == {"type": "success", "pendingToolCallIds": [call["toolCallId"]]}
    history = json.loads(_messages(first, "date"))
    answer = {"id": "t1", "role": "tool", "toolCallId": call["toolCallId"], "content": "12 May"}
    second = run_events(mocked, run_id="r2", messages=[*history, answer], tools=[PICK_DATE])
    assert text_of(second) == "That is done."


def test_aimock_approval(mocked: Any) -> None:
    paid.clear()
    first = run_events(mocked, messages=[user_json("m1", "pay")])
    (interrupt,) = first[-1]["outcome"]["interrupts"]
    (call,) = of_type(first, "TOOL_CALL_START")
    assert (interrupt["reason"], interrupt["toolCallId"]) == ("tool_call", call["toolCallId"])
    assert paid == []
    answer = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
    second = run_events(mocked, run_id="r2", messages=[user_json("m1", "pay")], resume=answer)
    assert paid == [900]
    assert [event["content"] for event in of_type(second, "TOOL_CALL_RESULT")] == ["paid 900"]
    assert of_type(second, "TOOL_CALL_START") == []
    assert text_of(second) == "That is done."


def test_aimock_images(mocked: Any) -> None:
    source = {"type": "data", "value": base64.b64encode(PIXEL).decode(), "mimeType": "image/png"}
    parts = [{"type": "text", "text": "look"}, {"type": "image", "source": source}]
    events = run_events(mocked, messages=[{"id": "m1", "role": "user", "content": parts}])
    assert text_of(events) == "A single blue pixel."


def test_aimock_reasoning(mocked: Any) -> None:
    events = run_events(mocked, messages=[user_json("m1", "think")])
    assert "".join(event["delta"] for event in of_type(events, "REASONING_MESSAGE_CONTENT")) == "Let me think."
    assert text_of(events) == "42."


def test_aimock_usage(mocked: Any, provider: str) -> None:
    events = run_events(mocked, messages=[user_json("m1", "count")])
    (usage,) = events[-1]["usage"]
    assert (usage["provider"], usage["model"]) == (VENDOR[provider], MODELS[provider])
    assert usage["totalTokens"] == usage["inputTokens"] + usage["outputTokens"]
    assert usage["inputTokens"] in (30, 90, 100)
    assert usage["outputTokens"] in (15, 20)


def test_aimock_length(mocked: Any, provider: str) -> None:
    events = run_events(mocked, messages=[user_json("m1", "tell")])
    assert text_of(events) == "Once upon"
    # Its Responses are incomplete and do not say why.
    reason = "other" if provider == "openai responses" else "length"
    assert [event["value"]["reason"] for event in of_type(events, "CUSTOM")] == [reason]


def test_aimock_refusal(mocked: Any, provider: str) -> None:
    """It knows a filter and no refusal: to Anthropic that is no reason, and its Responses fail over it."""
    events = run_events(mocked, messages=[user_json("m1", "forbid")])
    assert text_of(events) == "I will"
    if provider == "openai responses":
        assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "provider_unavailable")
        return
    reason = "other" if provider == "anthropic" else "content_filter"
    assert [event["value"]["reason"] for event in of_type(events, "CUSTOM")] == [reason]


def test_aimock_error(mocked: Any, caplog: pytest.LogCaptureFixture) -> None:
    events = run_events(mocked, messages=[user_json("m1", "fail")])
    assert events[-1]["type"] == "RUN_ERROR"
    assert events[-1]["code"] == "provider_rate_limit"
    assert "sk-123" not in json.dumps(events)
    assert "sk-123" in caplog.text  # the operator may see it


def test_aimock_mixed_tools_in_one_turn(mocked: Any) -> None:
    """Backend, front end and approval at once: results first, then the question, and only then the front end's call."""
    paid.clear()
    first = run_events(mocked, messages=[user_json("m1", "mixed")], tools=[PICK_DATE])
    assert [event["toolCallName"] for event in of_type(first, "TOOL_CALL_START")] == ["weather", "pay"]
    (interrupt,) = first[-1]["outcome"]["interrupts"]
    payload = {"approved": False, "reason": "too much"}
    answer = [{"interruptId": interrupt["id"], "status": "resolved", "payload": payload}]
    second = run_events(mocked, run_id="r2", messages=[user_json("m1", "mixed")], tools=[PICK_DATE], resume=answer)
    assert paid == []
    (told,) = of_type(second, "TOOL_CALL_RESULT")
    assert "too much" in told["content"]
    (call,) = of_type(second, "TOOL_CALL_START")
    assert call["toolCallName"] == "pick_date"
    assert second[-1]["outcome"] == {"type": "success", "pendingToolCallIds": [call["toolCallId"]]}


def _messages(events: Events, said: str) -> str:
    """Return the conversation after some events, as a client sends it again."""
    from aguila.codec import decode, encode
    from aguila.protocol import UserMessage

    first = decode(json.dumps(user_json("m1", said)), UserMessage)
    return encode(consume(events, messages=[first]).messages).decode()


# Recorded-style streams


@pytest.fixture
def replying(provider: str, answering: Callable[..., tuple[Any, Recorded]]) -> Callable[..., tuple[Any, Recorded]]:
    """Starts an agent of the provider whose model server answers with these turns."""

    def start(*answers: Any, **options: Any) -> tuple[Any, Recorded]:
        return answering(provider, *answers, **{"tools": TOOLS, **options})

    return start


Start = Callable[..., tuple[Any, Recorded]]


def check_request(provider: str, request: Json) -> None:
    """Check that the rules of a provider accept the request that it received."""
    assert WIRE_CHECKERS[provider](request) == []


def test_recorded_text(replying: Start, provider: str) -> None:
    server, recorded = replying({"text": "Hello world"}, instructions="Be brief.")
    context = [{"description": "Where the user is", "value": "Oslo"}]
    events = run_events(server, messages=[user_json("m1", "Hi")], context=context)
    assert text_of(events) == "Hello world"
    check_request(provider, recorded.requests[0])
    sent = json.dumps(recorded.requests[0])
    assert "Be brief." in sent
    assert "Where the user is: Oslo" in sent
    assert "Be brief." not in json.dumps(events)  # instructions are the model's alone


def test_recorded_tools(replying: Start, provider: str) -> None:
    call = ("call_0", "weather", {"city": "Oslo"})
    server, recorded = replying({"text": "I look.", "calls": [call]}, {"calls": [call]}, {"text": "3 degrees."})
    events = run_events(server, messages=[user_json("m1", "Weather?")])
    started = of_type(events, "TOOL_CALL_START")
    assert len({event["toolCallId"] for event in started}) == 2  # a server that repeats its ids is no reason to fail
    assert [event["content"] for event in of_type(events, "TOOL_CALL_RESULT")] == ["Oslo: 3 degrees"] * 2
    for request in recorded.requests:
        check_request(provider, request)
    assert "Oslo: 3 degrees" in json.dumps(recorded.requests[1])
    assert "I look." in json.dumps(recorded.requests[1])


def test_recorded_parallel_tools(replying: Start, provider: str) -> None:
    calls = [("c1", "weather", {"city": "Oslo"}), ("c2", "weather", {"city": "Rome"}), ("c3", "nobody", {})]
    server, recorded = replying({"calls": calls}, {"text": "Done."})
    events = run_events(server, messages=[user_json("m1", "Weather?")])
    results = sorted(event["content"] for event in of_type(events, "TOOL_CALL_RESULT"))
    assert results == [
        "Oslo: 3 degrees",
        "Rome: 3 degrees",
        "Unknown tool name: 'nobody'. Available tools: 'pay', 'weather'",
    ]
    check_request(provider, recorded.requests[1])
    assert text_of(events) == "Done."


def test_recorded_frontend_tools(replying: Start) -> None:
    calls = [("c1", "pick_date", {"month": "May"}), ("c2", "weather", {"city": "Oslo"})]
    server, recorded = replying({"calls": calls}, tools=[weather])
    events = run_events(server, messages=[user_json("m1", "When?")], tools=[PICK_DATE])
    (result,) = of_type(events, "TOOL_CALL_RESULT")
    assert result["content"] == "Oslo: 3 degrees"
    (picked,) = [one for one in of_type(events, "TOOL_CALL_START") if one["toolCallName"] == "pick_date"]
    assert events[-1]["outcome"] == {"type": "success", "pendingToolCallIds": [picked["toolCallId"]]}
    assert len(recorded.requests) == 1
    assert "pick_date" in json.dumps(recorded.requests[0])


def test_recorded_mixed_tools_in_one_turn(replying: Start, provider: str) -> None:
    """The same as of aimock, and all results are there when the model is asked again."""
    paid.clear()
    calls = [("c1", "weather", {"city": "Oslo"}), ("c2", "pick_date", {"month": "May"}), ("c3", "pay", {"amount": 900})]
    thread, recorded = replying({"calls": calls}, {"text": "Done."})
    first = run_events(thread, messages=[user_json("m1", "mixed")], tools=[PICK_DATE])
    assert [event["toolCallName"] for event in of_type(first, "TOOL_CALL_START")] == ["weather", "pay"]
    (interrupt,) = first[-1]["outcome"]["interrupts"]
    answer = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
    second = run_events(thread, run_id="r2", messages=[user_json("m1", "mixed")], tools=[PICK_DATE], resume=answer)
    assert paid == [900]
    (call,) = of_type(second, "TOOL_CALL_START")
    assert second[-1]["outcome"] == {"type": "success", "pendingToolCallIds": [call["toolCallId"]]}
    picked = {"id": "t9", "role": "tool", "toolCallId": call["toolCallId"], "content": "the third"}
    third = [*json.loads(_messages([*first, *second], "mixed")), picked]
    assert text_of(run_events(thread, run_id="r3", messages=third, tools=[PICK_DATE])) == "Done."
    check_request(provider, recorded.requests[1])
    for result in ("Oslo: 3 degrees", "paid 900", "the third"):
        assert result in json.dumps(recorded.requests[1])


def test_recorded_approval(replying: Start, provider: str) -> None:
    """Two calls need approval: one question each, in one run; the model is not asked again on resumption."""
    paid.clear()
    calls = [("c1", "pay", {"amount": 1}), ("c2", "weather", {"city": "Oslo"}), ("c3", "pay", {"amount": 2})]
    server, recorded = replying(
        {"text": "I pay.", "calls": calls, "usage": USAGE[provider]}, {"text": "Paid.", "usage": USAGE[provider]}
    )
    first = run_events(server, messages=[user_json("m1", "Pay")])
    interrupts = first[-1]["outcome"]["interrupts"]
    assert len(interrupts) == 2
    assert first[-1]["usage"][0]["inputTokens"] == 100
    payloads = [{"approved": True, "editedArgs": {"amount": 10}}, {"approved": False}]
    answers = [
        {"interruptId": one["id"], "status": "resolved", "payload": payload}
        for one, payload in zip(interrupts, payloads, strict=True)
    ]
    second = run_events(server, run_id="r2", messages=[user_json("m1", "Pay")], resume=answers)
    assert paid == [10]
    assert len(recorded.requests) == 2
    assert text_of(second) == "Paid."
    assert second[-1]["usage"][0]["inputTokens"] == 100  # only its own calls (USE-9)
    results = {event["toolCallId"]: event["content"] for event in of_type(second, "TOOL_CALL_RESULT")}
    assert results == {
        interrupts[0]["toolCallId"]: "paid 10",
        interrupts[1]["toolCallId"]: "The user did not allow this call.",
    }
    check_request(provider, recorded.requests[1])


def test_recorded_images(replying: Start, provider: str) -> None:
    """By data and by URL. A part that the model cannot read is skipped, and the run continues (IN-6)."""
    data = base64.b64encode(PIXEL).decode()
    parts = [
        {"type": "text", "text": "Look"},
        {"type": "image", "source": {"type": "data", "value": data, "mimeType": "image/png"}},
        {"type": "image", "source": {"type": "url", "value": "https://a.example/x.png", "mimeType": "image/png"}},
        {"type": "document", "source": {"type": "data", "value": "JVBERg==", "mimeType": "application/pdf"}},
        {"type": "image", "source": {"type": "file", "value": "foreign-handle", "provider": "elsewhere"}},
        {"type": "document", "source": {"type": "data", "value": "AAAA", "mimeType": "application/x-unknown"}},
    ]
    server, recorded = replying({"text": "A pixel."})
    assert text_of(run_events(server, messages=[{"id": "m1", "role": "user", "content": parts}])) == "A pixel."
    sent = json.dumps(recorded.requests[0])
    check_request(provider, recorded.requests[0])
    assert data in sent
    # The model of Gemini loads addresses itself. One that cannot be loaded is left out.
    assert ("https://a.example/x.png" in sent) == (provider != "gemini")
    assert "JVBERg==" in sent
    assert "foreign-handle" not in sent
    assert "x-unknown" not in sent


def test_recorded_reasoning(replying: Start, provider: str) -> None:
    """Reasoning is sent, and values that the model wants back return: in the run and with the next turn (P18)."""
    call = ("c1", "weather", {"city": "Oslo"})
    signature = "c2lnbmF0dXJl"
    server, recorded = replying(
        {"thought": ("I wonder.", signature), "calls": [call]},
        {"thought": ("I see.", signature), "text": "Cold."},
        {"text": "Bye."},
    )
    events = run_events(server, messages=[user_json("m1", "Weather?")])
    assert "".join(event["delta"] for event in of_type(events, "REASONING_MESSAGE_CONTENT")) == "I wonder.I see."
    history = json.loads(_messages(events, "Weather?"))
    run_events(server, run_id="r2", messages=[*history, {"id": "m9", "role": "user", "content": "Thanks"}])
    for request in recorded.requests:
        check_request(provider, request)
    if provider == "openai chat":  # no signature: the thoughts themselves, with the calls they led to
        thoughts = [[one.get("reasoning_content") for one in request["messages"]] for request in recorded.requests]
        assert thoughts == [[None], [None, "I wonder.", None], [None, "I wonder.", None, "I see.", None]]
        return
    if provider == "mistral":  # the same, as chunks of the content
        assert [json.dumps(request).count("I wonder.") for request in recorded.requests] == [0, 1, 1]
        assert "I see." in json.dumps(recorded.requests[2])
        return
    assert signature in json.dumps(recorded.requests[1])
    assert json.dumps(recorded.requests[2]).count(signature) >= (1 if provider == "openai responses" else 2)


def test_recorded_usage(replying: Start, provider: str) -> None:
    """Totals include their parts, whatever the provider's own do (USE-2, USE-3, USE-4)."""
    server, _ = replying({"text": "One.", "usage": USAGE[provider]})
    (usage,) = run_events(server, messages=[user_json("m1", "Count")])[-1]["usage"]
    expected = {
        "provider": VENDOR[provider],
        "model": "m",  # as the server says
        "inputTokens": 100,
        "outputTokens": 20,
        "totalTokens": 120,
        "reasoningTokens": 5,
        "cachedInputTokens": 60,
        "cacheWriteInputTokens": 10,
    }
    if provider == "gemini":
        del expected["cacheWriteInputTokens"]  # it does not say, and unknown is not zero (USE-5)
    if provider == "mistral":
        expected = {name: value for name, value in expected.items() if name not in PARTS}
    assert usage == expected


def test_recorded_refusal(replying: Start) -> None:
    server, _ = replying({"refusal": "I will not do that."})
    events = run_events(server, messages=[user_json("m1", "Do it")])
    assert text_of(events) == "I will not do that."
    (custom,) = of_type(events, "CUSTOM")
    assert custom["name"] == "aguila.finish_reason"
    assert custom["value"]["reason"] in ("refusal", "content_filter")


def test_recorded_length(replying: Start) -> None:
    server, _ = replying({"text": "Once upon", "finish": "length"})
    events = run_events(server, messages=[user_json("m1", "Tell")])
    assert [event["value"]["reason"] for event in of_type(events, "CUSTOM")] == ["length"]
    assert events[-1]["outcome"] == {"type": "success"}


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "provider_rejected"),
        (401, "provider_auth"),
        (404, "provider_not_found"),
        (429, "provider_rate_limit"),
        (500, "provider_unavailable"),
    ],
)
def test_recorded_error(replying: Start, status: int, code: str) -> None:
    body = json.dumps({"error": {"message": "secret sk-123", "type": "x", "code": status}}).encode()
    server, _ = replying((status, body))
    events = run_events(server, messages=[user_json("m1", "Hi")])
    assert types(events) == ["RUN_STARTED", "RUN_ERROR"]
    assert events[-1]["code"] == code
    assert "sk-123" not in json.dumps(events)


IN_THE_STREAM = {
    "openai chat": {"error": {"message": "sk-123", "code": "x"}},
    "openai responses": {"type": "error", "code": "server_error", "message": "sk-123", "sequence_number": 9},
    "anthropic": {"type": "error", "error": {"type": "overloaded_error", "message": "sk-123"}},
    "gemini": {"error": {"code": 503, "message": "sk-123", "status": "UNAVAILABLE"}},
    "mistral": {"object": "error", "message": "sk-123", "type": "server_error", "code": "3000"},
}


def _cut(answer: tuple[int, bytes]) -> list[bytes]:
    """Return the frames of an answer up to its text, without those that end it."""
    made = [frame + b"\n\n" for frame in answer[1].split(b"\n\n")]
    last = next(index for index, frame in enumerate(made) if b"upon" in frame)
    return made[: last + 1]


def test_an_error_in_the_stream_ends_the_run_after_what_was_said(replying: Start, provider: str) -> None:
    frames = _cut(stream(provider, text="Once upon"))
    error = IN_THE_STREAM[provider]
    named = f"event: {error['type']}\n" if "type" in error else ""
    frames.append(f"{named}data: {json.dumps(error)}\n\n".encode())
    server, _ = replying((200, b"".join(frames)))
    events = run_events(server, messages=[user_json("m1", "Tell")])
    assert text_of(events) == "Once upon"
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "provider_unavailable")
    assert "sk-123" not in json.dumps(events)


def test_a_stream_that_breaks_off_is_no_success(replying: Start, provider: str) -> None:
    server, _ = replying((200, b"".join(_cut(stream(provider, text="Once upon")))))
    events = run_events(server, messages=[user_json("m1", "Tell")])
    assert text_of(events) == "Once upon"
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "provider_truncated")


def test_an_error_after_tools_has_the_usage_until_then(replying: Start, provider: str) -> None:
    call = ("c1", "weather", {"city": "Oslo"})
    server, _ = replying({"calls": [call], "usage": USAGE[provider]}, (500, b'{"error": {"message": "no"}}'))
    last = run_events(server, messages=[user_json("m1", "Weather?")])[-1]
    assert (last["type"], last["usage"][0]["totalTokens"]) == ("RUN_ERROR", 120)


def test_an_agent_stops_after_its_rounds_life_8(replying: Start) -> None:
    turn = {"calls": [("c1", "weather", {"city": "Oslo"})]}
    server, recorded = replying(turn, turn, turn, max_rounds=2)
    *_, custom, last = run_events(server, messages=[user_json("m1", "Weather?")])
    assert (last["type"], last["outcome"]) == ("RUN_FINISHED", {"type": "cancelled"})
    assert (custom["name"], custom["value"]["reason"]) == ("aguila.finish_reason", "max_rounds")
    assert "2 rounds" in custom["value"]["message"]
    assert len(recorded.requests) == 2


# The table

TESTS = {
    **{one: one for one in ("text", "tools", "approval", "images", "reasoning", "usage", "refusal", "error")},
    "parallel tools": "parallel_tools",
    "frontend tools": "frontend_tools",
    "cut off": "length",
    "mixed tools": "mixed_tools_in_one_turn",
}
"""The scenarios of the table, and how their tests are named after ``test_aimock_`` and ``test_recorded_``."""
IN_TEST_HISTORY = {
    "edited arguments": "test_arguments_that_the_user_edited_are_sent_to_the_model",
    "text after calls": "test_text_after_calls_stands_after_them_in_later_runs_too",
    "citations": "test_citations_of_anthropic_keep_their_place",
}
"""Scenarios of which aimock has nothing, and where they are tested."""


def test_the_table_in_the_docs_has_a_test_for_every_cell() -> None:
    page = (REPOSITORY / "docs" / "models.md").read_text()
    table = page.partition("## What is tested, and against what")[2]
    rows = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[0] not in ("scenario", "---"):
            rows[cells[0]] = cells[1:]
    assert set(rows) == {*TESTS, *IN_TEST_HISTORY}
    history = Path(__file__).with_name("test_history.py").read_text()
    for scenario, cells in rows.items():
        assert "" not in cells
        if scenario in IN_TEST_HISTORY:
            assert f"def {IN_TEST_HISTORY[scenario]}" in history
            continue
        for cell in cells:
            for server in ("aimock", "recorded"):
                assert (server in cell) == (f"test_{server}_{TESTS[scenario]}" in globals()), (scenario, cell)
