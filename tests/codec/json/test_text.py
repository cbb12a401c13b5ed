"""JSON text: limits, broken text, numbers at the edge, lone surrogates."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aguila.codec import MAX_DEPTH, MAX_SIZE, EventDecoder, decode, decode_event
from aguila.codec.json.text import check_depth, parse_json
from aguila.errors import DecodeError
from aguila.protocol import Event, RunAgentInput


def read(text, **options):
    notices = []
    value = parse_json(text, strict=options.get("strict", False), warn=notices.append)
    return value, [notice.rule for notice in notices]


def refusal(call, *arguments, **options):
    with pytest.raises(DecodeError) as caught:
        call(*arguments, **options)
    return caught.value.rule


def raw_event(json_text):
    return b'{"type":"RAW","event":' + json_text + b"}"


# Depth


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def test_nesting_is_read_up_to_the_limit_and_refused_beyond_it():
    check_depth(nested(MAX_DEPTH))
    assert refusal(check_depth, nested(MAX_DEPTH + 1)) == "limit-depth"
    assert refusal(check_depth, nested(MAX_DEPTH + 1).decode()) == "limit-depth"


def test_an_event_that_nests_too_deep_is_refused_with_its_index():
    decoder = EventDecoder()
    assert len(decoder.feed(raw_event(nested(MAX_DEPTH - 1)))) == 1
    with pytest.raises(DecodeError) as caught:
        decoder.feed(raw_event(nested(MAX_DEPTH)))
    assert (caught.value.rule, caught.value.index) == ("limit-depth", 1)


@pytest.mark.parametrize("bomb", [b"[", b'{"a":', b'[{"a":', b'["",', b'{"\\"":['])
def test_a_nesting_bomb_is_refused(bomb):
    assert refusal(decode_event, raw_event(bomb * 300_000)) in ("limit-depth", "json")
    assert refusal(decode_event, bomb * 100_000) == "limit-depth"


def test_brackets_in_strings_are_not_nesting():
    text = json.dumps({"type": "RAW", "event": "[" * 5000 + '"]\\{' * 100}).encode()
    assert decode_event(text).event.startswith("[[")
    check_depth(b'["' + b"[{" * 100_000 + b'"]')


@pytest.mark.parametrize(
    ("before", "after"),
    [(b'["]",', b',"["]'), (b'["]]]]",', b"]"), (b'["\\"]",', b',"[\\\\"]'), (b'{"}":', b',"{":1}')],
)
def test_brackets_in_strings_cannot_hide_nesting(before, after):
    text = before * (MAX_DEPTH + 1) + b"1" + after * (MAX_DEPTH + 1)
    json.loads(text)  # it is JSON, and deep
    assert refusal(check_depth, text) == "limit-depth"


@given(
    st.recursive(
        st.text(alphabet='[]{}"\\a\n', max_size=6) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='{}"\\', max_size=3), inner, max_size=3)
        ),
        max_leaves=20,
    ),
    st.integers(0, 300),
)
@settings(max_examples=150, deadline=None)
def test_the_limit_is_exact_for_any_json(value, more):
    for _ in range(more):
        value = [value, '"']

    def depth(value):
        deepest, level = 0, [value]
        while level:
            level = [v for v in level if isinstance(v, list | dict)]
            deepest += bool(level)
            level = [item for v in level for item in (v.values() if isinstance(v, dict) else v)]
        return deepest

    text = json.dumps(value, ensure_ascii=False).encode()
    text += b" " * 600 + b'["' + b"]" * 300 + b'"]'  # enough to make it look (two documents nest as deep as one)
    if depth(value) > MAX_DEPTH:
        assert refusal(check_depth, text) == "limit-depth"
    else:
        check_depth(text)


@pytest.mark.parametrize("length", [0, 5_000])
@pytest.mark.parametrize("brackets", ["[", "{", "[{"])
def test_the_limit_is_the_same_behind_a_long_string(brackets, length):
    def document(depth):
        value = 1
        for level in range(depth - 1):
            value = [value] if brackets[level % len(brackets)] == "[" else {"a": value}
        return json.dumps(["x" * length, value]).encode()

    check_depth(document(MAX_DEPTH))
    assert refusal(check_depth, document(MAX_DEPTH + 1)) == "limit-depth"


@pytest.mark.parametrize("type_", ["MESSAGES_SNAPSHOT", "RUN_STARTED", "RunAgentInput"])
def test_a_long_history_neither_counts_as_deep_nor_hides_what_is(type_):
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    messages = [{"id": f"m{i}", "role": "assistant", "toolCalls": calls} for i in range(500)]
    run_input = {"threadId": "t", "runId": "r", "messages": messages}
    document = {
        "MESSAGES_SNAPSHOT": {"type": type_, "messages": messages},
        "RUN_STARTED": {"type": type_, "threadId": "t", "runId": "r", "input": run_input},
        "RunAgentInput": run_input,
    }[type_]
    as_type = RunAgentInput if type_ == "RunAgentInput" else Event

    def text(levels: int) -> bytes:
        deep = json.loads('["]",' * levels + "1" + ',"["]' * levels)
        last = {**messages[-1], "metadata": {"deep": deep}}
        return json.dumps(document).replace(json.dumps(messages[-1]), json.dumps(last)).encode()

    outside = {"MESSAGES_SNAPSHOT": 4, "RUN_STARTED": 5, "RunAgentInput": 4}[type_]
    assert decode(text(MAX_DEPTH - outside), as_type) is not None
    assert refusal(decode, text(MAX_DEPTH - outside + 1), as_type) == "limit-depth"


def test_text_too_deep_for_the_stack_is_refused_and_does_not_crash():
    deep = nested(100_000)  # Python 3.14 measures the stack and allows more levels than the recursion limit
    assert refusal(read, deep) == "limit-depth"


# Size


def test_size_is_capped_by_default_at_ten_mebibytes_py_21():
    assert MAX_SIZE == 10 * 1024 * 1024
    text = raw_event(b'"' + b"x" * MAX_SIZE + b'"')
    assert refusal(decode_event, text) == "limit-size"
    assert len(decode_event(text, max_size=2 * MAX_SIZE).event) == MAX_SIZE


@pytest.mark.parametrize("size", [40, 300, 5000])
def test_the_cap_can_be_set_to_any_size(size):
    text = raw_event(b'"' + b"x" * (size - len(raw_event(b'""'))) + b'"')
    assert len(text) == size
    assert len(EventDecoder(max_size=size).feed(text)) == 1
    assert refusal(EventDecoder(max_size=size - 1).feed, text) == "limit-size"
    assert refusal(decode_event, text, max_size=size - 1) == "limit-size"


# Text that is not JSON


NOT_JSON = (
    rb"""{ {"a":1,} [1,] {}{} {}x 'a' 01 +1 .5 1. NaN Infinity -Infinity nul True "\x" "\u12" [DONE] 1e400""".split()
)


@pytest.mark.parametrize("text", [*NOT_JSON, b"", b" ", b'"\n"', b"\x00", b"\xef\xbb\xbf{}"])
def test_what_is_not_json_is_refused(text):
    assert refusal(read, text) == "json"
    assert refusal(read, text.decode()) == "json"
    assert refusal(read, b'["\\ud800",' + text + b"]") == "json" or text in (b"", b" ")


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e400", b"-1e400", b"9" * 5000])
def test_numbers_that_are_none_or_have_no_end_are_refused_wherever_they_are(number):
    for text in (raw_event(number), raw_event(b"[" + number + b"]"), raw_event(b'["\\udc00",' + number + b"]")):
        assert refusal(decode_event, text) == "json"


@pytest.mark.parametrize("number", [2**53, 2**63, 2**64, 10**100, -(10**100)])
def test_large_integers_are_exact_where_they_are_opaque(number):
    for text in (b"[%d]" % number, b'[%d,"\\ud800"]' % number):
        assert decode_event(raw_event(text)).event[0] == number


def test_a_duplicated_key_counts_as_its_last():
    assert read(b'{"a":1,"a":2}')[0] == {"a": 2}
    assert read(b'{"a":"\\ud800","a":2}')[0] == {"a": 2}
    event = decode_event(b'{"type":"RUN_ERROR","type":"RAW","event":1,"event":2}')
    assert (event.type, event.event) == ("RAW", 2)
    assert decode_event(b'{"type":"RUN_ERROR","message":null,"message":"x"}').message == "x"
    assert refusal(decode_event, b'{"type":"RUN_ERROR","message":"x","message":null}') == "PROC-2"


def test_a_duplicated_key_counts_as_its_last_next_to_something_to_strip():
    event = decode_event(b'{"type":"RUN_ERROR","type":"RAW","event":1,"x":0,"event":2}', warn=lambda _: None)
    assert (event.type, event.event) == ("RAW", 2)


# Characters


@pytest.mark.parametrize("text", [b'"\\ud800"', b'"\\udc00"', b'"\\udc00\\ud800"', b'"a\\uD83Db"', b'{"\\udfff":1}'])
def test_half_a_surrogate_pair_is_kept(text):
    assert read(text) == (json.loads(text), [])
    assert read(text, strict=True) == (json.loads(text), [])
    assert read(json.dumps(json.loads(text), ensure_ascii=False)) == (json.loads(text), [])


def test_whole_pairs_are_one_character_next_to_halves():
    assert read(b'["\\ud83d\\ude00","\\ud83d"]')[0] == ["\U0001f600", "\ud83d"]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (b'{"type":"STATE_DELTA","delta":"\\ud800"}', "/delta"),
        (b'{"type":"RUN_ERROR","message":"x","timestamp":"\\ud800"}', "/timestamp"),
        (b'{"type":"REASONING_MESSAGE_START","messageId":"m","role":"\\ud800"}', "/role"),
        (b'{"type":"RUN_ERROR","message":"\\ud800","metadata":"\\ud800"}', "/metadata"),
    ],
)
def test_half_a_pair_where_no_text_may_be_is_malformed_like_any_other_text(text, path):
    with pytest.raises(DecodeError) as caught:
        decode_event(text)
    assert (caught.value.rule, caught.value.path) == ("PROC-2", path)


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xc0\xaf"])
def test_bytes_that_are_not_utf_8_are_replaced_with_a_notice_and_refused_in_strict_mode(bad):
    value, notices = read(b'{"a":"x' + bad + b'y"}')
    assert value["a"].strip("\ufffd") != value["a"] or "\ufffd" in value["a"]
    assert notices == ["utf-8"]
    assert refusal(read, b'{"a":"x' + bad + b'y"}', strict=True) == "utf-8"
    assert refusal(decode_event, b'{"type":"RUN_ERROR","message":"' + bad + b'"}', strict=True) == "utf-8"


def test_broken_utf_8_and_half_a_pair_can_come_together():
    value, notices = read(b'["\xff","\\ud800"]')
    assert value == ["\ufffd", "\ud800"]
    assert notices == ["utf-8"]


def test_broken_utf_8_outside_a_string_is_not_json():
    assert refusal(read, b"[\xff]") in ("json", "utf-8")
    with pytest.raises(DecodeError):
        decode_event(b'{"type":"RUN_ERROR","message":"x"}\xff')
