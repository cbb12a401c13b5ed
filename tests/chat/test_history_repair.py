"""History repair: every call gets a result, every result follows its call, and each repair is listed."""

from __future__ import annotations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from aguila.chat import (
    ApprovalRequestContent,
    ChatMessage,
    Content,
    ErrorContent,
    FunctionCallContent,
    FunctionResultContent,
    ReasoningContent,
    TextContent,
    event_content,
    provider_history,
)
from aguila.chat.history_repair import NOT_EXECUTED
from aguila.chat.property_keys import SUBAGENT_RUN_ID
from aguila.protocol import CustomEvent, replace


def assistant_calling(*ids: str, text: str = "", message_id: str | None = None) -> ChatMessage:
    texts: list[Content] = [TextContent(text)] if text else []
    return ChatMessage("assistant", [*texts, *(FunctionCallContent(i, "f", "{}") for i in ids)], message_id=message_id)


def result(call_id: str, text: str = "ok", message_id: str | None = None) -> ChatMessage:
    return ChatMessage("tool", [FunctionResultContent(call_id, text)], message_id=message_id)


def text_message(text: str, role: str = "assistant") -> ChatMessage:
    return ChatMessage(role, text)


USER = text_message("go on", "user")


def kinds(*messages: ChatMessage, **options: str) -> list[str]:
    return [repair.kind for repair in provider_history(messages, **options).repairs]  # type: ignore[arg-type]


def view(*messages: ChatMessage) -> list[ChatMessage]:
    return provider_history(messages).messages


def test_a_history_in_order_is_left_as_it_is() -> None:
    history = [
        text_message("hi", "user"),
        assistant_calling("c1", "c2", text="looking"),
        result("c1"),
        result("c2"),
        text_message("done"),
        USER,
    ]
    answer = provider_history(history)
    assert answer.repairs == []
    assert all(mine is theirs for mine, theirs in zip(answer.messages, history, strict=True))


def test_replayed_parallel_calls_become_one_message_with_the_first_ones_id() -> None:
    history = [
        assistant_calling("c1", text="a", message_id="m1"),
        assistant_calling("c2", message_id="m2"),
        assistant_calling("c3", text="b", message_id="m3"),
        result("c1"),
        result("c2"),
        result("c3"),
        USER,
    ]
    merged = ChatMessage(
        "assistant",
        [TextContent("a"), TextContent("b"), *assistant_calling("c1", "c2", "c3").contents],
        message_id="m1",
    )
    assert view(*history) == [merged, result("c1"), result("c2"), result("c3"), USER]
    assert kinds(*history) == ["merged_calls", "merged_calls"]


def test_sequential_calls_stay_two_pairs() -> None:
    history = [assistant_calling("c1"), result("c1"), assistant_calling("c2"), result("c2")]
    assert view(*history) == history


def test_results_in_another_order_are_placed_after_their_calls_in_call_order() -> None:
    history = [assistant_calling("c1", "c2"), result("c2"), result("c1"), USER]
    assert view(*history) == [assistant_calling("c1", "c2"), result("c1"), result("c2"), USER]
    assert kinds(*history) == []  # they were directly after it: nothing was moved away from anything else


def test_text_between_a_call_and_its_result_comes_after_the_result() -> None:
    history = [assistant_calling("c1"), text_message("wait"), result("c1"), USER]
    assert view(*history) == [assistant_calling("c1"), result("c1"), text_message("wait"), USER]
    assert kinds(*history) == ["moved_result"]


def test_a_user_message_before_the_result_moves_behind_it() -> None:
    assert view(assistant_calling("c1"), USER, result("c1")) == [assistant_calling("c1"), result("c1"), USER]


def test_a_result_before_its_call_is_moved_after_it() -> None:
    assert view(result("c1"), USER, assistant_calling("c1")) == [USER, assistant_calling("c1"), result("c1")]


def test_a_call_without_result_does_not_reach_a_provider() -> None:
    history = [USER, assistant_calling("c1", text="let me see"), USER]
    assert view(*history) == [USER, text_message("let me see"), USER]
    assert kinds(*history) == ["dropped_call"]
    assert view(USER, assistant_calling("c1"), USER) == [USER, USER]
    assert kinds(USER, assistant_calling("c1"), USER) == ["dropped_call", "dropped_message"]


def test_a_call_without_result_can_be_closed_instead() -> None:
    answer = provider_history([assistant_calling("c1", "c2"), result("c2")], unanswered="close")
    assert answer.messages == [assistant_calling("c1", "c2"), result("c1", NOT_EXECUTED), result("c2")]
    assert [(r.kind, r.call_id) for r in answer.repairs] == [("closed_call", "c1")]


def test_a_result_without_call_is_dropped() -> None:
    assert view(USER, result("c9"), USER) == [USER, USER]
    assert kinds(USER, result("c9"), USER) == ["dropped_result"]


def test_a_second_result_of_one_call_is_dropped() -> None:
    assert view(assistant_calling("c1"), result("c1", "a"), result("c1", "b")) == [
        assistant_calling("c1"),
        result("c1", "a"),
    ]


def test_a_call_id_that_is_used_again_is_renamed_with_its_result() -> None:
    history = [
        assistant_calling("c"),
        result("c", "1"),
        USER,
        assistant_calling("c"),
        result("c", "2"),
        assistant_calling("c-2"),
        result("c-2", "3"),
    ]
    assert view(*history) == [
        assistant_calling("c"),
        result("c", "1"),
        USER,
        assistant_calling("c-3"),
        result("c-3", "2"),
        assistant_calling("c-2"),
        result("c-2", "3"),
    ]
    assert kinds(*history) == ["renamed_call"]


def test_a_repeated_call_message_is_answered_once() -> None:
    assert view(assistant_calling("c"), assistant_calling("c"), result("c")) == [assistant_calling("c"), result("c")]


def test_results_that_shared_a_message_get_one_each() -> None:
    shared = ChatMessage("tool", [FunctionResultContent("c1", "a"), FunctionResultContent("c2", "b")], message_id="t")
    assert view(assistant_calling("c1", "c2"), shared) == [
        assistant_calling("c1", "c2"),
        result("c1", "a", message_id="t"),
        result("c2", "b"),
    ]


def test_a_result_within_an_assistants_message_becomes_a_tool_message() -> None:
    both = ChatMessage("assistant", [FunctionCallContent("c", "f", "{}"), FunctionResultContent("c", "ok")])
    assert view(both, text_message("so")) == [assistant_calling("c"), result("c"), text_message("so")]


def test_what_is_no_matter_of_a_model_is_left_out_with_the_message_that_held_it() -> None:
    asked = ChatMessage("assistant", [ApprovalRequestContent("i", FunctionCallContent("c", "f"))])
    mixed = ChatMessage(
        "assistant", [TextContent("x"), ErrorContent("no"), event_content.create(CustomEvent(name="n", value=1))]
    )
    assert view(asked, mixed, USER) == [text_message("x"), USER]
    assert kinds(asked, mixed, USER) == ["dropped_content", "dropped_message", "dropped_content", "dropped_content"]


@pytest.mark.parametrize(
    "message", [ChatMessage("assistant"), text_message(""), text_message("", "user"), ChatMessage("tool")]
)
def test_an_empty_message_is_left_out(message: ChatMessage) -> None:
    assert view(USER, message, USER) == [USER, USER]
    assert kinds(USER, message, USER) == ["dropped_message"]


def test_reasoning_is_kept() -> None:
    thought = ChatMessage("assistant", [ReasoningContent("", "sig")])
    assert view(thought, assistant_calling("c"), result("c")) == [thought, assistant_calling("c"), result("c")]


def test_the_report_names_message_and_call() -> None:
    [repair] = provider_history([USER, result("c9", message_id="t9")]).repairs
    assert (repair.index, repair.message_id, repair.call_id) == (1, "t9", "c9")


def test_the_stored_history_is_left_alone() -> None:
    history = [
        assistant_calling("c1", text="a"),
        assistant_calling("c2"),
        USER,
        result("c2"),
        result("c1"),
        result("c8"),
    ]
    before = [(m.role, list(m.contents), m.message_id) for m in history]
    provider_history(history)
    assert [(m.role, m.contents, m.message_id) for m in history] == before


# subagents


