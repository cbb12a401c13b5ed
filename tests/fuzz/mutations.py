"""Mutate inputs by bytes, by JSON tokens and by lines. It is fast, because there are hundreds of thousands."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

Mutation = Callable[[Random, bytes, list[bytes]], bytes]

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^{}\[\],:"\s]+|\s+', re.DOTALL)

VALUES = [
    *rb"""null true false 0 -0 5.0 5.5 1e5 1e400 -1e400 1e-400 NaN Infinity 01 9007199254740991 9007199254740992
    -9007199254740993 18446744073709551616 "" "x" "\ud800" "\udc00\ud800" "\ud83d\ude00" "\u0000" "~2" "/a~1b" [] {}
    [[]] {"a":null} {"type":"new"} {"type":5} [{"op":"add","path":"/a","value":1},{"op":"new"}] ["]","["] "user"
    "assistant" "narrator" "reasoning" "tool" "success" "interrupt" "url" "RUN_STARTED" "RUN_FINISHED" "STATE_DELTA"
    "META" "MESSAGES_SNAPSHOT" "TOOL_CALL_CHUNK" """.split(),
    *(b'"\xff"', b'"\x01"', b'"\xed\xa0\x80"', b'"\xe2\x80\xa8"', b"1" * 400, b"9" * 4400),
]
MEMBERS = rb"""
    "type" "role" "content" "timestamp" "metadata" "rawEvent" "messageId" "delta" "subagentRunId" "outcome" "input"
    "messages" "toolCalls" "usage" "unknown" "a/~b" "__class__" "source" "encryptedValue" "\u0074ype" "\ud800" "state"
    "tools" "" """.split()
LINES = [
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b":", b": c\n", b"data", b"data:", b"data: ", b"\ndata: ", b"id: 1\n"),
    *(
        b"id",
        b"id: \x00\n",
        b"event: e\n",
        b"retry: 1\n",
        b"data: [DONE]\n\n",
        b"\xef\xbb\xbf",
        b"\xe2\x80\xa8",
        b"\x85",
    ),
    *(b" ", b"data: {}\n\n", b'data: {"type":"NEW"}\n\n', b"data: {\ndata: }\n\n"),
]


def _at(rng: Random, data: bytes) -> int:
    return int(rng.random() * (len(data) + 1))


def flip_a_bit(rng: Random, data: bytes, _: list[bytes]) -> bytes:
    if not data:
        return data
    at = int(rng.random() * len(data))
    return data[:at] + bytes((data[at] ^ (1 << int(rng.random() * 8)),)) + data[at + 1 :]


def change_a_byte(rng: Random, data: bytes, _: list[bytes]) -> bytes:
    at = _at(rng, data)
    return data[:at] + bytes((int(rng.random() * 256),)) + data[at + 1 :]


def truncate(rng: Random, data: bytes, _: list[bytes]) -> bytes:
    return data[: _at(rng, data)]


def drop_a_slice(rng: Random, data: bytes, _: list[bytes]) -> bytes:
    at = _at(rng, data)
    return data[:at] + data[at + int(rng.random() * 20) :]


def repeat_a_slice(rng: Random, data: bytes, _: list[bytes]) -> bytes:
    at = _at(rng, data)
    end = at + int(rng.random() * 40)
    return data[:end] + data[at:end] * int(1 + rng.random() * 3) + data[end:]


def splice(rng: Random, data: bytes, corpus: list[bytes]) -> bytes:
    other = corpus[int(rng.random() * len(corpus))]
    return data[: _at(rng, data)] + other[_at(rng, other) :]


def insert_from(pool: list[bytes]) -> Mutation:
    def insert(rng: Random, data: bytes, _: list[bytes]) -> bytes:
        at = _at(rng, data)
        return data[:at] + pool[int(rng.random() * len(pool))] + data[at:]

    return insert


def swap_tokens(rng: Random, data: bytes, _: list[bytes]) -> bytes:
    tokens = _TOKEN.findall(data)
    if tokens:
        a, b = int(rng.random() * len(tokens)), int(rng.random() * len(tokens))
        tokens[a], tokens[b] = tokens[b], tokens[a]
    return b"".join(tokens)


def _values(tokens: list[bytes]) -> list[int]:
    return [
        i for i, token in enumerate(tokens) if i > 0 and tokens[i - 1] in (b":", b"[") and token not in (b"{", b"[")
    ]


def change_a_value(rng: Random, data: bytes, corpus: list[bytes]) -> bytes:
    tokens = _TOKEN.findall(data)
    places = _values(tokens)
    if places:
        other = (
            VALUES[int(rng.random() * len(VALUES))] if rng.random() < 0.9 else corpus[int(rng.random() * len(corpus))]
        )
        tokens[places[int(rng.random() * len(places))]] = other
    return b"".join(tokens)


def add_a_member(rng: Random, data: bytes, _: list[bytes]) -> bytes:
    """Add a member: known or unknown, new or a duplicate."""
    at = data.find(b"{", int(rng.random() * len(data)))
    if at < 0:
        at = data.find(b"{")
    name = MEMBERS[int(rng.random() * len(MEMBERS))]
    return data[: at + 1] + name + b":" + VALUES[int(rng.random() * len(VALUES))] + b"," + data[at + 1 :]


def rename_a_member(rng: Random, data: bytes, _: list[bytes]) -> bytes:
    tokens = _TOKEN.findall(data)
    places = [i for i in range(len(tokens) - 1) if tokens[i + 1] == b":"]
    if places:
        tokens[places[int(rng.random() * len(places))]] = MEMBERS[int(rng.random() * len(MEMBERS))]
    return b"".join(tokens)


def nest(rng: Random, data: bytes, _: list[bytes]) -> bytes:
    tokens = _TOKEN.findall(data)
    places = _values(tokens)
    depth = (1, 5, 250, 260, 3000)[int(rng.random() * 5)]
    before, after = ((b"[", b"]"), (b'{"a":', b"}"), (b'["]",', b',"["]'))[int(rng.random() * 3)]
    if places and (depth < 10 or rng.random() < 0.1):  # deep ones are slow to make
        at = places[int(rng.random() * len(places))]
        tokens[at] = before * depth + tokens[at] + after * depth
    return b"".join(tokens)


BYTES: list[Mutation] = [flip_a_bit, change_a_byte, truncate, drop_a_slice, repeat_a_slice, splice]
TOKENS: list[Mutation] = [swap_tokens, change_a_value, change_a_value, add_a_member, rename_a_member, nest]
JSON: list[Mutation] = [*BYTES, insert_from(VALUES), *TOKENS, *TOKENS]
SSE: list[Mutation] = [*BYTES, *[insert_from(LINES)] * 6, change_a_value, add_a_member]
PROTOBUF: list[Mutation] = [
    *BYTES,
    *BYTES,
    insert_from([b"\0", b"\xff", b"\x80", b"\x08\x01", b"\xff" * 10, b"\x0a\x00"]),
]


def mutate(rng: Random, corpus: list[bytes], mutations: list[Mutation]) -> bytes:
    """Return an input of the corpus after one to four mutations."""
    data = corpus[int(rng.random() * len(corpus))]
    for _ in range(int(1 + rng.random() * rng.random() * 4)):
        data = mutations[int(rng.random() * len(mutations))](rng, data, corpus)
    return data
