"""Answers of models beyond the matrix: each part is shown, kept for the next request, or named in a notice."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import threading
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from google.genai import types
from models.answers import blocks, call_part, history, items, next_turn, of_type, parts, resumed, use
from models.model_server import CUT, PROVIDERS, Recorded, frames, sse, stream
from models.request_checkers import check_gemini, from_gemini_wire
from serving import text_of

from aguila.chat import FunctionCallContent, TextContent, as_chat_messages, as_event_stream
from aguila.protocol import RunAgentInput, ToolMessage, UserMessage
from aguila.providers import Prompt, anthropic, gemini, tool
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


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), StopIteration()]
)
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
    thread, recorded = answering(provider, {"calls": calls}, {"text": "Done."}, tools=[cut], instructions="Be \ud83d")
    events = thread.send("x\ud83d y\ud83d\ude00")
    assert [one["content"] for one in of_type(events, "TOOL_CALL_RESULT")] == ["\ud800 \ud83d"]
    assert text_of(events) == "Done."
    sent = json.dumps(recorded.requests[-1], ensure_ascii=False)
    assert "x\ufffd y\U0001f600" in sent
    assert "\ufffd \ufffd" in sent
    assert "Be \ufffd" in sent
    assert sent.encode().decode() == sent
    assert "lone surrogates" in caplog.text


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_empty_answer_sends_a_custom_event(answering: Start, provider: str) -> None:
    thread, _ = answering(provider, {"text": ""})
    events = thread.send("Hi")
    assert [event["value"]["reason"] for event in of_type(events, "CUSTOM")] == ["empty"]
    assert events[-1]["outcome"] == {"type": "success"}


def test_no_key_is_a_matter_of_credentials(thread_for: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from anthropic import AsyncAnthropic

    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    agent = anthropic.agent(AsyncAnthropic(base_url="http://127.0.0.1:9", max_retries=0), model="m")
    assert thread_for(agent).send("Hi")[-1]["code"] == "provider_auth"


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


def test_blocks_of_anthropic_may_come_whole_when_they_begin(answering: Start) -> None:
    made = [
        {"type": "thinking", "thinking": "Hm.", "signature": "SIG"},
        {"type": "text", "text": "I look."},
        use("c1", "Oslo"),
    ]
    thread, recorded = answering("anthropic", at_once(*made, stop="tool_use"), {"text": "Cold."}, tools=[weather])
    events = thread.send("Hi")
    assert [one["content"] for one in of_type(events, "TOOL_CALL_RESULT")] == ["Oslo: 3 degrees"]
    assert [one["delta"] for one in of_type(events, "TOOL_CALL_ARGS")] == ['{"city":"Oslo"}']
    assert recorded.requests[1]["messages"][1]["content"] == made


def test_arguments_that_come_with_the_block_and_after_it_count_once(answering: Start) -> None:
    status, body = blocks(use("c1", "Oslo"), stop="tool_use")
    twice = body.replace(b'"input": {}', b'"input": {"city": "Oslo"}')
    assert twice != body
    thread, _ = answering("anthropic", (status, twice), {"text": "Cold."}, tools=[weather])
    assert [one["content"] for one in of_type(thread.send("Hi"), "TOOL_CALL_RESULT")] == ["Oslo: 3 degrees"]


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


def test_blocks_of_the_providers_own_tools_are_kept_for_the_model_with_a_notice(
    answering: Start, caplog: pytest.LogCaptureFixture
) -> None:
    said = {"type": "text", "text": "It is cold."}
    thread, recorded = answering("anthropic", blocks(*SEARCH, said), {"text": "Bye."})
    events = thread.send("Hi")
    assert "server_tool_use" in caplog.text
    next_turn(thread, events)
    assert recorded.requests[1]["messages"][1]["content"] == [*SEARCH, said]


def test_a_call_of_the_providers_own_tool_without_its_result_is_not_sent_back(answering: Start) -> None:
    thread, recorded = answering(
        "anthropic", blocks(SEARCH[0], {"type": "text", "text": "I search."}), {"text": "Bye."}
    )
    next_turn(thread, thread.send("Hi"))
    assert recorded.requests[1]["messages"][1]["content"] == [{"type": "text", "text": "I search."}]


def test_files_that_anthropics_tools_made_go_back_and_blocks_of_its_betas_are_left_out(
    answering: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Each notice says how its block is treated."""
    upload = {"type": "container_upload", "file_id": "file_1"}
    summary = {"type": "compaction", "content": "They talked."}
    made = [summary, upload, use("c1", "Oslo")]
    answers = ({"text": "Cold."}, {"text": "Bye."})
    thread, recorded = answering("anthropic", blocks(*made, stop="tool_use"), *answers, tools=[weather])
    events = thread.send("Hi")
    next_turn(thread, events)
    assert recorded.requests[1]["messages"][1]["content"] == made[1:]
    assert recorded.requests[2]["messages"][1]["content"] == made[1:]
    notices = [record.getMessage() for record in caplog.records if "the model returned" in record.getMessage()]
    assert "'compaction': its block is dropped" in notices[0]
    assert "'container_upload': its block is kept for the model" in notices[1]
    assert len(notices) == 2


def test_a_paused_answer_goes_back_as_it_is(answering: Start) -> None:
    paused = [{"type": "text", "text": "I search."}, SEARCH[0]]
    rest = blocks(SEARCH[1], {"type": "text", "text": "Cold."})
    thread, recorded = answering("anthropic", blocks(*paused, stop="pause_turn"), rest)
    events = thread.send("Hi")
    assert recorded.requests[1]["messages"][1:] == [{"role": "assistant", "content": paused}]
    assert text_of(events) == "I search.Cold."


def test_tools_in_the_options_are_added_to_the_agents_own(answering: Start) -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    made = {"anthropic": search, "openai chat": {"type": "custom", "custom": {"name": "s"}}}
    made |= {"openai responses": {"type": "web_search"}, "gemini": {"google_search": {}}}
    for provider in PROVIDERS:
        options = {"tools": [made[provider]]}
        thread, recorded = answering(provider, {"text": "Hi."}, tools=[weather], options=options)
        thread.send("Hi", tools=[FRONT])
        sent = json.dumps(recorded.requests[0]["tools"])
        assert ("weather" in sent, "front" in sent) == (True, True)
        assert len(recorded.requests[0]["tools"]) == (2 if provider == "gemini" else 3)


async def test_a_call_of_anthropic_ends_with_its_block_and_not_with_the_answer() -> None:
    def event(type_: str, **members: Any) -> Any:
        return SimpleNamespace(type=type_, **members)

    async def events() -> AsyncIterator[Any]:
        yield event("message_start", message=SimpleNamespace(id="m", usage=None))
        begun = SimpleNamespace(type="tool_use", id="c1", name="f", input={})
        yield event("content_block_start", index=0, content_block=begun)
        piece = SimpleNamespace(type="input_json_delta", partial_json='{"a":1}')
        yield event("content_block_delta", index=0, delta=piece)
        yield event("content_block_stop", index=0)
        later = SimpleNamespace(type="text", text="later")
        yield event("content_block_start", index=1, content_block=later)

    found = [content async for update in anthropic.updates(events(), model="m") for content in update.contents]
    ends = [one.is_complete for one in found if isinstance(one, FunctionCallContent)]
    assert ends == [False, False, True]
    assert isinstance(found[-1], TextContent)


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


MARK = base64.urlsafe_b64encode(gemini.UNSIGNED).decode()


def without_mark(part: Json) -> Json:
    return {name: value for name, value in part.items() if name != "thoughtSignature"}


@pytest.mark.parametrize("kind", SIGNED)
def test_a_signature_of_gemini_goes_back_with_the_part_it_came_with_p18(answering: Start, kind: str) -> None:
    """Within the run, and with the next turn; a pay tool holds front-end calls back, and changes nothing.

    Within the run the first call must be signed: that of a model which signs otherwise is marked as unsigned.
    """
    made = SIGNED[kind]
    thread, recorded = answering("gemini", parts(*made), {"text": "Cold."}, {"text": "Bye."}, tools=[weather, pay])
    events = thread.send("Hi")
    sent = recorded.requests[1]["contents"][1]["parts"]
    assert check_gemini(from_gemini_wire(recorded.requests[1])) == []
    assert [part if part.get("thoughtSignature") != MARK else without_mark(part) for part in sent] == made
    next_turn(thread, events)
    assert recorded.requests[2]["contents"][1]["parts"] == made


def test_a_signature_after_a_front_ends_call_goes_back_although_the_call_was_held_back(answering: Start) -> None:
    made = [{"functionCall": {"id": "c1", "name": "front", "args": {}}}, {"text": "", "thoughtSignature": "QQ=="}]
    thread, recorded = answering("gemini", parts(*made), {"text": "Bye."}, tools=[pay])
    events = thread.send("Hi", tools=[FRONT])
    answer = {"id": "t1", "role": "tool", "toolCallId": "c1", "content": "done"}
    thread.events(run_id="r2", messages=[*history(events), answer], tools=[FRONT])
    call, signature = recorded.requests[1]["contents"][1]["parts"]
    assert [without_mark(call), signature] == made


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


