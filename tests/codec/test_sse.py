"""SSE framing: written frames, parsed frames, and the end of a stream."""

import msgspec
import pytest

from aguila.codec.sse import Frame, SSEDecoder, SSEEncoder, SSEParser
from aguila.errors import DecodeError, EncodeError
from aguila.protocol import CustomEvent, RawEvent, RunErrorEvent, TextMessageContentEvent, TextMessageEndEvent

HELLO = TextMessageContentEvent(message_id="m", delta="hello")
BYE = TextMessageEndEvent(message_id="m")
HELLO_JSON = b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"hello"}'
BYE_JSON = b'{"type":"TEXT_MESSAGE_END","messageId":"m"}'


def frames(data: bytes) -> list[Frame]:
    parser = SSEParser()
    return parser.feed(data) + parser.close()


def data_of(data: bytes) -> list[bytes]:
    return [frame.data for frame in frames(data)]


# Writing


def test_an_event_is_one_data_line_and_a_blank_line_with_lf_only_sse_4_sse_5():
    assert SSEEncoder().encode(HELLO) == b"data: " + HELLO_JSON + b"\n\n"


@pytest.mark.parametrize("id_", ["7", 7])
def test_an_id_goes_before_the_data(id_):
    assert SSEEncoder().encode(BYE, id_) == b"id: 7\ndata: " + BYE_JSON + b"\n\n"


@pytest.mark.parametrize("id_", ["a\nb", "a\rb", "a\0b", "\ud800"])
def test_an_id_that_no_reader_could_read_again_is_refused(id_):
    with pytest.raises(EncodeError):
        SSEEncoder().encode(BYE, id_)
    with pytest.raises(EncodeError):
        SSEEncoder().encode_many([BYE], [id_])


def test_an_empty_id_is_written_because_it_is_an_id():
    assert SSEEncoder().encode(BYE, "").startswith(b"id: \n")


def test_many_events_at_once_are_the_same_bytes_as_one_by_one():
    encoder = SSEEncoder()
    events = [
        HELLO,
        BYE,
        CustomEvent(name="null", value=None),
        HELLO,
        TextMessageContentEvent(message_id="m", delta="\n\ud83d"),
    ]
    assert encoder.encode_many(events) == b"".join(encoder.encode(event) for event in events)
    assert encoder.encode_many(events, "abcde") == b"".join(
        encoder.encode(event, id_) for event, id_ in zip(events, "abcde", strict=True)
    )
    assert encoder.encode_many([]) == b""


def test_many_events_need_as_many_ids():
    with pytest.raises(ValueError, match="zip"):
        SSEEncoder().encode_many([HELLO, BYE], ["1"])


def test_a_nan_among_many_events_is_refused():
    with pytest.raises(EncodeError, match="/value"):
        SSEEncoder().encode_many([HELLO, CustomEvent(name="n", value=float("nan"))])


@pytest.mark.parametrize("newline", [b"\n", b"\r", b"\r\n"])
def test_json_with_line_ends_is_put_on_one_line(newline):
    pretty = b'{"type":"TEXT_MESSAGE_END",' + newline + b'"messageId":"m"}'
    raw = RawEvent(event=msgspec.Raw(b"[1," + newline + b"2]"))
    for written in (
        SSEEncoder().encode_json(pretty),
        SSEEncoder().encode(raw),
        SSEEncoder().encode_many([raw]),
    ):
        assert written.count(b"\n") == 2
        assert b"\r" not in written
        assert len(SSEDecoder().feed(written)) == 1


def test_of_several_documents_the_last_frame_has_the_id():
    encoder = SSEEncoder()
    expected = encoder.encode(HELLO) + encoder.encode(BYE, 7)
    assert encoder.frame([HELLO_JSON, BYE_JSON], 7) == expected
    assert encoder.frame([HELLO_JSON]) == encoder.encode(HELLO)
    assert encoder.frame([], 7) == b""


def test_a_comment_keeps_a_stream_alive_and_is_no_event_sse_7_py_12():
    encoder = SSEEncoder()
    assert encoder.comment() == b":\n\n"
    assert encoder.comment("still here") == b": still here\n\n"
    assert encoder.comment("two\r\nlines\rthree") == b": two\n: lines\n: three\n\n"
    assert SSEDecoder().feed(encoder.comment() + encoder.comment("data: {}\n\ndata: x")) == []


