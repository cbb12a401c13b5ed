"""Cut requests and projections, so that a thread stores each message once and a scope each inline file once.

A client sends its whole history with every run. Stored whole, a conversation would need space that is quadratic in its
length. So a stored request is its JSON without the messages, and a list of message digests. That list is stored as a
change of the list of an earlier run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b, sha256
from typing import Final

import msgspec

from aguila.codec.json.bounded_floats import json_decoder
from aguila.store.large_strings import ExcisedJSON, excise_strings
from aguila.store.records import Blob, RunProjection

SMALL: Final = 2048
"""A request of at most this many bytes is stored whole: cutting it would cost more than it saves."""

INLINE: Final = 16 * 1024
"""A string of at least this many bytes without an escape, such as a file in base64, is stored as an inline file."""

DIGEST: Final = 16
"""The bytes of a digest."""

MAX_DEPTH: Final = 32
"""After this many changes in a row, a list is stored whole, so that reading it needs few rows."""


class StoredJSON(msgspec.Struct, frozen=True, gc=False):
    """JSON without its inline files, and the place and digest of each file, in order."""

    text: bytes
    files: tuple[tuple[int, bytes], ...] = ()

    @property
    def size(self) -> int:
        """The bytes that it needs, without its files."""
        return len(self.text) + (len(self.files) * (DIGEST + 8) if self.files else 0)


class CutInput(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request in parts. If ``digests`` is None, ``body`` is the whole request.

    ``messages`` has each different message once, ``files`` each different inline file, by their digests.
    """

    body: StoredJSON
    digests: bytes | None = None
    messages: Mapping[bytes, StoredJSON] = {}
    files: Mapping[bytes, bytes | memoryview] = {}
    size: int = 0
    """The bytes of the request."""


class _UncutMessages(Mapping[bytes, StoredJSON]):
    """Messages without inline files. A store reads only those that it does not have, so only those are copied."""

    def __init__(self, messages: dict[bytes, msgspec.Raw]) -> None:
        self._messages = messages

    def __getitem__(self, digest: bytes) -> StoredJSON:
        return StoredJSON(bytes(self._messages[digest]))

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._messages)

    def __len__(self) -> int:
        return len(self._messages)


class ListDelta(msgspec.Struct, frozen=True):
    """A list of digests, as a change of another list: each part is new digests, or a range of the other list."""

    parts: tuple[bytes | tuple[int, int], ...]

    @property
    def new(self) -> list[bytes]:
        """The digests that do not come from the other list, each once."""
        found = [digest for part in self.parts if isinstance(part, bytes) for digest in split_digests(part)]
        return list(dict.fromkeys(found))

    def apply(self, base: bytes) -> bytes:
        """Return the list."""
        return b"".join([part if isinstance(part, bytes) else base[part[0] : part[1]] for part in self.parts])

    def encode(self) -> bytes:
        """Return the bytes to store."""
        return _encode_parts(self.parts)

    @classmethod
    def decode(cls, data: bytes) -> ListDelta:
        """Decode bytes that ``encode`` returned."""
        return cls(_decode_parts(data))