@pytest.mark.parametrize(
    ("made", "sent"),
    [
        ([{"text": "One "}, {"text": "two."}, {"text": "", "thoughtSignature": "QQ=="}], ["One two.", ""]),
        ([{"text": "One "}, {"text": "two.", "thoughtSignature": "QQ=="}], ["One ", "two."]),
        ([{"text": "One ", "thoughtSignature": "QQ=="}, {"text": "two."}, {"text": " 3"}], ["One ", "two. 3"]),
    ],
)
def test_a_signed_text_is_not_joined_with_another(answering: Start, made: list[Json], sent: list[str]) -> None:
    thread, recorded = answering("gemini", parts(*made), {"text": "Bye."})
    next_turn(thread, thread.send("Hi"))
    back = recorded.requests[1]["contents"][1]["parts"]
    assert [part["text"] for part in back] == sent
    signed = next(part["text"] for part in made if "thoughtSignature" in part)
    assert [part["text"] for part in back if "thoughtSignature" in part] == [signed]


async def test_a_signature_survives_an_agent_that_hands_on_the_updates_of_a_model() -> None:
    """ENC-1: through ``as_event_stream``, a client's history and the next request."""
    made = [
        {"text": "One "},
        {"text": "two.", "thought_signature": b"A"},
        {"function_call": {"id": "c1", "name": "weather", "args": {}}, "thought_signature": b"B"},
    ]

    async def responses() -> AsyncIterator[Any]:
        for part in made:
            candidate = {"content": {"role": "model", "parts": [part]}}
            yield types.GenerateContentResponse.model_validate({"candidates": [candidate], "response_id": "r"})

    given = RunAgentInput(thread_id="t", run_id="r", messages=[])
    updates = gemini.updates(responses(), model="m")
    events = [event async for event in as_event_stream(updates, given)]
    messages = [
        UserMessage(id="u", content="Hi"),
        *consume(events).messages,
        ToolMessage(id="t", tool_call_id="c1", content="ok"),
    ]
    sent = gemini.request(Prompt(messages=as_chat_messages(messages)), model="m")
    assert sent["contents"][1]["parts"] == made


@pytest.mark.parametrize(
    ("given", "ids"),
    [
        (["x", "x", "x"], ["x", "x_2", "x_3"]),
        ([None, None], ["call_1", "call_2"]),
        (["call_2", None], ["call_2", "call_3"]),
    ],
)
def test_every_call_of_gemini_is_one_of_its_own_whatever_its_id(
    answering: Start, given: list[str | None], ids: list[str]
) -> None:
    def call(call_id: str | None, city: str) -> Json:
        named = {} if call_id is None else {"id": call_id}
        return {"functionCall": {**named, "name": "weather", "args": {"city": city}}}

    made = [call(call_id, f"City {number}") for number, call_id in enumerate(given)]
    thread, recorded = answering("gemini", parts(*made), {"text": "Cold."}, tools=[weather])
    events = thread.send("Hi")
    assert [one["toolCallId"] for one in of_type(events, "TOOL_CALL_START")] == ids
    answers = [one["functionResponse"] for one in recorded.requests[1]["contents"][2]["parts"]]
    told = [(one["id"], one["response"]["result"]) for one in answers]
    assert told == [(call_id, f"City {number}: 3 degrees") for number, call_id in enumerate(ids)]
    assert check_gemini(from_gemini_wire(recorded.requests[1])) == []


def test_thoughts_of_gemini_without_a_signature_are_shown_and_not_sent_back(answering: Start) -> None:
    made = [{"text": "Hm.", "thought": True}, {"text": "Hi."}]
    thread, recorded = answering("gemini", parts(*made), {"text": "Bye."})
    events = thread.send("Hi")
    assert of_type(events, "REASONING_MESSAGE_CONTENT")[0]["delta"] == "Hm."
    next_turn(thread, events)
    assert recorded.requests[1]["contents"][1]["parts"] == [{"text": "Hi."}]


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


