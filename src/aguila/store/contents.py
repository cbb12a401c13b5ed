"""Cut requests and turns into contents, so that a thread stores each message, large member and inline file once.

A client sends its whole history with every run. Stored whole, a conversation would need space that is quadratic in its
length. So a stored request is its small members, the digests of its large ones, and the digests of its messages. That
list is stored as a change of the list of an earlier run (``base_number``).

A content is JSON with the digest of its text. Inside a content, each string of ``INLINE`` bytes or more (a file in
base64) is a content of its own. A row holds at most ``PART`` bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from aguila.codec.json.bounded_floats import json_decoder
from aguila.store.large_strings import ExcisedJSON, excise_strings
from aguila.store.records import RunRecord

INLINE: Final = 16 * 1024
"""A string of at least this many bytes without an escape, such as a file in base64, is stored as an inline file."""

DIGEST: Final = 16
"""The bytes of a digest."""

PART: Final = 1 << 20
"""The most bytes in a row of ``contents``."""

SMALL: Final = 2048
"""A request of at most this many bytes is stored whole: cutting it would delay the first event of a short thread."""

LARGE_MEMBER: Final = 256
"""A member of a request with more bytes, such as tools, state or context, is a content of its own."""

ContentRow = tuple[bytes, int, bytes | memoryview]
"""Digest, part and body of a row of ``contents``."""


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


class Content(msgspec.Struct, frozen=True, gc=False):
    """A content as it is stored: ``body``, the JSON with a reference to each inline file, or an inline file itself."""

    digest: bytes
    body: bytes | memoryview


class CutRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request in parts. If ``messages`` is None, ``head`` is the whole request."""

    head: bytes
    """What ``RunRecord.request`` is: the request, or its small members and the digests of its large ones."""
    messages: bytes | None = None
    """The digests of its messages, in order."""
    large: Sequence[bytes] = ()
    """The digests of its large members."""
    contents: Mapping[bytes, bytes | memoryview] = {}
    """The stored bodies of messages, large members and inline files, by their digests. Each refers to those it needs.

    A view is valid while the request is: a store that keeps it must copy it."""
    size: int = 0
    """The bytes of the request."""


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """The encoded ``CutRequest.head`` of a request that is not whole, after the byte ``_REFERS``."""

    members: bytes
    large: tuple[tuple[str, bytes], ...] = ()


def hash_content(text: bytes | memoryview) -> bytes:
    """Return the digest of a content: the first 16 bytes of the ``sha256`` of its text."""
    return sha256(text).digest()[:DIGEST]


def base_number(number: int) -> int:
    """Return the number of the run whose message list the list of run ``number`` is stored as a change of; 0 for none.

    Clearing the lowest bit bounds both the size of all changes and how many of them lead to a list: for 2,000 runs,
    eleven.
    """
    return number & (number - 1)


# Cut


