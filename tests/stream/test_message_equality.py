"""A message that comes back from a peer is recognized, and an edited one is not."""

import pytest

from aguila.protocol import (
    AssistantMessage,
    DocumentPart,
    FunctionCall,
    TextPart,
    ToolCall,
    ToolMessage,
    UrlSource,
    UserMessage,
)
from aguila.stream.message_equality import is_same_message


def call(**fields):
    return ToolCall(id="c", function=FunctionCall(name="f", arguments="{}"), **fields)


ANSWER = AssistantMessage(
    id="a", content="Yes.", name="guide", metadata={"x": 1}, tool_calls=[call(encrypted_value="secret")]
)


@pytest.mark.parametrize(
    ("sent", "known"),
    [
        (ANSWER, ANSWER),
        (AssistantMessage(id="a", content="Yes.", tool_calls=[call()]), ANSWER),
        (AssistantMessage(id="a", content="", tool_calls=[call()]), AssistantMessage(id="a", tool_calls=[call()])),
        (AssistantMessage(id="a", content="Yes.", tool_calls=[]), AssistantMessage(id="a", content="Yes.")),
        (UserMessage(id="u", content="Hi"), UserMessage(id="u", content=[TextPart(text="Hi")])),
    ],
)
def test_dropped_annotations_and_older_forms_are_the_same_message(sent, known):
    assert is_same_message(sent, known)
    assert is_same_message(sent, known, is_extended=True)


@pytest.mark.parametrize(
    ("sent", "known"),
    [
        (AssistantMessage(id="a", content="No.", tool_calls=[call()]), ANSWER),
        (AssistantMessage(id="a", content="Yes.", name="other", tool_calls=[call()]), ANSWER),
        (UserMessage(id="a", content="Yes."), AssistantMessage(id="a", content="Yes.")),
        (UserMessage(id="u", content="Hi"), UserMessage(id="u", content="Hello")),
        (ToolMessage(id="t", tool_call_id="c", content="1"), ToolMessage(id="t", tool_call_id="d", content="1")),
        (
            UserMessage(id="u", content="Hi"),
            UserMessage(id="u", content=[DocumentPart(source=UrlSource(value="x", mime_type="text/plain"))]),
        ),
    ],
)
def test_an_edit_is_another_message(sent, known):
    assert not is_same_message(sent, known)
    assert not is_same_message(sent, known, is_extended=True)


@pytest.mark.parametrize(
    ("sent", "known"),
    [
        (AssistantMessage(id="a", tool_calls=[call()]), ANSWER),
        (AssistantMessage(id="a", content="Yes."), ANSWER),
        (
            ToolMessage(id="t", tool_call_id="c", content="1"),
            ToolMessage(id="t", tool_call_id="c", content="1", error="x"),
        ),
    ],
)
def test_members_that_were_added_since_count_only_if_the_message_may_have_grown(sent, known):
    assert is_same_message(sent, known, is_extended=True)
    assert not is_same_message(sent, known)
