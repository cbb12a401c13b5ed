"""Streams at rest: JSON lines and one JSON array, written and read piece by piece."""

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aguila.codec.jsonl import JSONArrayDecoder, JSONArrayEncoder, JSONLDecoder, encode_lines, read_events
from aguila.errors import DecodeError, EncodeError
from aguila.protocol import CustomEvent, RunErrorEvent, StateSnapshotEvent, TextMessageContentEvent
from aguila.testing import strategies

EVENTS = [
    TextMessageContentEvent(message_id="m", delta='brackets ]}[{ and "quotes" and \\ and \u2028'),
    StateSnapshotEvent(snapshot={"a": [1, {"b": "]"}, []], "c": None}),
    RunErrorEvent(message="\\"),
]


def as_lines(events) -> bytes:
    return b"".join(encode_lines(events))


def as_array(events) -> bytes:
    encoder = JSONArrayEncoder()
    return b"".join([encoder.encode(event) for event in events]) + encoder.close()


def read(decoder, parts) -> list:
    out = []
    for part in parts:
        out += decoder.feed(part)
    return out + decoder.close()


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


def test_lines_are_written_one_event_each():
    assert [json.loads(line)["type"] for line in encode_lines(EVENTS)] == [event.type for event in EVENTS]
    assert as_lines(EVENTS).count(b"\n") == len(EVENTS)


def test_an_array_is_one_json_document():
    assert [item["type"] for item in json.loads(as_array(EVENTS))] == [event.type for event in EVENTS]
    assert json.loads(as_array([])) == []


def test_an_event_with_no_json_form_is_not_written():
    with pytest.raises(EncodeError):
        as_lines([CustomEvent(name="x", value=float("inf"))])
    encoder = JSONArrayEncoder()
    with pytest.raises(EncodeError):
        encoder.encode(CustomEvent(name="x", value=object()))
    assert json.loads(encoder.encode(EVENTS[2]) + encoder.close()) != []  # and the array is still whole


@given(st.lists(strategies.events(), max_size=5), st.integers(1, 50))
@settings(max_examples=60, deadline=None)
def test_what_was_written_is_read_however_the_bytes_are_cut(events, size):
    for data, decoder in ((as_lines(events), JSONLDecoder), (as_array(events), JSONArrayDecoder)):
        whole = read(decoder(), [data])
        assert len(whole) == len(events)
        assert read(decoder(), cut(data, 1)) == whole
        assert read(decoder(), cut(data, size)) == whole
        assert list(read_events(io.BytesIO(data))) == whole


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
@pytest.mark.parametrize("layout", [None, 2])
def test_an_array_may_be_laid_out_in_any_way(size, layout):
    document = json.dumps([json.loads(line) for line in encode_lines(EVENTS)], indent=layout).encode()
    for data in (document, b"\xef\xbb\xbf \r\n\t" + document + b" \n"):
        assert read(JSONArrayDecoder(), cut(data, size)) == EVENTS


def test_an_element_is_delivered_as_soon_as_it_is_complete():
    decoder = JSONArrayDecoder()
    data = as_array(EVENTS)
    end_of_first = data.index(b"}") + data[data.index(b"}") :].index(b'"}') + 2
    assert decoder.feed(data[:end_of_first]) == EVENTS[:1]
    assert decoder.feed(data[end_of_first:]) == EVENTS[1:]


def test_blank_lines_crlf_and_a_byte_order_mark_are_tolerated_in_lines():
    data = b"\xef\xbb\xbf\r\n" + as_lines(EVENTS).replace(b"\n", b"\r\n \t\r\n")
    for size in (1, 5, 1000):
        assert read(JSONLDecoder(), cut(data, size)) == EVENTS
    assert read(JSONLDecoder(), [as_lines(EVENTS)[:-1]]) == EVENTS  # the last line need not end


@pytest.mark.parametrize("data", [b"", b" \n\t\r\n", b"\xef\xbb\xbf", b"[]", b" [ ] ", b"\n\n[\n]\n"])
def test_a_file_without_events_holds_no_events(data):
    assert list(read_events(io.BytesIO(data))) == []


def test_the_first_byte_tells_lines_from_an_array():
    for data in (as_lines(EVENTS), as_array(EVENTS), b"\xef\xbb\xbf\n" + as_lines(EVENTS), b" \n " + as_array(EVENTS)):
        assert list(read_events(io.BytesIO(data))) == EVENTS


ERROR = b'{"type":"RUN_ERROR","message":"x"}'