def test_parts_of_geminis_own_tools_are_kept_for_the_model_with_a_notice(
    answering: Start, caplog: pytest.LogCaptureFixture
) -> None:
    made = [
        {"executableCode": {"language": "PYTHON", "code": "print(1)"}, "thoughtSignature": "QQ=="},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"text": "It is 1."},
    ]
    thread, recorded = answering("gemini", parts(*made), {"text": "Bye."})
    events = thread.send("Compute")
    assert "executable_code" in caplog.text
    next_turn(thread, events)
    assert recorded.requests[1]["contents"][1]["parts"] == made


@pytest.mark.parametrize("reason", ["OTHER", "SOMETHING_NEW"])
def test_an_unknown_finish_reason_is_reported_and_fails_a_run_without_output(answering: Start, reason: str) -> None:
    thread, _ = answering("gemini", parts(finish=reason), parts({"text": "Hm"}, finish=reason))
    last = thread.send("Hi")[-1]
    assert (last["type"], last["code"]) == ("RUN_ERROR", "other")
    events = thread.send("Hi", run_id="r2")
    assert [event["value"]["reason"] for event in of_type(events, "CUSTOM")] == ["other"]


def test_an_unknown_finish_reason_of_the_other_providers_is_reported_too(
    answering: Start, caplog: pytest.LogCaptureFixture
) -> None:
    odd = [
        ("anthropic", blocks(stop="strange")),
        ("openai chat", stream("openai chat", finish="insufficient_system_resource")),
    ]
    for provider, answer in odd:
        thread, _ = answering(provider, answer)
        assert thread.send("Hi")[-1]["code"] == "other"
    assert "insufficient_system_resource" in caplog.text


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


def test_reasoning_content_goes_back_with_the_calls_it_led_to_to_who_gave_it(answering: Start) -> None:
    """DeepSeek refuses calls without reasoning, even if it made them without; text alone is sent back without it."""
    thread, recorded = answering(
        "openai chat",
        chunks({"reasoning_content": "I "}, {"reasoning_content": "wonder."}, call_delta(0, "c1", "Oslo")),
        chunks(call_delta(0, "c2", "Rome")),
        chunks({"reasoning_content": "I see."}, {"content": "Cold."}),
        {"text": "Bye."},
        {"text": "Bye."},
        tools=[weather],
        provider="deepseek",
    )
    events = thread.send("Hi")
    next_turn(thread, events)
    sent = [[one.get("reasoning_content") for one in request["messages"]] for request in recorded.requests]
    within = [None, "I wonder.", None, "", None]
    assert sent[2:] == [within, [*within, None, None]]


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_thoughts_of_one_server_never_go_to_another(answering: Start, field: str) -> None:
    first, _ = answering(
        "openai chat", chunks({field: "Hm."}, call_delta(0, "c1", "Oslo")), {"text": "Cold."}, tools=[weather]
    )
    events = first.send("Hi")
    for provider, name in (("openai chat", "another"), ("openai responses", "openai"), ("anthropic", "anthropic")):
        thread, recorded = answering(provider, {"text": "Bye."}, provider=name)
        next_turn(thread, events)
        assert "Hm." not in json.dumps(recorded.requests[0])


