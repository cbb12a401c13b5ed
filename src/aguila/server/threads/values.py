"""The messages and states of a thread, by the digests of their JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from aguila.codec import decode, encode
from aguila.codec.json.bounded_floats import json_decoder
from aguila.codec.json.encoder import encode_simple
from aguila.codec.json.text import parse_json
from aguila.codec.notices import log_notice
from aguila.errors import DecodeError
from aguila.offload import LARGE, is_large, offload
from aguila.protocol import Message
from aguila.server.config.limits import UNLIMITED
from aguila.server.threads.turn import UnusableTurn
from aguila.store.contents import DIGEST, hash_content

_BYTES_PER_TURN: Final = 1 << 19
"""Bytes of JSON that are decoded before other tasks may run: about a millisecond."""

_decode_message = json_decoder(Message).decode
_decode_any = json_decoder().decode


class ThreadValues:
    """The messages and states of a thread that were loaded or added. ``size`` is about the bytes that they need."""

    __slots__ = ("_copies", "_digests", "_values", "size")

    def __init__(self) -> None:
        self.size = 0
        self._values: dict[bytes, Any] = {}
        self._digests: dict[int, bytes] = {}  # by identity, of the objects in ``_values`` and ``_copies``
        self._copies: list[Any] = []  # objects with the JSON of another one, kept so that their ids are not used again

    def __getitem__(self, digest: bytes) -> Any:
        """Return a value that was loaded. Raises ``UnusableTurn``."""
        try:
            return self._values[digest]
        except KeyError:
            raise UnusableTurn(f"the thread does not have the value {digest.hex()}") from None

    def digest_of(self, value: Any) -> bytes:
        """Return the digest of an object that was loaded or added. Raises KeyError for another one."""
        return self._digests[id(value)]

    def select_missing(self, digests: Iterable[bytes]) -> list[bytes]:
        """Return the digests whose values are not loaded, each once."""
        return [digest for digest in dict.fromkeys(digests) if digest not in self._values]

    async def load(self, found: Mapping[bytes, bytes], kind: Any = Message) -> None:
        """Decode values: messages, or states if ``kind`` is Any."""
        budget = _BYTES_PER_TURN
        for digest, text in found.items():
            value = await offload(_decode, text, kind) if len(text) > LARGE else _decode(text, kind)
            self._add(digest, value, text)
            budget -= len(text) + 256
            if budget < 0:
                budget = _BYTES_PER_TURN
                await asyncio.sleep(0)

    async def add(self, messages: Iterable[Message], state: Any) -> dict[bytes, bytes] | None:
        """Add messages and a state. Return the JSON of those that are new; None if one of them cannot be stored.

        A value that another run has added is stored with the turn of that run. If that could not be stored, its run is
        reduced again before any later one, so the value is there.
        """
        new: dict[bytes, bytes] = {}
        are_exact, budget = True, _BYTES_PER_TURN
        for value in (*messages, state):
            if id(value) in self._digests:
                continue
            kind: Any = Any if value is state else Message
            digest, text, is_exact = await offload(_encode, value, kind) if is_large(value) else _encode(value, kind)
            if digest not in self._values:
                new[digest] = text
                are_exact = are_exact and is_exact
            self._add(digest, value, text)
            budget -= len(text) + 256
            if budget < 0:
                budget = _BYTES_PER_TURN
                await asyncio.sleep(0)
        return new if are_exact else None

    def _add(self, digest: bytes, value: Any, text: bytes) -> None:
        self._digests[id(value)] = digest
        if digest in self._values:
            self._copies.append(value)
            return
        self._values[digest] = value
        # An object or array takes 64 bytes, and its place in another one 8, although "[]," is 3 bytes of JSON.
        self.size += 256 + len(text) + 72 * (text.count(b"{") + text.count(b"[")) + 24 * text.count(b",")


class OpenValues:
    """The values of a thread, and those of an open run, which change with each event: they get numbers, not digests."""

    def __init__(self, values: ThreadValues) -> None:
        self._values = values
        self._own: dict[bytes, Any] = {}
        self._numbers: dict[int, bytes] = {}  # by identity

    def __getitem__(self, digest: bytes) -> Any:
        """Return a value."""
        return self._own[digest] if digest in self._own else self._values[digest]

    def digest_of(self, value: Any) -> bytes:
        """Return the digest of a value of the thread, or the number of another value."""
        try:
            return self._values.digest_of(value)
        except KeyError:
            number = self._numbers.setdefault(id(value), len(self._own).to_bytes(DIGEST))
            self._own[number] = value
            return number


def _decode(text: bytes, kind: Any) -> Any:
    try:
        return _decode_message(text) if kind is Message else _decode_any(text)
    except (msgspec.DecodeError, UnicodeError):  # such as half a surrogate pair
        if kind is Any:
            return parse_json(text, strict=True, warn=log_notice)
        return decode(text, kind, strict=True, max_size=UNLIMITED)


def _encode(value: Any, kind: Any) -> tuple[bytes, bytes, bool]:
    """Return the digest of a value, its JSON, and whether the JSON is decoded to the same value."""
    if value == {}:
        return _EMPTY_STATE
    try:
        text = encode_simple(value)
    except (ValueError, TypeError, RecursionError):
        text = encode(value)  # half a surrogate pair, or an error
    try:
        is_exact = _decode(text, kind) == value
    except DecodeError:
        is_exact = False
    return hash_content(text), text, is_exact


_EMPTY_STATE: Final = (hash_content(b"{}"), b"{}", True)
"""The state of most threads."""
