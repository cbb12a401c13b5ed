"""The answers of a model are sent back to it unchanged, in the same run and in every later one."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from models.answers import blocks, call_part, history, items, next_turn, of_type, parts, result_in, resumed, use
from models.model_server import PROVIDERS, Recorded, sse
from models.request_checkers import WIRE_CHECKERS
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from aguila import App
from aguila.chat import ChatMessage, FunctionCallContent, FunctionResultContent, TextContent, ToolError, tool
from aguila.chat.property_keys import METADATA
from aguila.frameworks import pydantic_ai
from aguila.testing import client_for

pytestmark = [
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
    pytest.mark.anyio,
]

Json = dict[str, Any]
Start = Callable[..., tuple[Any, Recorded]]

MIXING = ["openai responses", "anthropic", "gemini"]
"""Where text may stand after calls. In Chat Completions a message has one text, and its calls."""


def weather(city: str) -> str:
    """The weather."""
    return f"{city}: 3 degrees"


@tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def turns(provider: str, sent: Json) -> list[Json]:
    """Return the conversation in a request."""
    return sent[
        {"openai chat": "messages", "openai responses": "input", "anthropic": "messages"}.get(provider, "contents")
    ]


def answer(provider: str, *said: str) -> tuple[int, bytes]:
    """Return an answer that says texts, thinks "?thoughts", and calls "!cities", in this order."""
    made: list[Json] = []
    for number, one in enumerate(said):
        its = one[1:]
        match provider, one[0]:
            case "anthropic", "?":
                made.append({"type": "thinking", "thinking": its, "signature": f"S{number}"})
            case "anthropic", "!":
                made.append(use(f"c{number}", its))
            case "anthropic", _:
                made.append({"type": "text", "text": one})
            case "gemini", "?":
                made.append({"text": its, "thought": True, "thoughtSignature": "QQ=="})
            case "gemini", "!":
                made.append(call_part(its, thoughtSignature="Qg=="))
            case "gemini", _:
                made.append({"text": one})
            case _, "?":
                summary = [{"type": "summary_text", "text": its}]
                made.append({"type": "reasoning", "id": f"r{number}", "summary": summary, "encrypted_content": "E"})
            case _, "!":
                call = {"type": "function_call", "id": f"f{number}", "call_id": f"c{number}", "name": "weather"}
                made.append({**call, "arguments": json.dumps({"city": its}), "status": "completed"})
            case _:
                text = {"type": "output_text", "text": one, "annotations": []}
                made.append({"type": "message", "id": f"m{number}", "role": "assistant", "content": [text]})
                made[-1]["status"] = "completed"
    match provider:
        case "anthropic":
            return blocks(*made, stop="tool_use" if any(one[0] == "!" for one in said) else "end_turn")
        case "gemini":
            return parts(*made)
        case _:
            return items(*made)


# Arguments that the user edited, and errors


@pytest.mark.parametrize("provider", PROVIDERS)
def test_arguments_that_the_user_edited_are_sent_to_the_model_in_this_run_and_in_all_later_ones(
    answering: Start, provider: str
) -> None:
    """The result keeps its bytes; its metadata has the edited arguments, and comes back with the history (META-5)."""
    answers = ({"calls": [("c1", "pay", {"amount": 900})]}, {"text": "Paid."}, {"text": "Bye."})
    thread, recorded = answering(provider, *answers, tools=[pay])
    first = thread.send("Hi")
    second = resumed(thread, first, payload={"approved": True, "editedArgs": {"amount": 10}})
    (answer,) = of_type(second, "TOOL_CALL_RESULT")
    assert (answer["content"], answer["metadata"]) == ("paid 10", {"aguila": {"arguments": {"amount": 10}}})
    next_turn(thread, [*first, *second], run_id="r3")
    _, within, later = [json.dumps(result_in(provider, sent)).replace("\\", "") for sent in recorded.requests]
    assert 'The user changed the arguments to {"amount":10}' in within
    if provider != "gemini":  # whose calls have other ids, made by pydantic-ai, in each run
        assert later == within
    assert "900" in json.dumps(recorded.requests[2])  # the call stays as the model made it


@pytest.mark.parametrize(
    ("edited", "problem"), [({"amount": 5000}, "That is too much."), ({"amount": "x"}, "int_parsing")]
)
def test_the_model_is_told_of_edited_arguments_also_if_the_result_is_an_error(
    thread_for: Any, edited: Json, problem: str
) -> None:
    requests: list[list[ModelMessage]] = []

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        requests.append(messages)
        if len(requests) == 1:
            yield {0: DeltaToolCall("pay", '{"amount": 7}', tool_call_id="c1")}
        else:
            yield "Hm."

    agent = Agent(FunctionModel(stream_function=answer))

    @agent.tool_plain(requires_approval=True, name="pay")
    def refuse(amount: int) -> str:  # pyright: ignore[reportUnusedFunction]
        raise ToolError("That is too much.")

    thread = thread_for(pydantic_ai.agent(agent))
    first = thread.send("Hi")
    second = resumed(thread, first, payload={"approved": True, "editedArgs": edited})
    (result,) = of_type(second, "TOOL_CALL_RESULT")
    assert problem in result["content"]
    assert "changed" not in result["content"]
    next_turn(thread, [*first, *second], run_id="r3")
    for sent in requests[1:]:
        (part,) = [part for message in sent for part in message.parts if isinstance(part, ToolReturnPart)]
        text = part.model_response_str()
        assert text.count("(The user changed the arguments to ") == 1, text
        assert problem in text


@pytest.mark.parametrize("provider", PROVIDERS)
def test_calls_that_were_not_edited_or_were_refused_do_not_mention_edited_arguments(
    answering: Start, provider: str
) -> None:
    calls = [("c1", "pay", {"amount": 900}), ("c2", "pay", {"amount": 7})]
    thread, recorded = answering(provider, {"calls": calls}, {"text": "Paid."}, tools=[pay])
    first = thread.send("Hi")
    payloads = [{"approved": True, "editedArgs": {"amount": 900}}, {"approved": False, "editedArgs": {"amount": 1}}]
    answers = [
        {"interruptId": one["id"], "status": "resolved", "payload": payload}
        for one, payload in zip(first[-1]["outcome"]["interrupts"], payloads, strict=True)
    ]
    second = thread.events(run_id="r2", messages=[], resume=answers)
    assert ["metadata" in one for one in of_type(second, "TOOL_CALL_RESULT")] == [False, False]
    assert "changed the arguments" not in json.dumps(recorded.requests[1])


@pytest.mark.parametrize("provider", ["anthropic", "gemini"])
def test_the_error_of_a_result_is_one_in_the_next_turn_too(answering: Start, provider: str) -> None:
    answers = ({"calls": [("c1", "pay", {"amount": "x"})]}, {"text": "Sorry."}, {"text": "Bye."})
    thread, recorded = answering(provider, *answers, tools=[pay])
    next_turn(thread, thread.send("Hi"))
    _, within, later = [json.dumps(result_in(provider, sent)) for sent in recorded.requests]
    assert ('"is_error": true' if provider == "anthropic" else '"error": "the arguments do not fit') in within
    assert later == within


@pytest.mark.parametrize("own", [None, 3, [], {"arguments": [1], "error": 7}, {"arguments": None}])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_metadata_of_ours_that_is_not_ours_changes_nothing(answering: Start, provider: str, own: Any) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": '{"amount":1}'}}
    told = {"id": "t1", "role": "tool", "toolCallId": "c1", "content": "paid 1"}
    sent: list[Json] = []
    for answer in (told, {**told, "metadata": {"aguila": own}}):
        thread, recorded = answering(provider, {"text": "Done."}, tools=[pay])
        said = {"id": "m1", "role": "user", "content": "Hi"}
        thread.events(messages=[said, {"id": "a1", "role": "assistant", "toolCalls": [call]}, answer])
        sent += recorded.requests
    assert sent[0] == sent[1]


# The order of texts and calls


ORDERS = [
    ["!Oslo", "I look."],
    ["One. ", "!Oslo", "Two. ", "!Rome", "Three."],
    ["?Hm.", "!Oslo", "!Rome", "Both."],
    ["!Oslo", "One. ", "Two.", "!Rome"],
    ["!Oslo", "Grüße 😀", "!Rome", "."],
]


@pytest.mark.parametrize("said", ORDERS, ids=" ".join)
@pytest.mark.parametrize("provider", MIXING)
def test_text_after_calls_stands_after_them_in_later_runs_too(answering: Start, provider: str, said: list[str]) -> None:
    first = answer(provider, *said)
    thread, recorded = answering(provider, first, {"text": "Cold."}, {"text": "Bye."}, tools=[weather])
    events = thread.send("Hi")
    next_turn(thread, events)
    within, later = (turns(provider, sent) for sent in recorded.requests[1:])
    assert later[: len(within)] == within
    told = json.dumps(within, ensure_ascii=False)
    places = [told.index(one.strip("!?")) for one in said if not one.startswith("?")]
    assert places == sorted(places)
    assert WIRE_CHECKERS[provider](recorded.requests[2]) == []


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("provider", MIXING)
def test_what_a_provider_has_read_stays_as_it_was(answering: Start, provider: str, seed: int) -> None:
    """Any answer: reasoning is refused if the content before it has changed, and a cache is of no use then.

    A thought after a call is not among them: AG-UI has results follow the message that called, and it would be another.
    """
    rng = random.Random(seed)
    thoughts = [f"?thought {number}" for number in range(rng.randrange(3))]
    rest = [
        rng.choice(["!Oslo", "!Rome", "!Bonn", "text ", "more "]) + "x" * number
        for number in range(rng.randrange(1, 7))
    ]
    said = [*thoughts, *rest]
    again = [answer(provider, "?again", "!Turin", "and then")] if any(one.startswith("!") for one in said) else []
    answers = [answer(provider, *said), *again, {"text": "Cold."}, {"text": "Bye."}]
    thread, recorded = answering(provider, *answers, tools=[weather])
    next_turn(thread, thread.send("Hi"))
    for before, after in zip(recorded.requests, recorded.requests[1:], strict=False):
        assert turns(provider, after)[: len(turns(provider, before))] == turns(provider, before)


@pytest.mark.parametrize("provider", MIXING)
def test_the_order_is_kept_where_a_question_came_between(answering: Start, provider: str) -> None:
    first = answer(provider, "One. ", "!Oslo", "Two.")
    call = {"functionCall": {"id": "p1", "name": "pay", "args": {"amount": 1}}, "thoughtSignature": "QQ=="}
    asked = parts(call) if provider == "gemini" else {"calls": [("p1", "pay", {"amount": 1})]}
    thread, recorded = answering(provider, first, asked, {"text": "Paid."}, {"text": "Bye."}, tools=[weather, pay])
    one = thread.send("Hi")
    two = resumed(thread, one)
    next_turn(thread, [*one, *two], run_id="r3")
    for before, after in zip(recorded.requests, recorded.requests[1:], strict=False):
        assert turns(provider, after)[: len(turns(provider, before))] == turns(provider, before)


def test_the_order_is_in_the_metadata_of_the_message_and_only_where_it_is_not_as_usual(answering: Start) -> None:
    first = answer("anthropic", "One. ", "!Oslo", "Two.", "!Rome")
    thread, _ = answering("anthropic", first, {"text": "Cold."}, tools=[weather])
    events = thread.send("Hi")
    kept = [
        one.get("metadata") for one in history(events) if one["role"] == "assistant"
    ]  # under our key alone (META-3)
    assert kept == [{"aguila": {"order": [5, "c1", 4]}}, None]
    assert [event.get("metadata") for event in of_type(events, "TEXT_MESSAGE_START")] == [None] * 3


CALLS = [FunctionCallContent("c1", "f", "{}"), FunctionCallContent("c2", "f", "{}")]


@pytest.mark.parametrize(
    "order",
    [
        *[None, 3, [], ["c1"], [3, "c1"], [4, "c1", 1], [2, "c1", "c1", 2], [2, "c9", 2], [-1, "c1", 5]],
        *[[True, "c1", 3], [2.0, "c1", 2.0], [2, None, 2], [0, "c1", 4], [[2], "c1"]],
    ],
    ids=str,
)
def test_an_order_that_does_not_fit_its_message_is_none(order: Any) -> None:
    assert _said({"order": order}) == ["abcd", "c1", "c2"]


def test_an_order_that_fits_is_the_order() -> None:
    assert _said({"order": [1, "c2", 3]}) == ["a", "c2", "bcd", "c1"]


def _said(own: Json) -> list[str]:
    """Return the texts and the ids of the calls that a model gets of an answer with these members."""
    properties = {METADATA: {"aguila": own}}
    message = ChatMessage("assistant", [TextContent("abcd"), *CALLS], additional_properties=properties)
    results = [ChatMessage("tool", [FunctionResultContent(call.call_id, "")]) for call in CALLS]
    made = pydantic_ai.to_model_messages([message, *results])
    return [part.tool_call_id if isinstance(part, ToolCallPart) else part.content for part in made[0].parts]


# Citations

WEB_CITATION = {
    "type": "web_search_result_location",
    "cited_text": "It is cold.",
    "url": "https://a.example/",
    "title": "A",
    "encrypted_index": "X1",
}
SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "s1",
    "content": [{"type": "web_search_result", "url": "https://a.example/", "title": "A", "encrypted_content": "E"}],
}


def citations_in(events: list[Json]) -> list[Json]:
    kept = [one.get("metadata", {}).get("aguila", {}) for one in history(events) if one["role"] == "assistant"]
    return [citation for one in kept for citation in one.get("citations", [])]


def test_citations_of_anthropic_keep_their_place_and_go_back_with_their_blocks(answering: Start) -> None:
    made = [
        SEARCH,
        FOUND,
        {"type": "text", "text": "I found this: "},
        {"type": "text", "text": "it is cold", "citations": [WEB_CITATION, {**WEB_CITATION, "encrypted_index": "X2"}]},
        {"type": "text", "text": ". Bring a coat."},
        use("c1", "Oslo"),
    ]
    first = blocks(*made, stop="tool_use")
    thread, recorded = answering("anthropic", first, {"text": "Cold."}, {"text": "Bye."}, tools=[weather])
    events = thread.send("Hi")
    known = {"start": 14, "end": 24, "url": "https://a.example/", "title": "A", "text": "It is cold."}
    told = citations_in(events)
    assert [{**one, "source": None} for one in told] == [{**known, "provider": "anthropic", "source": None}] * 2
    assert told[0]["source"]["url"] == "https://a.example/"
    next_turn(thread, events)
    # pydantic-ai reads the input of a search from its deltas only, and this server sends blocks whole.
    assert made[3] in recorded.requests[1]["messages"][1]["content"]
    texts = [[one["text"] for one in sent["messages"][1]["content"] if "text" in one] for sent in recorded.requests[1:]]
    assert texts[1] == texts[0]  # in later runs the citations themselves do not go back


def test_a_citation_of_anthropic_whose_search_is_not_there_does_not_go_back(answering: Start) -> None:
    cited = {"type": "text", "text": "it is cold", "citations": [WEB_CITATION]}
    thread, recorded = answering("anthropic", blocks(SEARCH, FOUND, cited), {"text": "Bye."})
    events = thread.send("Hi")
    kept = [one for one in history(events) if one["role"] != "reasoning"]
    thread.events(run_id="r2", messages=[*kept, {"id": "m9", "role": "user", "content": "Go on"}])
    assert recorded.requests[1]["messages"][1]["content"] == [{"type": "text", "text": "it is cold"}]


def test_a_citation_of_a_document_is_shown_and_does_not_go_back(answering: Start) -> None:
    place = {"document_index": 0, "document_title": "D", "start_char_index": 0, "end_char_index": 3}
    source = {"type": "char_location", "cited_text": "abc", **place}
    made = {"type": "text", "text": "It says so.", "citations": [source]}
    thread, recorded = answering("anthropic", blocks(made), {"text": "Bye."})
    events = thread.send("Hi")
    (told,) = citations_in(events)
    assert (told["start"], told["end"], told["title"], told["text"]) == (0, 11, "D", "abc")
    assert told["source"]["title"] == "D"
    next_turn(thread, events)
    assert recorded.requests[1]["messages"][1]["content"] == [{"type": "text", "text": "It says so."}]


def test_annotations_of_chat_completions_are_shown(answering: Start) -> None:
    its = {"start_index": 0, "end_index": 5, "title": "A", "url": "https://a.example/"}
    annotation = {"type": "url_citation", "url_citation": its}
    deltas = [{"content": "Cold."}, {"annotations": [annotation]}]
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    events = [{**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    events.append({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    thread, _ = answering("openai chat", sse(events, done=True))
    (told,) = citations_in(thread.send("Hi"))
    known = {"url": "https://a.example/", "title": "A", "provider": "openai"}
    assert {**told, "source": None} == {"start": 0, "end": 5, **known, "source": None}


@pytest.mark.parametrize("citations", [None, 3, [3], [{}], [{"source": 3}], [{"source": {}, "start": "x"}]], ids=str)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_citations_that_are_none_change_nothing(answering: Start, provider: str, citations: Any) -> None:
    thread, recorded = answering(provider, {"text": "Done."})
    said = {"id": "a1", "role": "assistant", "content": "Yes.", "metadata": {"aguila": {"citations": citations}}}
    thread.events(messages=[{"id": "m1", "role": "user", "content": "Hi"}, said, {**said, "id": "m2", "role": "user"}])
    assert WIRE_CHECKERS[provider](recorded.requests[0]) == []


# Subagents


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_a_subagent_said_is_not_the_models_in_this_run_or_the_next(answering: Start, provider: str) -> None:
    async def delegate(run: Any) -> str:
        """Ask the subagent."""
        async with run.subagent("helper") as helper:
            await helper.say("I am the subagent.")
            call = await helper.tool_call("dig", {})
            await call.result("a hole")
        return "helped"

    asked: Json = {"calls": [("c1", "delegate", {})]}
    if provider == "gemini":  # which is shown another word in place of a signature that is missing
        asked["thought"] = ("Hm.", "c2ln")
    thread, recorded = answering(provider, asked, {"text": "Done."}, {"text": "Bye."}, tools=[delegate])
    first = thread.send("Hi")
    next_turn(thread, first)
    within, later = (turns(provider, sent) for sent in recorded.requests[1:])
    assert later[: len(within)] == within
    assert len(later) == len(within) + 2
    assert "helped" in json.dumps(within)
    assert "I am the subagent." not in json.dumps(later)
    assert "a hole" not in json.dumps(later)


# Messages that the user sends with an answer


def known_texts(provider: str, sent: Json) -> list[str]:
    """Return the user's words, results and the model's words in a request, in order."""
    known = ("Hi", "paid 1", "paid 2", "Hurry.", "Thanks.", "Well.", "Go on", "Again?")
    text = json.dumps(turns(provider, sent))
    places = sorted((text.index(f'"{one}"'), one) for one in known if f'"{one}"' in text)
    return [one for _, one in places]


@pytest.mark.parametrize("kept_by", ["client", "server"])
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_what_the_user_says_along_with_an_answer_is_shown_to_the_model_in_that_run_and_later_p8(
    modelled: Start, provider: str, kept_by: str
) -> None:
    rounds: list[Json] = [{"calls": [(f"c{n}", "pay", {"amount": n})]} for n in (1, 2)]
    agent, recorded = modelled(provider, *rounds, {"text": "Well."}, {"text": "Bye."}, tools=[pay])

    async with client_for(App(agent, history=kept_by)) as client:
        thread = client.thread()
        await thread.run("Hi")
        for words in ("Hurry.", "Thanks."):
            answers = {one.id: {"approved": True} for one in thread.interrupts}
            await thread.resume(answers, content=words)
        await thread.run("Go on")
    assert [known_texts(provider, sent) for sent in recorded.requests] == [
        ["Hi"],
        ["Hi", "paid 1", "Hurry."],
        ["Hi", "paid 1", "Hurry.", "paid 2", "Thanks."],
        ["Hi", "paid 1", "Hurry.", "paid 2", "Thanks.", "Well.", "Go on"],
    ]