def cut_input(body: bytes) -> CutInput:
    """Cut a request. One that is small, or has no list of messages, stays whole."""
    size = len(body)
    if size <= SMALL:
        return CutInput(body=StoredJSON(body), size=size)
    excised = excise_strings(body, INLINE // 2)
    for text in (body,) if excised is None else (excised.text, body):  # the body if the cut text is not JSON
        try:
            members = _decode_members(text)
            messages = _decode_items(members.pop("messages"))
        except (msgspec.DecodeError, KeyError, UnicodeError):
            continue
        break
    else:
        return CutInput(body=StoredJSON(body), size=size)
    if excised is None:
        keys = [sha256(raw).digest()[:DIGEST] for raw in messages]  # in hardware on most machines
        uncut = _UncutMessages(dict(zip(keys, messages, strict=True)))
        return CutInput(body=StoredJSON(_encode(members)), digests=b"".join(keys), messages=uncut, size=size)
    digests: list[bytes] = []
    stored: dict[bytes, StoredJSON] = {}
    files: dict[bytes, memoryview] = {}
    for raw in messages:
        message = _take_files(bytes(raw), excised, files)
        digests.append(key := hash_message(message))
        stored.setdefault(key, message)
    rest = _take_files(_encode(members), excised, files)
    return CutInput(body=rest, digests=b"".join(digests), messages=stored, files=files, size=size)


class CutProjection(msgspec.Struct, frozen=True, kw_only=True):
    """A projection in parts: its values without their inline files, and each different file, by their digests."""

    format: int
    body: bytes
    values: dict[bytes, StoredJSON]
    files: dict[bytes, memoryview]


def cut_projection(projection: RunProjection) -> CutProjection:
    """Cut the inline files out of the values of a projection."""
    files: dict[bytes, memoryview] = {}
    values: dict[bytes, StoredJSON] = {}
    for digest, text in projection.values.items():
        excised = excise_strings(text, INLINE // 2) if len(text) >= INLINE else None
        values[digest] = StoredJSON(text) if excised is None else _take_files(excised.text, excised, files)
    return CutProjection(format=projection.format, body=projection.body, values=values, files=files)


def join_value(value: StoredJSON, file: Callable[[bytes], bytes]) -> bytes:
    """Return a value of a projection. ``file`` returns an inline file."""
    return _join_files(value, file)


def hash_message(message: StoredJSON) -> bytes:
    """Return the digest of a message of a request."""
    digest = sha256(message.text)
    if message.files:
        digest.update(repr(message.files).encode())
    return digest.digest()[:DIGEST]


def hash_json(text: bytes) -> bytes:
    """Return the digest of a value of a projection."""
    return blake2b(text, digest_size=DIGEST).digest()


def _take_files(text: bytes, excised: ExcisedJSON | None, files: dict[bytes, memoryview]) -> StoredJSON:
    if excised is None:
        return StoredJSON(text)
    text, found = excised.take_out(text, INLINE)
    places: list[tuple[int, bytes]] = []
    for place, data in found:
        digest = blake2b(data, digest_size=DIGEST).digest()
        places.append((place, digest))
        files[digest] = data
    return StoredJSON(text, tuple(places))


def join_input(
    body: StoredJSON, digests: bytes | None, message: Callable[[bytes], StoredJSON], file: Callable[[bytes], bytes]
) -> bytes:
    """Join the parts of a request. The result has the same JSON value as the request that was cut."""
    start = _join_files(body, file)
    if digests is None:
        return start
    texts = [_join_files(message(digest), file) for digest in split_digests(digests)]
    return b'%b%b"messages":[%b]}' % (start[:-1], b"" if start == b"{}" else b",", b",".join(texts))


def _join_files(message: StoredJSON, file: Callable[[bytes], bytes]) -> bytes:
    if not message.files:
        return message.text
    pieces: list[bytes] = []
    start = 0
    for place, digest in message.files:
        pieces += (message.text[start:place], file(digest))
        start = place
    return b"".join((*pieces, message.text[start:]))


def inline_id(digest: bytes) -> str:
    """Return the id of an inline file."""
    return _INLINE_ID + digest.hex()


def is_inline(blob_id: str) -> bool:
    """Return whether an id is that of an inline file, which callers can neither read nor delete."""
    return blob_id.startswith(_INLINE_ID)


def inline_file(digest: bytes, data: bytes | memoryview, now: float) -> Blob:
    """Return the record of an inline file."""
    return Blob(blob_id=inline_id(digest), media_type="text/plain", filename=None, size=len(data), created_at=now)


def split_digests(digests: bytes) -> list[bytes]:
    """Return the digests of a list."""
    return [digests[at : at + DIGEST] for at in range(0, len(digests), DIGEST)]


def compare_lists(base: bytes, digests: bytes) -> ListDelta:
    """Return a list as a change of another one."""
    if not base:
        return ListDelta((digests,) if digests else ())
    start = _common(base, 0, digests, 0)
    parts: list[bytes | tuple[int, int]] = [(0, start)] if start else []
    if start == len(base) or start == len(digests):  # nearly always: the list has grown at its end
        return ListDelta((*parts, digests[start:]) if start < len(digests) else tuple(parts))
    places = {base[at : at + DIGEST]: at for at in range(0, len(base), DIGEST)}
    first_new = start
    while start < len(digests):
        place = places.get(digests[start : start + DIGEST])
        count = 0 if place is None else _common(base, place, digests, start)
        if count < _MIN_RANGE or place is None:
            start += max(count, DIGEST)
            continue
        if first_new < start:
            parts.append(digests[first_new:start])
        parts.append((place, place + count))
        start = first_new = start + count
    if first_new < start:
        parts.append(digests[first_new:start])
    return ListDelta(tuple(parts))


def read_list(deltas: list[ListDelta]) -> bytes:
    """Return a list from its change, the change of the list before it, and so on to one that is whole."""
    found = b""
    for delta in reversed(deltas):
        found = delta.apply(found)
    return found


def _common(one: bytes, start: int, other: bytes, other_start: int) -> int:
    """Return how many bytes of whole digests two lists have in common from these places on.

    Steps double while they are equal, and halve after that, so the work grows with the common part only.
    """
    count, step, is_growing = 0, DIGEST, True
    most = min(len(one) - start, len(other) - other_start)
    while step >= DIGEST:
        end = count + step
        left, right = one[start + count : start + end], other[other_start + count : other_start + end]
        if end <= most and left == right:
            count = end
            step = step * 2 if is_growing else step // 2
        else:
            is_growing = False
            step //= 2
    return count


_INLINE_ID: Final = "inline-"

_MIN_RANGE: Final = 2 * DIGEST
"""A range of fewer bytes needs as much space as the digests themselves."""

_encode_parts = msgspec.msgpack.Encoder().encode
_decode_parts = msgspec.msgpack.Decoder(tuple[bytes | tuple[int, int], ...]).decode

_decode_members = json_decoder(dict[str, msgspec.Raw]).decode
_decode_items = json_decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode
