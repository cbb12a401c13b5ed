"""Store the changes of each run, so that a thread is read without its log and its requests.

The body of a stored projection (``Store.projections``) is a ``RunChanges``. It refers to messages and states by their
digests; their JSON is in the values of the thread. The projection after a run is the changes of all runs on its branch.
"""

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
from aguila.server.config.options import UnknownHistory
from aguila.store.run_inputs import ListDelta, hash_json, split_digests
from aguila.stream.conversation import CallStatus

FORMAT: Final = 1
"""The version of ``RunChanges`` and of the rules that compute it. Projections of another version are computed again."""

_BYTES_PER_TURN: Final = 1 << 19
"""Bytes of JSON that are decoded before other tasks may run: about a millisecond."""


class UnusableProjection(LookupError):
    """A stored projection refers to a value or to a run that the thread does not have."""


class RunChanges(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The changes of a run. Messages and the state are digests; events are JSON."""

    history: str
    unknown_history: UnknownHistory
    parent: str | None
    """The run that it continues."""
    messages: tuple[bytes | tuple[int, int], ...]
    """The messages after the run, as a change of those of ``parent``; see ``ListDelta``."""
    state: bytes
    has_state: bool
    started: bytes
    ended: bytes | None
    """The terminal event."""
    calls: dict[str, CallStatus]
    call_starts: list[bytes]
    subagent_events: list[bytes]
    end: str | None
    """The last message that every client holds; see ``cut_history``."""
    created: list[tuple[str, str]]
    """Id and role of each message that the run created."""
    brought: list[str]
    """Ids of the client's messages that no run had before."""
    instructions: list[str]
    """Ids of new system and developer messages of the client."""
    known: list[bytes]
    """The messages that the run sent, as it left them."""
    front_end_calls: dict[str, bytes]
    """Calls that the run left to the front end, with their messages."""
    results: dict[str, dict[str, bytes]]
    """Calls whose results changed, with the messages by their ids; none if the results were withdrawn."""
    interrupted: list[str]
    """Calls that an interrupt asks about, added by the run."""
    uninterrupted: list[str]
    """Calls that an interrupt asked about, removed by the run."""

    @property
    def size(self) -> int:
        """About the bytes that these changes need, without the values."""
        ids = len(self.calls) + len(self.created) + len(self.brought) + len(self.known) + len(self.messages)
        events = [self.started, self.ended or b"", *self.call_starts, *self.subagent_events]
        return 128 * ids + 64 * len(events) + sum(map(len, events))

    @property
    def digests(self) -> list[bytes]:
        """The digests of the values that these changes add."""
        found = [self.state, *self.known, *self.front_end_calls.values()]
        for part in self.messages:
            if isinstance(part, bytes):
                found += split_digests(part)
        for messages in self.results.values():
            found += messages.values()
        return found


_decode_message = json_decoder(Message).decode
_decode_any = json_decoder().decode
encode_changes = msgspec.msgpack.Encoder().encode
decode_changes = msgspec.msgpack.Decoder(RunChanges).decode


def apply_list(path: Iterable[RunChanges], start: bytes = b"") -> bytes:
    """Return the list of message digests after the last run of a path."""
    found = bytearray(start)
    for changes in path:
        parts = changes.messages
        kept = 0
        if parts and not isinstance(parts[0], bytes) and parts[0][0] == 0:
            kept, parts = parts[0][1], parts[1:]
        added = [part for part in parts if isinstance(part, bytes)]
        if len(added) == len(parts):  # nearly always: the list has grown at its end
            del found[kept:]
            found += b"".join(added)
        else:
            found = bytearray(ListDelta(changes.messages).apply(bytes(found)))
    return bytes(found)


class ThreadValues:
    """The messages and states of a thread, by the digests of their JSON. ``size`` is about the bytes that they need."""

    __slots__ = ("_copies", "_digests", "_new", "_unsaved", "_values", "size")

    def __init__(self) -> None:
        self.size = 0
        self._values: dict[bytes, Any] = {}
        self._digests: dict[int, bytes] = {}  # by identity, of the objects in ``_values`` and ``_copies``
        self._copies: list[Any] = []  # objects with the JSON of another one, kept so that their ids are not used again
        # The JSON of values that the store does not have; None if that is decoded to another value.
        self._new: dict[bytes, bytes | None] = {}  # those of the run that is being closed
        self._unsaved: dict[bytes, bytes | None] = {}  # those of runs that could not be stored

    def __getitem__(self, digest: bytes) -> Any:
        """Return a value that was loaded. Raises ``UnusableProjection``."""
        try:
            return self._values[digest]
        except KeyError:
            raise UnusableProjection(f"the thread does not have the value {digest.hex()}") from None

    def select_missing(self, digests: Iterable[bytes]) -> list[bytes]:
        """Return the digests whose values are not loaded, each once."""
        return [digest for digest in dict.fromkeys(digests) if digest not in self._values]

    async def load(self, found: Mapping[bytes, bytes], *, states: frozenset[bytes] = frozenset()) -> None:
        """Decode values. Those in ``states`` are states, the others messages."""
        budget = _BYTES_PER_TURN
        for digest, text in found.items():
            kind: Any = Any if digest in states else Message
            if len(text) > LARGE:
                self._add(digest, await offload(_decode, text, kind), text)
                continue
            self._add(digest, _decode(text, kind), text)
            budget -= len(text) + 256
            if budget < 0:
                budget = _BYTES_PER_TURN
                await asyncio.sleep(0)

    async def add(self, messages: Iterable[Message], state: Any) -> bytes:
        """Add the messages and the state after a run. Return the digest of the state."""
        known, budget = self._digests, _BYTES_PER_TURN
        for value in (*messages, state):
            if id(value) in known:
                continue
            kind: Any = Any if value is state else Message
            digest, text, is_exact = await offload(_encode, value, kind) if is_large(value) else _encode(value, kind)
            if digest not in self._values:
                self._new[digest] = text if is_exact else None
            self._add(digest, value, text)
            budget -= len(text) + 256
            if budget < 0:
                budget = _BYTES_PER_TURN
                await asyncio.sleep(0)
        return known[id(state)]

    def list_digests(self, values: Iterable[Any]) -> list[bytes]:
        """Return the digests of values that were added."""
        digests = self._digests
        return [digests[id(value)] for value in values]

    def map_digests(self, values: Mapping[str, Any]) -> dict[str, bytes]:
        """Return the digests of values that were added, by the same keys."""
        return dict(zip(values, self.list_digests(values.values()), strict=True))

    def take_unsaved(self, changes: RunChanges) -> dict[bytes, bytes] | None:
        """Return the JSON of those values of a run that the store does not have, which the caller stores.

        The run is the one whose values were added last. Return None if one of them cannot be stored.
        """
        found: dict[bytes, Any] = self._new
        self._new = {}
        unsaved = self._unsaved
        if unsaved:
            found.update({digest: unsaved.pop(digest) for digest in changes.digests if digest in unsaved})
        if None in found.values():
            unsaved.update(found)
            return None
        return found

    def _add(self, digest: bytes, value: Any, text: bytes) -> None:
        self._digests[id(value)] = digest
        if digest in self._values:
            self._copies.append(value)
            return
        self._values[digest] = value
        # An object or array takes 64 bytes, and its place in another one 8, although "[]," is 3 bytes of JSON.
        self.size += 256 + len(text) + 72 * (text.count(b"{") + text.count(b"[")) + 24 * text.count(b",")


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
    return hash_json(text), text, is_exact


_EMPTY_STATE: Final = (hash_json(b"{}"), b"{}", True)
"""The state of most threads."""
