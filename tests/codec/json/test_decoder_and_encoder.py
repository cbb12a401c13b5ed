"""Decode and encode whole documents: results, notices, bytes."""

import datetime
import json
import logging
import math
import sys
import uuid
from collections import OrderedDict
from typing import Any

import pytest

from aguila.codec import EventDecoder, Notice, decode, decode_event, encode, encode_event
from aguila.errors import DecodeError, EncodeError
from aguila.protocol import (
    AgentCapabilities,
    AssistantMessage,
    ContentPart,
    CustomEvent,
    Event,
    EventType,
    ImagePart,
    Interrupt,
    Message,
    MessagesSnapshotEvent,
    RawEvent,
    ReasoningMessageStartEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextPart,
    ToolCall,
    ToolMessage,
    UrlSource,
    UserMessage,
)

HELLO = b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"hello"}'


# Decoding events


def test_an_exact_event_decodes_without_a_notice():
    notices = []
    event = decode_event(HELLO, warn=notices.append)
    assert event == TextMessageContentEvent(message_id="m", delta="hello")
    assert notices == []


def test_bytes_and_text_decode_alike():
    assert decode_event(HELLO.decode()) == decode_event(HELLO)
    assert EventDecoder().feed(HELLO.decode()) == EventDecoder().feed(json.loads(HELLO)) == [decode_event(HELLO)]


def test_an_unknown_event_is_none_and_no_event_in_a_stream():
    notices = []
    assert decode_event(b'{"type":"NEW"}', warn=notices.append) is None
    assert EventDecoder(warn=notices.append).feed(b'{"type":"NEW"}') == []
    assert [notice.rule for notice in notices] == ["PROC-3", "PROC-3"]


def test_notices_go_to_the_log_by_default(caplog):
    with caplog.at_level(logging.WARNING, logger="aguila"):
        decode_event(HELLO[:-1] + b',"x":1}')
    assert caplog.messages == ["TEXT_MESSAGE_CONTENT: removed an unknown member at '/x' [PROC-3]"]


def test_a_notice_says_what_where_and_by_which_rule():
    notices = []
    decode_event(HELLO[:-1] + b',"x":1}', warn=notices.append)
    assert notices == [
        Notice(rule="PROC-3", message="removed an unknown member", path="/x", event_type="TEXT_MESSAGE_CONTENT")
    ]


def test_a_refused_event_gives_no_notices_of_what_was_stripped_before():
    notices = []
    with pytest.raises(DecodeError):
        decode_event(b'{"type":"RUN_ERROR","x":1,"message":5}', warn=notices.append)
    assert notices == []


def test_a_stream_decoder_counts_what_it_is_fed():
    decoder = EventDecoder(warn=lambda _: None)
    decoder.feed(HELLO)
    decoder.feed(b'{"type":"NEW"}')
    assert decoder.next_index == 2
    with pytest.raises(DecodeError) as caught:
        decoder.feed(b'{"type":"RUN_ERROR"}')
    assert (caught.value.index, caught.value.path) == (2, "/message")
    assert decoder.feed(HELLO) != []  # a bad event does not end the decoder: its owner decides


@pytest.mark.parametrize("text", ["null", "5", '"RUN_ERROR"', "[]", "[{}]", "true"])
def test_json_that_is_no_object_is_no_event_env_1(text):
    with pytest.raises(DecodeError) as caught:
        decode_event(text)
    assert caught.value.rule == "ENV-1"


def test_a_long_event_is_decoded_like_a_short_one():
    delta = "x[]{}" * 1000
    event = TextMessageContentEvent(message_id="m", delta=delta)
    assert decode_event(encode(event)) == event
    assert EventDecoder(strict=True).feed(encode(event)) == [event]
    with pytest.raises(DecodeError):
        decode_event(encode(event)[:-1] + b',"x":1}', strict=True)


def test_errors_are_readable():
    with pytest.raises(DecodeError, match=r"event 0: required member is missing at '/message' \[PROC-2\]"):
        decode_event(b'{"type":"RUN_ERROR"}')


# Decoding documents