def by_subagent(message: ChatMessage) -> ChatMessage:
    return replace(message, additional_properties={SUBAGENT_RUN_ID: "s1"})


def test_what_a_subagent_said_and_called_is_left_out_and_its_answer_to_the_agent_is_not() -> None:
    helped = by_subagent(result("c1", "helped"))
    history = [
        USER,
        assistant_calling("c1"),
        by_subagent(text_message("I am the subagent")),
        by_subagent(assistant_calling("c9")),
        by_subagent(result("c9")),
        helped,
        text_message("done"),
        USER,
    ]
    answer = provider_history(history)
    assert answer.messages == [USER, history[1], helped, text_message("done"), USER]
    assert [(repair.kind, repair.index) for repair in answer.repairs] == [
        ("dropped_subagent", 2),
        ("dropped_subagent", 3),
    ]


def test_a_subagent_message_between_parallel_calls_does_not_split_them() -> None:
    seen = view(
        assistant_calling("c1"),
        by_subagent(assistant_calling("c9")),
        assistant_calling("c2"),
        by_subagent(text_message("hm")),
        result("c2"),
        result("c1"),
    )
    assert [[c.call_id for c in m.calls] or [c.call_id for c in m.results] for m in seen] == [
        ["c1", "c2"],
        ["c1"],
        ["c2"],
    ]


# any history

ids = st.sampled_from(["c1", "c2", "c3", "c1-2"])
contents = st.one_of(
    st.builds(TextContent, st.sampled_from(["", "a"])),
    st.builds(ReasoningContent, st.just("hm")),
    st.builds(FunctionCallContent, ids, st.just("f"), st.just("{}")),
    st.builds(FunctionResultContent, ids, st.sampled_from(["x", ""])),
    st.builds(ErrorContent, st.just("no")),
    st.just(event_content.create(CustomEvent(name="n", value=1))),
)
messages = st.one_of(
    st.builds(
        ChatMessage, st.sampled_from(["system", "user", "assistant", "tool", "critic"]), st.lists(contents, max_size=3)
    ),
    st.builds(assistant_calling, ids),
    st.builds(result, ids),
)
histories = st.lists(st.one_of(messages, messages, messages.map(by_subagent)), max_size=8)
DAMAGE = (
    "moved_result",
    "merged_calls",
    "dropped_call",
    "dropped_result",
    "renamed_call",
    "dropped_content",
    "dropped_message",
    "dropped_subagent",
)


@settings(max_examples=400, deadline=None)
@given(histories, st.sampled_from(["drop", "close"]))
def test_any_history_becomes_one_that_providers_accept(history: list[ChatMessage], unanswered: str) -> None:
    answer = provider_history(history, unanswered=unanswered)  # type: ignore[arg-type]
    for repair in answer.repairs:
        event(repair.kind)
    assert not {repair.kind for repair in answer.repairs} - {*DAMAGE, "closed_call"}
    assert is_accepted(answer.messages)
    # what is accepted needs no repair
    again = provider_history(answer.messages, unanswered=unanswered)  # type: ignore[arg-type]
    assert again.messages == answer.messages
    # texts, reasoning and answered calls of the agent survive
    said = [
        c.text
        for m in history
        if m.role != "tool" and SUBAGENT_RUN_ID not in m.additional_properties
        for c in m.contents
        if isinstance(c, (TextContent, ReasoningContent)) and c.text
    ]
    kept = [
        c.text for m in answer.messages for c in m.contents if isinstance(c, (TextContent, ReasoningContent)) and c.text
    ]
    assert sorted(kept) == sorted(said)


def is_accepted(history: list[ChatMessage]) -> bool:
    """Calls have unique ids and are answered at once, each once, one result per message, and nothing else is."""
    waiting: list[str] = []
    seen: set[str] = set()
    for message in history:
        if message.role == "tool":
            assert [type(c) for c in message.contents] == [FunctionResultContent]
            assert message.results[0].call_id == waiting.pop(0)
            continue
        assert waiting == []
        assert message.contents
        assert message.results == []
        waiting = [c.call_id for c in message.calls]
        assert not waiting or message.role == "assistant"
        assert len(set(waiting)) == len(waiting)
        assert not seen & set(waiting)
        seen |= set(waiting)
    assert waiting == []
    return True