DETAIL = {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1"}


@pytest.mark.parametrize("when", ["before", "with", "after"])
def test_reasoning_details_go_back_with_the_call_they_led_to_to_who_gave_them(answering: Start, when: str) -> None:
    secret = {"type": "reasoning.encrypted", "index": 1, "data": "X"}
    pieces = [[{**DETAIL, "text": "Let "}], [{**DETAIL, "text": "me."}, {**DETAIL, "signature": "S"}], [secret]]
    whole = [{**DETAIL, "text": "Let me.", "signature": "S"}, secret]
    call = call_delta(0, "c1", "Oslo")
    told: list[Json] = [{"reasoning": "hm", "reasoning_details": piece} for piece in pieces]
    deltas = {
        "before": [*told, call],
        "with": [*told[:-1], {**call, "reasoning_details": pieces[-1]}],
        "after": [call, *[{"reasoning_details": piece} for piece in pieces]],
    }
    answers = (chunks(*deltas[when], finish="tool_calls"), {"text": "Cold."}, {"text": "Bye."}, {"text": "Bye."})
    thread, recorded = answering("openai chat", *answers, tools=[weather], provider="openrouter")
    before = thread.send("Hi")
    assert recorded.requests[1]["messages"][1]["reasoning_details"] == whole
    next_turn(thread, before)
    assert recorded.requests[2]["messages"][1]["reasoning_details"] == whole
    assert "reasoning_details" not in recorded.requests[2]["messages"][3]
    other, elsewhere = answering("openai chat", {"text": "Bye."}, tools=[weather], provider="another")
    next_turn(other, before)
    assert "reasoning_details" not in json.dumps(elsewhere.requests[0])


def test_extra_content_goes_back_with_its_call_and_its_message_to_who_gave_it(answering: Start) -> None:
    signed = {"google": {"thought_signature": "SIG"}}
    call = call_delta(0, "c1", "Oslo")
    call["tool_calls"][0]["extra_content"] = signed
    answers = (
        chunks(call, finish="tool_calls"),
        chunks({"content": "Cold."}, {"extra_content": signed}),
        {"text": "Bye."},
    )
    thread, recorded = answering("openai chat", *answers, tools=[weather])
    before = thread.send("Hi")
    assert recorded.requests[1]["messages"][1]["tool_calls"][0]["extra_content"] == signed
    next_turn(thread, before)
    assert recorded.requests[2]["messages"][1]["tool_calls"][0]["extra_content"] == signed
    assert recorded.requests[2]["messages"][3] == {"role": "assistant", "content": "Cold.", "extra_content": signed}
    other, elsewhere = answering("openai chat", {"text": "Bye."}, tools=[weather], provider="another")
    next_turn(other, before)
    assert "extra_content" not in json.dumps(elsewhere.requests[0])


def test_parallel_calls_with_one_id_are_two_calls(answering: Start) -> None:
    same = chunks(
        call_delta(0, "c", "Oslo"), call_delta(1, "c", "Rome"), call_delta(1, "c", None), call_delta(0, "c", None)
    )
    thread, recorded = answering("openai chat", same, {"text": "Cold."}, tools=[weather])
    events = thread.send("Hi")
    results = sorted(event["content"] for event in of_type(events, "TOOL_CALL_RESULT"))
    assert results == ["Oslo: 3 degrees", "Rome: 3 degrees"]
    assert len({call["id"] for call in recorded.requests[1]["messages"][1]["tool_calls"]}) == 2


def test_a_summary_in_several_parts_goes_back_in_the_same_parts_p18(answering: Start) -> None:
    whole = frames(stream("openai responses", thought=("One.", "ENC"), calls=[("c1", "weather", {"city": "Oslo"})]))
    body = b"".join(whole)
    one, two = b'{"type": "summary_text", "text": "One."}', b'{"type": "summary_text", "text": "Two."}'
    body = body.replace(one, one + b", " + two)
    ids = {"item_id": "rs_1", "output_index": 0, "summary_index": 1, "sequence_number": 9}
    more = [
        {"type": "response.reasoning_summary_part.added", **ids, "part": {"type": "summary_text", "text": ""}},
        {"type": "response.reasoning_summary_text.delta", **ids, "delta": "Two."},
    ]
    at = body.index(b"event: response.output_item.done")
    added = sse(more, named=True)[1]
    assert isinstance(added, bytes)
    answer = (200, body[:at] + added + body[at:])
    thread, recorded = answering("openai responses", answer, {"text": "Cold."}, {"text": "Bye."}, tools=[weather])
    events = thread.send("Hi")
    assert "".join(event["delta"] for event in of_type(events, "REASONING_MESSAGE_CONTENT")) == "One.\n\nTwo."
    next_turn(thread, events)
    thought = {"type": "reasoning", "id": "rs_1", "encrypted_content": "ENC"}
    summary = [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}]
    assert [request["input"][1] for request in recorded.requests[1:]] == [{**thought, "summary": summary}] * 2


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


def test_usage_of_a_response_that_failed_is_reported_use_1(answering: Start) -> None:
    made = {"id": "resp", "object": "response", "created_at": 1, "model": "m", "output": [], "status": "failed"}
    error = {"code": "rate_limit_exceeded", "message": "x"}
    failed = {**made, "error": error, "usage": USAGE["openai responses"], "tools": [], "tool_choice": "auto"}
    thread, _ = answering("openai responses", sse([{"type": "response.failed", "response": failed}], named=True))
    last = thread.send("Hi")[-1]
    assert (last["type"], last["code"]) == ("RUN_ERROR", "provider_rate_limit")
    assert last["usage"][0]["inputTokens"] == 10


def test_usage_of_a_chat_completion_that_broke_off_after_it_is_reported_use_1(answering: Start) -> None:
    whole = frames(stream("openai chat", text="Once upon", usage=USAGE["openai chat"]))
    told = [frame for frame in whole if b'"usage": {' in frame]
    thread, _ = answering("openai chat", (200, [*whole[:2], *told, CUT]))
    assert thread.send("Hi")[-1]["usage"][0]["inputTokens"] == 10


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