def test_without_a_type_decode_reads_an_event():
    assert decode(HELLO) == decode(HELLO, Event) == decode_event(HELLO)
    assert decode(b'{"type":"NEW"}', warn=lambda _: None) is None


def test_a_particular_event_can_be_asked_for():
    assert decode(HELLO, TextMessageContentEvent).delta == "hello"
    with pytest.raises(DecodeError, match="expected TEXT_MESSAGE_END, got TEXT_MESSAGE_CONTENT"):
        decode(HELLO, TextMessageEndEvent)
    with pytest.raises(DecodeError, match="an unknown event"):
        decode(b'{"type":"NEW"}', TextMessageEndEvent, warn=lambda _: None)


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        (b'{"threadId":"t","runId":"r","messages":[]}', RunAgentInput),
        (b'{"id":"m","role":"user","content":"x"}', Message),
        (b'{"id":"m","role":"user","content":"x"}', UserMessage),
        (b'{"type":"text","text":"x"}', ContentPart),
        (b'{"type":"text","text":"x"}', TextPart),
        (b'{"type":"cancelled"}', RunFinishedOutcome),
        (b'{"id":"i","reason":"r"}', Interrupt),
        (b'{"id":"c","type":"function","function":{"name":"f","arguments":""}}', ToolCall),
        (b"{}", AgentCapabilities),
    ],
)
def test_documents_decode_as_their_type_and_encode_back(text, type_):
    for strict in (False, True):
        value = decode(text, type_, strict=strict)
        assert encode(value) == text or json.loads(encode(value)) == json.loads(text)
    notices = []
    extended = text[:-1] + (b"," if len(text) > 2 else b"") + b'"unknown":1}'
    assert decode(extended, type_, warn=notices.append) == value
    assert [(notice.rule, notice.path) for notice in notices] == [("PROC-3", "/unknown")]
    with pytest.raises(DecodeError):
        decode(extended, type_, strict=True)


@pytest.mark.parametrize("type_", [UserMessage, TextPart, ToolCall])
def test_a_document_must_say_what_it_is_even_where_only_one_kind_is_asked_for(type_):
    text = {UserMessage: b'{"id":"m","content":"x"}', TextPart: b'{"text":"x"}'}.get(
        type_, b'{"id":"c","function":{"name":"f","arguments":""}}'
    )
    for strict in (False, True):
        with pytest.raises(DecodeError):
            decode(text, type_, strict=strict)


def test_a_message_of_another_role_is_refused():
    with pytest.raises(DecodeError):
        decode(b'{"id":"m","role":"assistant","content":"x"}', UserMessage)


def test_lists_decode_element_by_element():
    assert decode(b"[]", list[Event]) == []
    notices = []
    text = b"[" + HELLO + b',{"type":"NEW"},' + HELLO + b"]"
    assert len(decode(text, list[Event], warn=notices.append)) == 2
    assert len(notices) == 1
    messages = decode(
        b'[{"id":"m","role":"user","content":"x"},{"id":"n","role":"new"}]', list[Message], warn=notices.append
    )
    assert messages == [UserMessage(id="m", content="x")]
    assert notices[-1].path == "/1"


@pytest.mark.parametrize("text", [b"{}", b"[5]", b"[" + HELLO + b",null]", b"5"])
def test_a_list_of_events_must_be_an_array_of_objects(text):
    with pytest.raises(DecodeError) as caught:
        decode(text, list[Event])
    assert caught.value.rule == "ENV-1"


def test_an_error_in_a_list_of_events_has_its_index():
    with pytest.raises(DecodeError) as caught:
        decode(b"[" + HELLO + b',{"type":"RUN_ERROR"}]', list[Event])
    assert caught.value.index == 1


@pytest.mark.parametrize("type_", [Event, TextMessageContentEvent, list[Event], RunAgentInput])
def test_the_size_cap_holds_for_every_type(type_):
    text = b"[" + HELLO + b"]" if type_ == list[Event] else HELLO
    with pytest.raises(DecodeError) as caught:
        decode(text, type_, max_size=20)
    assert caught.value.rule == "limit-size"


