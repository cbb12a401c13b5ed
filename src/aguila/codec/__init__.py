"""Layer: codec. Bytes to protocol objects and back, without I/O.

Below: ``aguila.protocol``. Above: ``aguila.stream`` says what the decoded events mean. JSON is here; the framings are
``aguila.codec.sse``, ``aguila.codec.jsonl`` and ``aguila.codec.protobuf``.
"""

from aguila.codec.json.decoder import EventDecoder, decode, decode_event, encode, encode_event
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