# Reading frames


@pytest.mark.parametrize("newline", [b"\n", b"\r", b"\r\n"])
def test_lf_cr_and_crlf_end_lines(newline):
    stream = b"id: 1\ndata: a\ndata: b\n\n: ping\n\ndata: c\n\n".replace(b"\n", newline)
    assert frames(stream) == [Frame(b"a\nb", "1"), Frame(b"c", "1")]


def test_a_crlf_cut_between_its_bytes_is_one_line_end():
    parser = SSEParser()
    assert parser.feed(b"data: a\r") == []
    assert parser.feed(b"\ndata: b\r") == []
    assert parser.feed(b"\n\r") == [Frame(b"a\nb")]
    assert parser.feed(b"\ndata: c\r\n\r\n") == [Frame(b"c")]


def test_a_byte_order_mark_at_the_start_is_dropped_and_only_there():
    assert data_of(b"\xef\xbb\xbfdata: a\n\n") == [b"a"]
    assert data_of(b"data: a\n\n\xef\xbb\xbfdata: b\n\n") == [b"a"]
    parser = SSEParser()
    assert [parser.feed(bytes([b])) for b in b"\xef\xbb\xbfdata: a\n\n"][-1] == [Frame(b"a")]


def test_what_begins_like_a_byte_order_mark_is_not_lost():
    parser = SSEParser()
    assert parser.feed(b"\xef") == []
    assert parser.feed(b"\xbbdata: a\n\ndata: b\n\n") == [Frame(b"b")]  # the first line names an unknown field


def test_data_over_several_lines_is_joined_by_lf():
    assert data_of(b"data: {\ndata:\ndata\ndata:  }\n\n") == [b"{\n\n\n }"]


def test_one_space_after_the_colon_is_not_part_of_the_value():
    assert data_of(b"data:a\n\ndata: b\n\ndata:  c\n\ndata:\td\n\n") == [b"a", b"b", b" c", b"\td"]


def test_other_fields_comments_and_unknown_lines_are_ignored_sse_6_sse_7():
    stream = b": hello\nevent: message\nretry: 5\nno colon here\nDATA: x\n data: y\ndatum: z\n:data: q\ndata: a\n\n"
    assert data_of(stream) == [b"a"]


def test_a_block_without_data_is_no_frame():
    assert data_of(b"\n\n\n: ping\n\nevent: x\n\nid: 1\n\n\n\n") == []


def test_an_empty_data_line_is_a_frame():
    assert data_of(b"data:\n\ndata\n\n") == [b"", b""]


def test_line_separators_of_unicode_are_ordinary_characters_py_2():
    text = "\u2028\u2029\u0085\x0b\x0c\x1c".encode()
    assert data_of(b"data: " + text + b"\n\n") == [text]


def test_the_last_id_holds_until_the_next():
    parser = SSEParser()
    assert parser.last_event_id is None
    assert parser.feed(b"data: a\n\nid: 1\ndata: b\n\ndata: c\n\nid:2\ndata: d\n\n") == [
        Frame(b"a", None),
        Frame(b"b", "1"),
        Frame(b"c", "1"),
        Frame(b"d", "2"),
    ]
    assert parser.last_event_id == "2"
    parser.feed(b"id: 3\n\n")  # no data, but remembered
    assert parser.last_event_id == "3"
    parser.feed(b"id\ndata: e\n\n")  # reset, as the standard says
    assert parser.last_event_id == ""


@pytest.mark.parametrize(
    "blocks",
    [
        [b"id: 1\ndata: a", b"id: 2\ndata: b"],
        [b"id: 1", b"data: a\nid: 2\ndata: b"],
        [b"id: 1\ndata: a\nid: 2", b"data: b"],
        [b"id: 1\ndata: a\nid: 2\ndata: b", b"id: 3"],
        [b"id: 1\ndata: a", b"id: \0\ndata: b"],
        [b"id: 1\ndata: a", b"id: \xff\ndata: b"],
        [b"id: \ndata: a", b"id: 1\ndata: b"],
        [b"id: 1\ndata:a", b"id: 2\ndata: b"],
        [b"id: 1\ndata: a", b": still here"],
        [b"id: 1\ndata: a", b"", b"data: b"],
    ],
)
def test_ids_go_with_their_blocks_whether_these_come_together_or_one_by_one(blocks):
    apart, together = SSEParser(), SSEParser()
    expected = [frame for block in blocks for frame in apart.feed(block + b"\n\n")]
    assert together.feed(b"".join(block + b"\n\n" for block in blocks)) == expected
    assert together.last_event_id == apart.last_event_id


