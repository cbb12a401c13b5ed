"""The inputs that fuzzing starts from: for each decoder, those that its own encoder wrote, and the vectors."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache
from itertools import pairwise
from typing import Any, get_args

from streams.vectors import INVALID, VALID

from aguila.codec import decode, encode
from aguila.codec.protobuf import ProtobufEncoder
from aguila.codec.sse import SSEEncoder
from aguila.errors import EncodeError
from aguila.protocol import Event


@cache
def events() -> list[Any]:
    """Valid events of every type."""
    found = [decode(json.dumps(vector.wire), strict=True) for vector in VALID if vector.type is Event]
    assert {type(event) for event in found} == set(get_args(Event))
    return found


@cache
def json_inputs() -> list[bytes]:
    documents = [vector.wire for vector in [*VALID, *INVALID]]
    compact = [json.dumps(document, separators=(",", ":")).encode() for document in documents]
    older = [
        {"type": "THINKING_START", "title": "x"},
        {"type": "THINKING_TEXT_MESSAGE_START"},
        {"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "x"},
        {"type": "THINKING_END"},
        {"type": "META", "metaType": "x", "payload": {}},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "result": None, "outcome": None},
        {"type": "STATE_SNAPSHOT", "snapshot": [9e307, 5e-324, -1e289, 1.5, 0.1]},
        {
            "type": "MESSAGES_SNAPSHOT",
            "messages": [{"id": "m", "role": "user", "content": [{"type": "binary", "mimeType": "a/b", "url": "u"}]}],
        },
    ]
    return [*compact, *(json.dumps(document, indent=1).encode() for document in older)]


@cache
def sse_inputs() -> list[bytes]:
    encoder, found = SSEEncoder(), events()
    streams = [encoder.encode(event, i) for i, event in enumerate(found)]
    streams += [encoder.encode_many(found[i : i + 3]) + encoder.comment("ping") for i in range(0, len(found), 3)]
    pretty = json.dumps(json.loads(encode(found[0])), indent=1).replace("\n", "\ndata: ").encode()
    streams.append(b"event: x\nretry: 5\ndata: " + pretty + b"\n\n")
    streams += [b"\xef\xbb\xbf" + stream.replace(b"\n", b"\r\n") for stream in streams[:20]]
    streams += [stream.replace(b"\n", b"\r") for stream in streams[20:40]]
    return streams


@cache
def protobuf_inputs() -> list[bytes]:
    encoder = ProtobufEncoder(warn=lambda notice: None)
    frames: list[bytes] = []
    for event in events():
        with suppress(EncodeError):  # a patch operation may have members that protobuf has no place for
            frames.append(encoder.encode(event))
    return [*frames, *(frame[4:] for frame in frames), *(a + b for a, b in pairwise(frames))]


def bombs() -> dict[str, bytes]:
    """Valid events of about 200 KB that once took seconds of CPU time to decode."""
    texts = {
        "the largest floats": b"9e307",
        "the smallest floats": b"5e-324",
        "floats with many digits": b"0." + b"12345678901234567890" * 10,
        "integers with many digits": b"1" * 4000,
    }
    return {
        name: b'{"type":"STATE_SNAPSHOT","snapshot":[%b]}' % b",".join([text] * (200_000 // (len(text) + 1)))
        for name, text in texts.items()
    }
