"""An SSE stream cut into any pieces gives the same frames."""

from collections.abc import Callable, Iterable
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from aguila.codec.sse import SSEDecoder, SSEEncoder, SSEParser
from aguila.errors import DecodeError
from aguila.testing import strategies

FIELDS = [
    b"data: x",
    b"data:",
    b"data",
    b"data:  y",
    b"id: 1",
    b"id: a\0",
    b"id",
    b": c",
    b"event: e",
    b"\xef\xbb\xbf",
    b"z",
]
LINE_ENDS = [b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n", b"\n\n\n", b""]

lines = st.lists(st.tuples(st.sampled_from(FIELDS) | st.binary(max_size=4), st.sampled_from(LINE_ENDS)), max_size=12)
streams = lines.map(lambda pairs: b"".join(line + end for line, end in pairs))


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def outcome(make: Callable[[], SSEParser | SSEDecoder], parts: list[bytes]) -> tuple[list, tuple | None, str | None]:
    """Return the frames, the error and the last id: everything that a reader can see."""
    reader, out = make(), []
    try:
        for part in parts:
            out += reader.feed(part)
        out += reader.close()
    except DecodeError as error:
        return out, (error.rule, error.path, error.index), None
    return out, None, reader.last_event_id


def read_by_line(data: bytes) -> list[tuple[bytes, str | None]]:
    """Read a stream by the algorithm of the standard, line by line: the oracle."""
    data = data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    found, values, last_id = [], [], None
    for line in data.split(b"\n")[:-1]:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            if values:
                found.append((b"\n".join(values), last_id))
            values = []
        elif name == b"data":
            values.append(value)
        elif name == b"id" and b"\0" not in value:
            last_id = value.decode("utf-8", "replace")
    return found


@given(streams)
@settings(max_examples=400, deadline=None)
def test_frames_are_those_of_the_standard(stream):
    assert [(frame.data, frame.id) for frame in SSEParser().feed(stream)] == read_by_line(stream)


@given(streams, st.lists(st.integers(0, 200), max_size=8))
@settings(max_examples=400, deadline=None)
def test_frames_do_not_depend_on_how_the_bytes_are_cut(stream, cuts):
    whole = outcome(SSEParser, [stream])
    assert outcome(SSEParser, [stream[i : i + 1] for i in range(len(stream))]) == whole
    assert outcome(SSEParser, pieces(stream, cuts)) == whole


@given(streams, st.lists(st.integers(0, 200), max_size=8), st.integers(0, 6))
@settings(max_examples=200, deadline=None)
def test_the_size_cap_does_not_depend_on_how_the_bytes_are_cut(stream, cuts, cap):
    stream = stream.replace(b"c", b"c" * 4098)  # comments around the room that a frame has besides its data

    def make() -> SSEParser:
        return SSEParser(max_size=cap)

    whole = outcome(make, [stream])
    assert outcome(make, [stream[i : i + 1] for i in range(len(stream))]) == whole
    assert outcome(make, pieces(stream, cuts)) == whole


@given(
    st.lists(strategies.events(), max_size=4),
    st.sampled_from([b"\n", b"\r", b"\r\n"]),
    st.sampled_from([b"", b"data: [DONE]\n\n", b"data: {", b": end"]),
    st.lists(st.integers(0, 5000), max_size=8),
)
@settings(max_examples=100, deadline=None)
def test_a_stream_of_events_decodes_the_same_whole_byte_by_byte_or_cut_anywhere(events, newline, end, cuts):
    encoder = SSEEncoder()
    stream = encoder.encode_many(events, range(len(events))) + encoder.comment("ping") + end
    stream = stream.replace(b"\n", newline)
    whole = outcome(SSEDecoder, [stream])
    assert len(whole[0]) == len(events)
    assert outcome(SSEDecoder, [stream[i : i + 1] for i in range(len(stream))]) == whole
    assert outcome(SSEDecoder, pieces(stream, cuts)) == whole