def test_a_document_that_is_not_json_or_not_an_object_is_refused():
    for text, rule in ((b"{", "json"), (b"5", "PROC-2"), (b"null", "PROC-2")):
        with pytest.raises(DecodeError) as caught:
            decode(text, RunAgentInput)
        assert caught.value.rule == rule


def test_an_integral_float_is_an_integer_in_documents_too_py_5():
    text = b'{"type":"RUN_FINISHED","threadId":"t","runId":"r","usage":[{"inputTokens":5.0}]}'
    assert decode_event(text).usage[0].input_tokens == 5


# Encoding


def test_what_is_absent_is_not_written_and_required_nulls_are_env_6_env_7():
    assert encode(RunErrorEvent(message="m")) == b'{"type":"RUN_ERROR","message":"m"}'
    assert json.loads(encode(StateSnapshotEvent(snapshot=None))) == {"type": "STATE_SNAPSHOT", "snapshot": None}
    assert json.loads(encode(CustomEvent(name="n", value=None))) == {"type": "CUSTOM", "name": "n", "value": None}
    assert json.loads(encode(RawEvent(event=None))) == {"type": "RAW", "event": None}


def test_json_is_compact_and_utf_8():
    assert encode({"a": [1, "é\u2028"]}) == '{"a":[1,"é\u2028"]}'.encode()


def test_the_reasoning_role_is_written_rsn_3():
    assert json.loads(encode(ReasoningMessageStartEvent(message_id="m")))["role"] == "reasoning"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_refused_with_its_path_py_8(number):
    with pytest.raises(EncodeError) as caught:
        encode(StateSnapshotEvent(snapshot={"a/b": [1, {"c": number}]}))
    assert caught.value.path == "/snapshot/a~1b/1/c"
    with pytest.raises(EncodeError):
        encode(StateDeltaEvent(delta=[{"op": "add", "path": "/a", "value": number}]))
    with pytest.raises(EncodeError):
        encode(number)
    with pytest.raises(EncodeError):
        encode(CustomEvent(name="\ud800", value=number))


def test_the_word_null_is_no_reason_to_refuse():
    event = CustomEvent(name="null", value=[None, "null", 1.5, {"null": None}])
    assert decode_event(encode(event)) == event


@pytest.mark.parametrize("text", ["\ud800", "a\udc00b", "\udc00\ud800", "\U0001f600\ud83d"])
def test_half_a_surrogate_pair_is_written_as_an_escape(text):
    event = TextMessageContentEvent(message_id="m", delta=text)
    written = encode(event)
    written.decode("utf-8")
    assert json.loads(written)["delta"] == text
    assert decode_event(written) == event
    assert encode_event(event) == written


def test_a_user_message_of_one_plain_text_part_is_written_as_a_string():
    plain = UserMessage(id="m", content=[TextPart(text="x")])
    spelled = {"id": "m", "role": "user", "content": "x"}
    assert json.loads(encode(plain)) == spelled
    assert json.loads(encode([plain])) == [spelled]
    assert json.loads(encode(MessagesSnapshotEvent(messages=[plain])))["messages"] == [spelled]
    run_input = RunAgentInput(thread_id="t", run_id="r", messages=[plain])
    assert json.loads(encode(run_input))["messages"] == [spelled]
    started = RunStartedEvent(thread_id="t", run_id="r", input=run_input)
    for written in (encode(started), encode_event(started)):
        assert json.loads(written)["input"]["messages"] == [spelled]
    assert plain.content == [TextPart(text="x")]


@pytest.mark.parametrize(
    "message",
    [
        UserMessage(id="m", content=[TextPart(text="x", id="p")]),
        UserMessage(id="m", content=[TextPart(text="x", metadata={})]),
        UserMessage(id="m", content=[TextPart(text="x"), TextPart(text="y")]),
        UserMessage(id="m", content=[ImagePart(source=UrlSource(value="u"))]),
        ToolMessage(id="m", tool_call_id="c", content=[TextPart(text="x")]),
    ],
)
def test_other_parts_are_written_as_parts(message):
    snapshot = MessagesSnapshotEvent(messages=[message])
    assert isinstance(json.loads(encode(snapshot))["messages"][0]["content"], list)
    assert decode_event(encode(snapshot)) == snapshot