def cut_request(body: bytes) -> CutRequest:
    """Cut a request. One that is small, or has no list of messages, stays whole."""
    size = len(body)
    if size <= SMALL:
        return CutRequest(head=body, size=size)
    excised = excise_strings(body, INLINE // 2)
    for text in (body,) if excised is None else (excised.text, body):  # the body if the cut text is not JSON
        try:
            members = _decode_members(text)
            messages = _decode_items(members.pop("messages"))
        except (msgspec.DecodeError, KeyError, UnicodeError):
            continue
        break
    else:
        return CutRequest(head=body, size=size)
    contents: dict[bytes, bytes | memoryview] = {}
    if excised is None:  # a view per message: only those that the store does not have are copied
        digests = [sha256(raw).digest()[:DIGEST] for raw in messages]
        contents.update(zip(digests, map(memoryview, messages), strict=True))
    else:
        digests = [_add(bytes(raw), excised, contents) for raw in messages]
    large = tuple(
        (name, _add(bytes(raw), excised, contents))
        for name, raw in members.items()
        if len(raw) > LARGE_MEMBER or (excised is not None and excised.take_out(bytes(raw))[1])
    )
    for name, _ in large:
        del members[name]
    head = _REFERS + _encode_head(_Head(_encode(members), large))
    return CutRequest(
        head=head,
        messages=b"".join(digests),
        large=[digest for _, digest in large],
        contents=contents,
        size=size,
    )


def cut_content(digest: bytes, text: bytes) -> Iterator[Content]:
    """Cut the inline files out of a JSON text; yield the text and each file as they are stored."""
    contents: dict[bytes, bytes | memoryview] = {}
    excised = excise_strings(text, INLINE // 2) if len(text) >= INLINE else None
    if excised is None:
        yield Content(digest, text)
        return
    contents[digest] = _cut(excised.text, excised, contents)[0]
    for found, body in contents.items():
        yield Content(found, body)


def cut_values(values: Mapping[bytes, bytes]) -> dict[bytes, bytes | memoryview]:
    """Cut the inline files out of JSON texts by their digests; return the stored bodies of texts and files."""
    return {content.digest: content.body for digest, text in values.items() for content in cut_content(digest, text)}


def content_rows(contents: Mapping[bytes, bytes | memoryview]) -> Iterator[ContentRow]:
    """Return the rows of contents. A body beyond ``PART`` bytes has several."""
    for digest, body in contents.items():
        if len(body) <= PART:
            yield digest, 0, body
        else:
            for part, at in enumerate(range(0, len(body), PART)):
                yield digest, part, memoryview(body)[at : at + PART]


def _add(text: bytes, excised: ExcisedJSON | None, contents: dict[bytes, bytes | memoryview]) -> bytes:
    """Add the content of a part of an excised text, and its files; return its digest."""
    if excised is None:
        digest = hash_content(text)
        contents[digest] = text
        return digest
    files: dict[bytes, bytes | memoryview] = {}
    body, digest = _cut(text, excised, files)
    if not files:
        contents.setdefault(digest, body)
    else:
        contents[digest] = body
        contents.update(files)
    return digest


def _cut(text: bytes, excised: ExcisedJSON, files: dict[bytes, bytes | memoryview]) -> tuple[bytes, bytes]:
    """Return the stored body of a part of an excised text, and the digest of the part; add its files."""
    rest, found = excised.take_out(text, INLINE)
    if not found:
        return rest, hash_content(rest)
    places: list[tuple[int, bytes]] = []
    whole = sha256()
    start = 0
    for place, data in found:
        digest = hash_content(data)
        places.append((place, digest))
        files[digest] = data
        whole.update(rest[start:place])
        whole.update(data)
        start = place
    whole.update(rest[start:])
    references = _encode_places(places)
    body = b"".join((_REFERS, len(references).to_bytes(4, "big"), references, rest))
    return body, whole.digest()[:DIGEST]


# Join


def read_content(body: bytes, load: Callable[[bytes], bytes]) -> bytes:
    """Return the JSON of a stored body. ``load`` returns an inline file."""
    if not body.startswith(_REFERS):
        return body
    stop = 5 + int.from_bytes(body[1:5], "big")
    return join_files(body[stop:], _decode_places(body[5:stop]), load)


def join_files(text: bytes, places: Iterable[tuple[int, bytes]], load: Callable[[bytes], bytes]) -> bytes:
    """Put inline files into a JSON text, each at its place. ``load`` returns a file by its digest."""
    pieces: list[bytes] = []
    start = 0
    for place, digest in places:
        pieces += (text[start:place], load(digest))
        start = place
    pieces.append(text[start:])
    return b"".join(pieces)


def file_digests(body: bytes) -> list[bytes]:
    """Return the digests of the inline files that a stored body refers to."""
    if not body.startswith(_REFERS):
        return []
    return [digest for _, digest in _decode_places(body[5 : 5 + int.from_bytes(body[1:5], "big")])]


def request_digests(run: RunRecord) -> list[bytes]:
    """Return the digests of the contents that the request of a run needs."""
    if run.request is None or run.messages is None:
        return []
    return [*[digest for _, digest in _decode_head(run.request[1:]).large], *split_digests(run.messages)]


def join_request(run: RunRecord, values: Mapping[bytes, bytes]) -> bytes:
    """Join a request; ``values`` has its contents (``request_digests``). The result has the JSON value that was cut."""
    assert run.request is not None  # noqa: S101 - the caller asked for it
    if run.messages is None:
        return run.request
    head = _decode_head(run.request[1:])
    pieces = [] if head.members == b"{}" else [head.members[1:-1]]
    pieces += [b"%b:%b" % (_encode(name), values[digest]) for name, digest in head.large]
    pieces.append(b'"messages":[%b]' % b",".join([values[digest] for digest in split_digests(run.messages)]))
    return b"{%b}" % b",".join(pieces)


def make_head(body: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """Return the ``head`` of a request from its JSON without the messages, and its large members by their digests."""
    members = _decode_members(body)
    large = {name: bytes(raw) for name, raw in members.items() if len(raw) > LARGE_MEMBER}
    small = {name: raw for name, raw in members.items() if name not in large}
    digests = {name: hash_content(raw) for name, raw in large.items()}
    head = join_head(_encode(small), digests)
    return head, {digests[name]: raw for name, raw in large.items()}


def join_head(members: bytes, large: Mapping[str, bytes]) -> bytes:
    """Return the ``head`` of a request: ``members`` is JSON, ``large`` has the digests of its large members."""
    return _REFERS + _encode_head(_Head(members, tuple(large.items())))


def split_head(head: bytes) -> tuple[bytes, dict[str, bytes]]:
    """Return what ``join_head`` was given."""
    found = _decode_head(head[1:])
    return found.members, dict(found.large)


def base_numbers(number: int) -> Sequence[int]:
    """Return the numbers of the runs whose changes lead to the list of run ``number``, the oldest first."""
    found: list[int] = []
    while number:
        found.append(number)
        number = base_number(number)
    return found[::-1]


# Lists of digests


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


_MIN_RANGE: Final = 2 * DIGEST
"""A range of fewer bytes needs as much space as the digests themselves."""

_encode_parts = msgspec.msgpack.Encoder().encode
_decode_parts = msgspec.msgpack.Decoder(tuple[bytes | tuple[int, int], ...]).decode

_REFERS: Final = b"\x01"
"""The first byte of a body that refers to contents. JSON and plain text never begin with it."""

_encode = msgspec.json.Encoder().encode
_encode_head = msgspec.msgpack.Encoder().encode
_decode_head = msgspec.msgpack.Decoder(_Head).decode
_encode_places = msgspec.msgpack.Encoder().encode
_decode_places = msgspec.msgpack.Decoder(tuple[tuple[int, bytes], ...]).decode
_decode_members = json_decoder(dict[str, msgspec.Raw]).decode
_decode_items = json_decoder(list[msgspec.Raw]).decode
