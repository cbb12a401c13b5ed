"""AG-UI's protobuf encoding: length-prefixed frames to events and back."""

from aguila.codec.protobuf.frames import (
    OversizedFrame,
    ProtobufDecoder,
    ProtobufEncoder,
    ProtobufFrames,
    decode_frame,
    has_protobuf,
)

__all__ = ["OversizedFrame", "ProtobufDecoder", "ProtobufEncoder", "ProtobufFrames", "decode_frame", "has_protobuf"]