@pytest.mark.parametrize("block", [b"id: a\0b\ndata: x\n\n", b"data: x\nid: a\0b\n\n"])
def test_an_id_with_a_nul_is_ignored(block):
    parser = SSEParser()
    parser.feed(b"id: 1\ndata: x\n\n")
    assert parser.feed(block) == [Frame(b"x", "1")]


def test_an_id_that_is_not_utf_8_is_read_with_replacement():
    parser = SSEParser()
    parser.feed(b"id: \xff\ndata: x\n\n")
    assert parser.last_event_id == "\ufffd"


def test_the_last_frame_may_lack_its_blank_line():
    assert data_of(b"data: a\n\ndata: b") == [b"a", b"b"]
    assert data_of(b"data: b\n") == [b"b"]
    assert data_of(b"data: a\r\rdata: b\r") == [b"a", b"b"]


def test_an_id_cut_off_by_the_end_does_not_count():
    parser = SSEParser()
    parser.feed(b"id: 1\ndata: a\n\ndata: b\nid: 12")
    assert parser.close() == [Frame(b"b", "1")]
    assert parser.last_event_id == "1"


def test_a_close_without_bytes_gives_nothing():
    assert SSEParser().close() == []
    assert SSEDecoder().close() == []


# The size cap


def test_data_of_exactly_the_cap_is_read_and_one_byte_more_is_not():
    assert len(SSEParser(max_size=100).feed(b"data: " + b"x" * 100 + b"\n\n")) == 1
    with pytest.raises(DecodeError) as caught:
        SSEParser(max_size=100).feed(b"data: " + b"x" * 101 + b"\n\n")
    assert caught.value.rule == "limit-size"


def test_a_frame_that_never_ends_is_refused_without_waiting_for_its_end():
    decoder = SSEDecoder(max_size=1000)
    for _ in range((1000 + 4096) // 8):
        assert decoder.feed(b"data: x\n") == []
    with pytest.raises(DecodeError) as caught:
        decoder.feed(b"data: x\n")
    assert caught.value.rule == "limit-size"


def test_comments_count_towards_the_frame_they_are_in():
    with pytest.raises(DecodeError):
        SSEDecoder(max_size=1000).feed(b": " + b"x" * 10_000 + b"\ndata: " + HELLO_JSON + b"\n\n")


def test_many_small_frames_may_be_larger_together():
    stream = (b"data: " + HELLO_JSON + b"\n\n") * 1000
    assert len(SSEDecoder(max_size=100).feed(stream)) == 1000


def test_frames_before_one_that_is_too_large_are_delivered():
    parser = SSEParser(max_size=10)
    assert parser.feed(b"data: a\n\ndata: " + b"b" * 11 + b"\n\ndata: c\n\n") == [Frame(b"a")]
    assert parser.error is not None
    assert parser.error.index == 1
    with pytest.raises(DecodeError):
        parser.feed(b"data: d\n\n")
    with pytest.raises(DecodeError):
        parser.close()


def test_a_tail_that_is_too_large_does_not_take_the_frames_before_it_along():
    decoder = SSEDecoder(max_size=100)
    assert decoder.feed(b"data: " + BYE_JSON + b"\n\ndata: " + b"b" * 10_000) == [BYE]
    assert decoder.error is not None
    assert (decoder.error.rule, decoder.error.index) == ("limit-size", 1)


# Reading events


def test_events_come_out_typed():
    decoder = SSEDecoder()
    stream = b"id: 4\ndata: " + HELLO_JSON + b"\n\n: ping\n\ndata: " + BYE_JSON + b"\n\n"
    assert decoder.feed(stream) == [HELLO, BYE]
    assert decoder.last_event_id == "4"
    assert decoder.close() == []


def test_a_last_event_without_its_blank_line_is_delivered_and_a_cut_one_is_an_error():
    decoder = SSEDecoder()
    assert decoder.feed(b"data: " + HELLO_JSON) == []
    assert decoder.close() == [HELLO]
    decoder = SSEDecoder()
    decoder.feed(b"data: " + HELLO_JSON + b"\n\ndata: " + BYE_JSON[:-1])
    with pytest.raises(DecodeError) as caught:
        decoder.close()
    assert (caught.value.rule, caught.value.index) == ("json", 1)


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"data:", "json"),
        (b"data", "json"),
        (b"data: [DONE]", "json"),
        (b"data: " + HELLO_JSON + b"\ndata: " + BYE_JSON, "json"),
        (b"data: {", "json"),
        (b"data: null", "ENV-1"),
        (b"data: [1]", "ENV-1"),
        (b"data: {}", "ENV-1"),
        (b'data: {"type":""}', "ENV-1"),
        (b'data: {"type":"TEXT_MESSAGE_END"}', "PROC-2"),
    ],
)
def test_a_frame_that_is_no_event_is_an_error_with_its_position(data, rule):
    decoder = SSEDecoder()
    decoder.feed(b"data: " + HELLO_JSON + b"\n\n: ping\n\n")
    with pytest.raises(DecodeError) as caught:
        decoder.feed(data + b"\n\n")
    assert (caught.value.rule, caught.value.index) == (rule, 1)


