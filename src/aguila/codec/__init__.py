"""Encode protocol objects as bytes and decode them, without I/O.

This module has JSON. The framings are in ``aguila.codec.sse``, ``aguila.codec.jsonl`` and ``aguila.codec.protobuf``.
"""

from aguila.codec.json.decoder import EventDecoder, decode, decode_event
from aguila.codec.json.encoder import encode, encode_event
from aguila.codec.json.text import MAX_DEPTH, MAX_SIZE
from aguila.codec.notices import Notice, Warn

__all__ = [
    "MAX_DEPTH",
    "MAX_SIZE",
    "EventDecoder",
    "Notice",
    "Warn",
    "decode",
    "decode_event",
    "encode",
    "encode_event",
]