@pytest.mark.parametrize(
    ("data", "rule", "index", "line"),
    [
        (ERROR + b"\n\n{", "json", 1, 3),
        (ERROR + b"\n" + ERROR + b",\n" + ERROR, "json", 1, 2),
        (b"5\n", "ENV-1", 0, 1),
        (b'\n{"type":"RUN_ERROR"}\n', "PROC-2", 0, 2),
        (b"[" + ERROR + b",\n5]", "ENV-1", 1, 2),
        (b"[" + ERROR + b",\n[]]", "ENV-1", 1, 2),
        (b"[" + ERROR + b",\n]", "json", 1, 2),
        (b"[" + ERROR + b"\n" + ERROR + b"]", "json", 1, 2),
        (b"[\n\n{]}]", "json", 0, 3),
        (b"[,]", "json", 0, 1),
        (b"[]\n]", "json", 0, 2),
        (b"[" + ERROR + b"]\n\n{}", "json", 1, 3),
        (b"[", "json", 0, 1),
        (b"[" + ERROR, "json", 1, 1),
        (b"[" + ERROR + b",", "json", 1, 1),
        (b'[\n{"type":"RUN_ERROR","message":"x', "json", 0, 2),
        (b'[\n{"type":"RUN_ERROR",\n"message":5}]', "PROC-2", 0, 2),
    ],
)
@pytest.mark.parametrize("size", [1, 4, 1000])
def test_an_error_names_the_event_and_the_line(data, rule, index, line, size):
    decoder = (JSONArrayDecoder if data.startswith(b"[") else JSONLDecoder)()
    with pytest.raises(DecodeError) as caught:
        read(decoder, cut(data, size))
    assert (caught.value.rule, caught.value.index) == (rule, index)
    assert f"line {line}:" in str(caught.value)


def test_an_array_decoder_wants_an_array():
    with pytest.raises(DecodeError) as caught:
        JSONArrayDecoder().feed(ERROR)
    assert caught.value.rule == "ENV-1"
    with pytest.raises(DecodeError):
        JSONArrayDecoder().close()


@pytest.mark.parametrize("data", [ERROR + b"\n5\n" + ERROR, b"[" + ERROR + b",5," + ERROR + b"]"])
def test_events_before_an_error_are_delivered_and_then_the_stream_is_dead(data):
    decoder = (JSONArrayDecoder if data.startswith(b"[") else JSONLDecoder)()
    assert decoder.feed(data) == [RunErrorEvent(message="x")]
    assert decoder.error is not None
    for call in (lambda: decoder.feed(b""), decoder.close):
        with pytest.raises(DecodeError) as caught:
            call()
        assert caught.value is decoder.error

    found = read_events(io.BytesIO(data))
    assert next(found) == RunErrorEvent(message="x")
    with pytest.raises(DecodeError):
        next(found)


@pytest.mark.parametrize("size", [1, 10_000])
@pytest.mark.parametrize(("decoder", "around"), [(JSONLDecoder, (b"", b"\n")), (JSONArrayDecoder, (b"[", b"]"))])
def test_one_event_is_capped_in_size_and_all_together_are_not(decoder, around, size):
    fits = b'{"type":"RUN_ERROR","message":"' + b"x" * 20 + b'"}'
    comma = b"," if decoder is JSONArrayDecoder else b"\n"
    data = around[0] + comma.join([fits] * 50) + around[1]
    assert len(read(decoder(max_size=len(fits)), cut(data, size))) == 50
    with pytest.raises(DecodeError) as caught:
        read(decoder(max_size=len(fits) - 1), cut(data, size))
    assert caught.value.rule == "limit-size"


@pytest.mark.parametrize(("decoder", "start"), [(JSONLDecoder, b'{"a":"'), (JSONArrayDecoder, b'[{"a":"')])
def test_an_event_that_never_ends_is_refused_without_waiting_for_its_end(decoder, start):
    reader = decoder(max_size=1000)
    reader.feed(start)
    with pytest.raises(DecodeError) as caught:
        reader.feed(b"x" * 1010)
    assert caught.value.rule == "limit-size"


def test_unknown_events_are_dropped_with_a_notice_and_refused_in_strict_mode():
    notices = []
    data = b'{"type":"NEW"}\n' + ERROR
    assert list(read_events(io.BytesIO(data), warn=notices.append)) == [RunErrorEvent(message="x")]
    assert [notice.rule for notice in notices] == ["PROC-3"]
    with pytest.raises(DecodeError):
        list(read_events(io.BytesIO(data), strict=True))