def test_lists_of_anything_are_written():
    assert encode([]) == b"[]"
    messages = [UserMessage(id="m", content="x"), AssistantMessage(id="n")]
    assert decode(encode(messages), list[Message]) == messages
    assert json.loads(encode([[1], {"a": []}])) == [[1], {"a": []}]


def test_values_with_a_plain_json_form_are_written_in_it():
    at = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    id_ = uuid.UUID(int=5)
    value = json.loads(encode(CustomEvent(name="n", value={"at": at, "id": id_})))["value"]
    assert value == {"at": "2026-01-02T00:00:00Z", "id": str(id_)}


@pytest.mark.parametrize("thing", [object(), {(1, 2): 3}, {None: 1}, [10**5000]])
def test_what_has_no_json_form_is_refused(thing):
    for call in (
        encode,
        lambda t: encode(CustomEvent(name="n", value=t)),
        lambda t: encode_event(RawEvent(event=t)),
    ):
        with pytest.raises(EncodeError):
            call(thing)


@pytest.mark.parametrize("leaf", [1, None, "\ud800", math.nan])
@pytest.mark.parametrize("depth", [200, 700, 950, 3000, 100_000])
def test_what_nests_too_deep_is_refused_and_never_crashes(leaf, depth):
    for wrap in (lambda v: [v], lambda v: {"a": v}):
        value = leaf
        for _ in range(depth):
            value = wrap(value)
        for call in (encode, lambda v: encode(RawEvent(event=v)), lambda v: encode_event(RawEvent(event=v))):
            try:
                written = call(value)
            except EncodeError:
                assert depth > 500 or leaf is math.nan
            else:
                assert len(written) > depth
                assert depth < 3000 or sys.version_info >= (3, 14)  # which measures the stack, not the depth


# Plain objects are judged as the JSON they are written as


def verdict(data, **options):
    try:
        return EventDecoder(warn=lambda notice: None, **options).feed(data)
    except DecodeError as error:
        return error.rule, error.path


def test_a_plain_object_gets_the_verdict_of_its_json():
    deep: Any = []
    for _ in range(400):
        deep = [deep]
    assert verdict({"type": EventType.CUSTOM, "name": "x", "value": 1}) == [CustomEvent(name="x", value=1)]
    assert verdict(OrderedDict(type="CUSTOM", name="x", value=(1, 2))) == [CustomEvent(name="x", value=[1, 2])]
    assert verdict({"type": "CUSTOM", "name": "x", "value": float("nan")}, strict=True) == ("json", "/value")
    assert verdict({"type": "CUSTOM", "name": "x", "value": object()}) == ("json", "")
    assert verdict({"type": "CUSTOM", "name": "x", "value": deep}) == ("limit-depth", "")
    assert verdict({"type": "CUSTOM", "name": "x", "value": 1, 1: 2}) == [CustomEvent(name="x", value=1)]


@pytest.mark.parametrize("data", [None, 5, [{"type": "CUSTOM"}], object()])
def test_what_is_no_event_at_all_is_refused_by_name_env_1(data):
    assert verdict(data) == ("ENV-1", "")


def test_bytes_of_any_kind_are_read_alike():
    text = b'{"type":"RUN_ERROR","message":"\xff"}'
    assert verdict(bytearray(text)) == verdict(memoryview(text)) == verdict(text) == [RunErrorEvent(message="\ufffd")]


def test_the_size_cap_counts_bytes_not_characters():
    text = '{"type":"RUN_ERROR","message":"' + "ä" * 60 + '"}'
    assert verdict(text, max_size=len(text)) == ("limit-size", "")
    assert verdict(text, max_size=len(text.encode())) == [RunErrorEvent(message="ä" * 60)]


def test_a_number_that_is_none_is_refused_however_it_is_written():
    from aguila.codec.sse import SSEEncoder

    event = TextMessageContentEvent(message_id="m", delta="x", timestamp=math.nan)
    for write in (encode, encode_event, SSEEncoder().encode):
        with pytest.raises(EncodeError):
            write(event)
