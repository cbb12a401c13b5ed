"""The protobuf transport: frames of a length and an event (PB).

Events are validated by ``EventDecoder``, as on the JSON transports (TRN-9). JSON is smaller and several times faster;
protobuf is for compatibility. The ``protobuf`` extra is imported when an encoder or decoder is created, or an ``App``.

What protobuf changes (PB-12); ``values`` lists its changes of numbers:

=========================================================  ====================================
written                                                    read back
=========================================================  ====================================
other members of a patch operation than op, path, from      absent
and value
``usage``, ``tool_calls``, ``pending_tool_call_ids``,      absent
``interrupt_ids``, and ``tools``, ``context``, ``resume``
of an echoed input, that are empty
a user message of one plain text part                      a string, as in JSON
=========================================================  ====================================
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from aguila.codec.json.decoder import DecoderOptions, EventDecoder
from aguila.codec.json.text import MAX_SIZE
from aguila.codec.notices import Notice, Warn, log_notice
from aguila.errors import DecodeError, EncodeError, MissingExtra, ProtocolError, StreamTruncated

if TYPE_CHECKING:
    from aguila.protocol import Event

_to_json = msgspec.json.Encoder().encode
_length = struct.Struct(">I")
_PREFIX = _length.size
_MAX_LENGTH = 0xFFFFFFFF


@cache
def has_protobuf() -> bool:
    """Return whether the ``protobuf`` extra is installed."""
    try:
        return find_spec("google.protobuf") is not None
    except ModuleNotFoundError:  # there is no package ``google``
        return False


class ProtobufEncoder:
    """Encodes events as frames, without state between events.

    ``warn`` receives a ``Notice`` for each integer that loses digits, because protobuf has only doubles. Raises
    ``MissingExtra`` if protobuf is not installed.
    """

    def __init__(self, *, warn: Warn | None = None) -> None:
        self._write = _writer()
        self._warn = warn or log_notice

    def encode(self, event: Event) -> bytes:
        """Encode an event as one frame. The same event gives the same bytes.

        Raises ``EncodeError`` for an object that is not an event, and for values that protobuf cannot carry: NaN and
        Infinity, lone surrogates, unknown patch operations, timestamps and counts beyond 2^53, nesting beyond 256.
        """
        body = self._write(event, self._report_inexact)
        if len(body) > _MAX_LENGTH:
            raise EncodeError(f"{event.type} has {len(body)} bytes; a frame has at most {_MAX_LENGTH}")
        return _length.pack(len(body)) + body

    def _report_inexact(self, _: int) -> None:
        self._warn(Notice(rule="PB-12", message="an integer beyond 2^53 is written as the nearest double"))


class ProtobufFrames:
    """Splits bytes into frames, wherever they were cut (PB-5)."""

    def __init__(self, *, max_size: int = MAX_SIZE) -> None:
        self._max_size = max_size
        self._buffer = bytearray()
        self._seen = 0

    @property
    def buffered(self) -> int:
        """The number of bytes of an incomplete frame."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the bodies of the frames that ``data`` completes.

        Raises ``OversizedFrame`` as soon as a prefix announces a frame larger than ``max_size``, prefix included. The
        frames before it in the same ``data`` are in its ``frames``.
        """
        buffer = self._buffer
        buffer += data
        frames: list[bytes] = []
        at = 0
        while len(buffer) - at >= _PREFIX:
            size = _PREFIX + _length.unpack_from(buffer, at)[0]
            if size > self._max_size:
                raise OversizedFrame(size, self._max_size, self._seen + len(frames), frames)
            if len(buffer) - at < size:
                break
            frames.append(bytes(buffer[at + _PREFIX : at + size]))
            at += size
        if at:
            del buffer[:at]
        self._seen += len(frames)
        return frames

    def close(self) -> None:
        """End the stream. Raises ``StreamTruncated`` in the middle of a frame (PB-6, AMB-6)."""
        if self._buffer:
            raise StreamTruncated(f"the stream ended in the middle of a frame, {len(self._buffer)} bytes into it")


class OversizedFrame(DecodeError):
    """A prefix announces a frame beyond the size limit. ``frames`` are the complete ones before it."""

    def __init__(self, size: int, max_size: int, index: int, frames: list[bytes]) -> None:
        super().__init__(f"a frame of {size} bytes exceeds the limit of {max_size}", rule="limit-size", index=index)
        self.frames = frames


def decode_frame(body: bytes, *, warn: Warn = log_notice) -> dict[str, Any] | None:
    """Decode the body of a frame to the JSON object of its event, before compatibility rules and validation.

    Return None, with a notice, if this version does not know the kind of event (PB-11). Raises ``DecodeError``.
    """
    return _reader()(body, warn)


class ProtobufDecoder:
    """Decodes a stream of frames, by the same rules as the JSON transports (PROC-14).

    The options are those of ``EventDecoder``; ``max_size`` includes the prefix of a frame. An error ends the stream:
    every later call raises it again. If events precede it in the same bytes, ``feed`` returns them and ``error`` is
    set. Raises ``MissingExtra`` if protobuf is not installed.
    """

    def __init__(self, **options: Unpack[DecoderOptions]) -> None:
        self._read = _reader()
        self._warn = options.get("warn") or log_notice
        max_size = options.get("max_size", MAX_SIZE)
        # The size limit applies to the frame. As JSON the same event may be up to eight times as long.
        json_options: DecoderOptions = {**options, "max_size": 8 * max_size}
        self._events = EventDecoder(**json_options)
        self._frames = ProtobufFrames(max_size=max_size)
        self._index = 0
        self.error: ProtocolError | None = None

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that ``data`` completes. Raises ``DecodeError`` with rule, path and the frame's index."""
        if self.error is not None:
            raise self.error
        events: list[Event] = []
        try:
            frames = self._frames.feed(data)
        except OversizedFrame as error:
            frames = error.frames
            self.error = error
        try:
            for body in frames:
                events += self._decode(body)
                self._index += 1
        except ProtocolError as error:
            error.index = self._index
            self.error = error
        if self.error is not None and not events:
            raise self.error
        return events

    def _decode(self, body: bytes) -> list[Event]:
        raw = self._read(body, self._warn)
        # Through JSON text: the typed decoder reads it in a tenth of the time that a dict takes, and validation cannot
        # differ from that of the other transports.
        return [] if raw is None else self._events.feed(_to_json(raw))

    def close(self) -> list[Event]:
        """End the stream. Raises ``StreamTruncated`` in the middle of a frame (PB-6, AMB-6).

        Returns a list, always empty, because ``SSEDecoder.close`` may return events.
        """
        if self.error is not None:
            raise self.error
        self._frames.close()
        return []


def _writer() -> Callable[[Any, Callable[[int], None]], bytes]:
    try:
        from aguila.codec.protobuf.writer import write_event
    except ModuleNotFoundError as error:
        raise _missing_extra(error) from error
    return write_event


def _reader() -> Callable[[bytes, Warn], dict[str, Any] | None]:
    try:
        from aguila.codec.protobuf.reader import read_event
    except ModuleNotFoundError as error:
        raise _missing_extra(error) from error
    return read_event


def _missing_extra(error: ModuleNotFoundError) -> ImportError:
    is_ours = (error.name or "").split(".")[0] != "google"
    return error if is_ours else MissingExtra("protobuf", "protobuf")