def test_usage_that_is_repeated_is_counted_once(answering: Start) -> None:
    made = parts({"text": "a"}, {"text": "b"}, {"text": "c"}, usage=USAGE["gemini"])
    thread, _ = answering("gemini", made)
    assert thread.send("Hi")[-1]["usage"][0]["inputTokens"] == 10


BROKEN = b"event: content_block_delta\ndata: {broken\n\n"


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("way", "code"),
    [
        ("ended", "provider_truncated"),
        ("cut", "provider_truncated"),
        ("broken", "provider_malformed"),
        ("cut at once", "provider_truncated"),
    ],
)
def test_the_same_broken_stream_has_the_same_code_with_every_provider(
    answering: Start, provider: str, way: str, code: str
) -> None:
    begun = [frame for frame in frames(stream(provider, text="Once upon")) if b"Once" in frame or b"upon" in frame]
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


def test_items_of_openais_own_tools_are_kept_for_the_model_with_a_notice(
    answering: Start, caplog: pytest.LogCaptureFixture
) -> None:
    answers = (items(THOUGHT, WEB, FOUND, CALL), {"text": "Cold."}, {"text": "Bye."})
    thread, recorded = answering("openai responses", *answers, tools=[weather])
    events = thread.send("Hi")
    assert "web_search_call" in caplog.text
    said = {"role": "assistant", "content": "Found."}
    assert recorded.requests[1]["input"][1:4] == [THOUGHT, WEB, said]
    next_turn(thread, events)
    assert recorded.requests[2]["input"][1:4] == [THOUGHT, WEB, said]


def test_a_thought_that_led_to_what_is_not_sent_back_is_not_sent_back(
    answering: Start, caplog: pytest.LogCaptureFixture
) -> None:
    safe: list[Json] = []
    click = {"type": "computer_call", "id": "cu_1", "call_id": "x", "status": "completed"}
    answer = items(THOUGHT, {**click, "pending_safety_checks": safe}, FOUND)
    thread, recorded = answering("openai responses", answer, {"text": "Bye."})
    next_turn(thread, thread.send("Hi"))
    assert "computer_call" in caplog.text
    assert [one.get("type") for one in recorded.requests[1]["input"]] == [None, None, None]


def test_a_picture_of_openai_is_an_activity_and_seen_again_within_the_run(answering: Start) -> None:
    picture = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "UE5H"}
    answers = (items(THOUGHT, picture, CALL), {"text": "Cold."}, {"text": "Bye."})
    thread, recorded = answering("openai responses", *answers, tools=[weather])
    events = thread.send("Hi")
    (shown,) = of_type(events, "ACTIVITY_SNAPSHOT")
    assert shown["activityType"] == "aguila.file"
    assert shown["content"]["source"] == {"type": "data", "value": "UE5H", "mimeType": "image/png"}
    assert recorded.requests[1]["input"][1:3] == [THOUGHT, picture]
    next_turn(thread, events)
    kinds = [one.get("type") for one in recorded.requests[2]["input"]]
    assert kinds == [None, "function_call", "function_call_output", None, None]


def test_a_picture_of_openai_alone_is_an_answer(answering: Start) -> None:
    picture = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "UE5H"}
    thread, _ = answering("openai responses", items(picture))
    events = thread.send("Hi")
    assert len(of_type(events, "ACTIVITY_SNAPSHOT")) == 1
    assert events[-1]["outcome"] == {"type": "success"}


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_call_that_responses_calls_incomplete_is_not_ended_tool_3(answering: Start, is_streamed: bool) -> None:
    whole = frames(stream("openai responses", calls=[("c1", "front", {"a": "x" * 40})], finish="length"))
    made = [json.loads(frame.partition(b"data: ")[2]) for frame in whole]
    deltas = [event for event in made if event["type"] == "response.function_call_arguments.delta"]
    kept = [event for event in made if event not in (deltas if not is_streamed else deltas[1:])]
    for event in kept:
        if event["type"] == "response.output_item.done":
            event["item"] |= {"status": "incomplete", "arguments": deltas[0]["delta"]}
    thread, _ = answering("openai responses", sse(kept, named=True))
    events = thread.send("Hi", tools=[FRONT])
    assert [event["delta"] for event in of_type(events, "TOOL_CALL_ARGS")] == [deltas[0]["delta"]]
    assert of_type(events, "TOOL_CALL_END") == []
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "length")