def test_events_before_an_error_are_delivered_and_then_the_stream_is_dead():
    decoder = SSEDecoder()
    stream = b"data: " + HELLO_JSON + b"\n\ndata: [DONE]\n\ndata: " + BYE_JSON + b"\n\n"
    assert decoder.feed(stream) == [HELLO]
    assert decoder.error is not None
    assert decoder.error.index == 1
    for call in (lambda: decoder.feed(b"data: " + BYE_JSON + b"\n\n"), lambda: decoder.feed(b""), decoder.close):
        with pytest.raises(DecodeError) as caught:
            call()
        assert caught.value is decoder.error


def test_after_an_error_the_last_id_is_that_of_the_last_good_frame():
    decoder = SSEDecoder()
    good = b"id: 1\ndata: " + HELLO_JSON + b"\n\n: ping\n\ndata: " + BYE_JSON + b"\n\n"
    assert decoder.feed(good + b"id: 2\ndata: x\n\nid: 3\ndata: " + BYE_JSON + b"\n\n") == [HELLO, BYE]
    assert decoder.last_event_id == "1"


def test_an_unknown_event_is_dropped_with_a_notice_and_the_stream_goes_on():
    notices = []
    decoder = SSEDecoder(warn=notices.append)
    assert decoder.feed(b'data: {"type":"NEW"}\n\ndata: ' + BYE_JSON + b"\n\n") == [BYE]
    assert [notice.rule for notice in notices] == ["PROC-3"]


def test_strict_refuses_what_would_be_dropped():
    with pytest.raises(DecodeError):
        SSEDecoder(strict=True).feed(b'data: {"type":"NEW"}\n\n')


def test_bytes_that_are_not_utf_8_are_replaced_with_a_notice():
    notices = []
    decoder = SSEDecoder(warn=notices.append)
    [event] = decoder.feed(b'data: {"type":"RUN_ERROR","message":"\xff"}\n\n')
    assert event == RunErrorEvent(message="\ufffd")
    assert [notice.rule for notice in notices] == ["utf-8"]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
@pytest.mark.parametrize("head", [b"", b"id: 7\n", b"id: 7\nevent: x\n", b": comment\nid: 7\n"])
def test_a_frame_of_megabytes_in_pieces_is_the_same_as_at_once(head: bytes, end: bytes):
    large = b"x" * (2 << 20)
    stream = b"id: 6\ndata: a\n\n" + head + b"data: " + large + end + b"data: b\n\nid: 8\ndata: c\n\ndata: d"
    for size in (1 << 16, (1 << 16) + 1, 1_000_003):
        parser = SSEParser(max_size=4 << 20)
        frames = [frame for at in range(0, len(stream), size) for frame in parser.feed(stream[at : at + size])]
        before = "7" if b"id" in head else "6"
        expected = [(b"a", "6"), (large, before), (b"b", before), (b"c", "8"), (b"d", "8")]
        assert [(frame.data, frame.id) for frame in [*frames, *parser.close()]] == expected
