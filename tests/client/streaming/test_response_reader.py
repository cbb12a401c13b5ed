"""Framing errors end a stream after the events before them; an incomplete event at the end is truncation."""

import pytest

from aguila.client.streaming.response_reader import reader_for
from aguila.codec.protobuf import ProtobufEncoder
from aguila.errors import DecodeError, StreamTruncated
from aguila.protocol import CustomEvent

PROTO = "application/vnd.ag-ui.event+proto"
EVENT = CustomEvent(name="n", value=1)
GOOD = ProtobufEncoder().encode(EVENT)


def reader(content_type, notices=None, **options):
    made = reader_for(content_type, warn=[].append if notices is None else notices.append, **options)
    assert made is not None
    return made


@pytest.mark.parametrize(
    "content_type", [None, "", "text/html", "application/json", "text/event-streams", "application/octet-stream"]
)
def test_what_is_no_stream_has_no_reader(content_type):
    assert reader_for(content_type, warn=print) is None


@pytest.mark.parametrize(
    ("content_type", "good", "bad"),
    [
        (PROTO, GOOD, b"\0\0\0\x02\xff\xff"),
        (PROTO, GOOD, b"\x7f\xff\xff\xff"),
        ("text/event-stream", b'data: {"type": "CUSTOM"}\n\n', b"data: " + b"x" * 300 + b"\n\n"),
    ],
    ids=["undecodable", "oversized", "oversized SSE"],
)
def test_an_error_comes_after_the_events_before_it_and_then_for_good(content_type, good, bad):
    made = reader(content_type, max_size=200)
    assert len(made.feed(good + good + bad)) == 2
    assert isinstance(made.error, DecodeError)
    for again in (lambda: made.feed(good), made.close):
        with pytest.raises(DecodeError):
            again()
    with pytest.raises(DecodeError):
        reader(content_type, max_size=200).feed(bad)


def test_an_unknown_kind_of_frame_is_dropped_with_a_notice_pb11():
    notices = []
    unknown = b"\xba\x3e\x00"  # field 999, of no bytes
    made = reader(PROTO, notices)
    assert len(made.feed(GOOD + len(unknown).to_bytes(4, "big") + unknown + GOOD)) == 2
    assert [notice.rule for notice in notices] == ["PB-11"]


@pytest.mark.parametrize("cut", range(1, len(GOOD)))
def test_a_piece_of_a_frame_at_the_end_is_truncation_pb6(cut):
    made = reader(PROTO)
    assert made.feed(GOOD[:cut]) == []
    with pytest.raises(StreamTruncated):
        made.close()


def test_an_event_without_its_blank_line_counts_if_it_is_whole():
    made = reader("text/event-stream")
    assert made.feed(b'id: 7\ndata: {"type": "CUSTOM"}') == []
    assert [(frame.data, frame.id) for frame in made.close()] == [(b'{"type": "CUSTOM"}', "7")]
    made = reader("text/event-stream")
    made.feed(b'id: 7\ndata: {"type": "CUS')
    with pytest.raises(StreamTruncated):
        made.close()
