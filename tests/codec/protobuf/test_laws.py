"""Laws: written events are read again, however the bytes are cut; any bytes give events or an ``AguilaError``."""

from __future__ import annotations

from contextlib import suppress

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from streams.protobuf_bytes import framed
from streams.protobuf_losses import after_protobuf, lossy

from aguila.codec import EventDecoder, encode
from aguila.codec.notices import Notice
from aguila.codec.protobuf import ProtobufDecoder, ProtobufEncoder, decode_frame
from aguila.errors import AguilaError, StreamTruncated
from aguila.protocol import Event
from aguila.testing import strategies


def _unexpected(notice: Notice) -> None:
    raise AssertionError(f"a valid event needs no tolerance: {notice}")


def _write(event: Event) -> bytes:
    return ProtobufEncoder(warn=lambda notice: None).encode(event)


@settings(max_examples=300, deadline=None)
@given(strategies.events())
def test_what_is_written_is_read_again_save_for_the_listed_losses(event: Event) -> None:
    frame = _write(event)
    assert decode_frame(frame[4:], warn=_unexpected) == lossy(msgspec.json.decode(encode(event)))
    assert ProtobufDecoder(warn=_unexpected, strict=True).feed(frame) == [after_protobuf(event)]


@settings(max_examples=100, deadline=None)
@given(strategies.events())
def test_what_was_read_is_written_to_the_same_bytes(event: Event) -> None:
    frame = _write(event)
    (read,) = ProtobufDecoder(compat="off").feed(frame)
    assert _write(read) == frame


@settings(max_examples=100, deadline=None)
@given(st.lists(strategies.events(), max_size=4), st.data())
def test_a_stream_reads_the_same_wherever_it_is_cut_pb_5(events: list[Event], data: st.DataObject) -> None:
    stream = b"".join(map(_write, events))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    decoder = ProtobufDecoder(warn=_unexpected, compat="off")
    read: list[Event] = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        read += decoder.feed(stream[start:stop])
    decoder.close()
    assert read == [after_protobuf(event) for event in events]


@settings(max_examples=100, deadline=None)
@given(st.lists(strategies.events(), min_size=1, max_size=3), st.data())
def test_a_stream_cut_short_gives_its_whole_frames_and_is_truncated_in_between_pb_6(
    events: list[Event], data: st.DataObject
) -> None:
    frames = list(map(_write, events))
    stream = b"".join(frames)
    length = data.draw(st.integers(0, len(stream)))
    ends = [sum(map(len, frames[: i + 1])) for i in range(len(frames))]
    decoder = ProtobufDecoder(warn=_unexpected, compat="off")
    read = decoder.feed(stream[:length])
    assert len(read) == sum(end <= length for end in ends)
    truncated = False
    try:
        decoder.close()
    except StreamTruncated:
        truncated = True
    assert truncated == (length not in (0, *ends))


@settings(max_examples=300, deadline=None)
@given(strategies.events(), st.data())
def test_damaged_frames_end_in_events_or_in_an_error_of_ours(event: Event, data: st.DataObject) -> None:
    body = bytearray(_write(event)[4:])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
        body = body or bytearray(b"\x00")
    with suppress(AguilaError):
        ProtobufDecoder(warn=lambda notice: None, compat="wide").feed(framed(bytes(body)))


@settings(max_examples=100, deadline=None)
@given(strategies.events())
def test_both_transports_reach_the_same_event_trn_9(event: Event) -> None:
    over_json = EventDecoder(warn=_unexpected).feed(encode(after_protobuf(event)))
    assert ProtobufDecoder(warn=_unexpected).feed(_write(event)) == over_json
