"""Layer: stream. What differs between two JSON documents, as a JSON Patch.

Below: pointers from ``aguila.codec``, and msgspec for fingerprints. Above: ``patch`` offers ``make_patch`` beside
``apply_patch``. It never changes a document, and its cost grows with the size of the documents, not its square.

How it works. The two documents are walked side by side. At each container the members or elements that came and
went become operations at once; pairs of containers that stayed are walked later. So when an operation is written,
everything above it already has its final shape, and every path counts in the coordinates of the new document.
When a container is done, its operations are one stretch at the end of the list: if writing the container anew is
shorter than that stretch, it takes its place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec

from aguila.codec.pointer import escape_token
from aguila.stream.documents import ARRAY, CONTAINER, OBJECT, check_json

_ABSENT: Any = object()
_NO_LIMIT = 1 << 62


_ALIGNMENT_EFFORT = 1 << 16
"""About how many pairs of equal elements the alignment of two lists looks at, where elements repeat."""

_STRETCH = 64
"""How many elements of two lists are compared at a glance."""

_GLANCES = 64
"""How many times the length of the document may be encoded in order to find the parts that are equal."""

_COST_OF_FAILURE = 1024
"""What an attempt to encode what cannot be encoded counts for."""

# What an operation costs on the wire besides its path and value, with the comma after it.
_COST_WITH_VALUE = len('{"op":"replace","path":"","value":},')
_COST_OF_REMOVE = len('{"op":"remove","path":""},')

# MessagePack rather than JSON: it is faster, and it does not write NaN as null.
_encoder = msgspec.msgpack.Encoder()
_canonical = msgspec.msgpack.Encoder(order="deterministic")


def same_json(a: Any, b: Any) -> bool:
    """Whether two values are the same JSON: the order of members is free, 1 is 1.0, but True is not 1."""
    pending: list[tuple[Any, Any]] = [(a, b)]  # a stack of our own: documents may be deeper than Python's
    while pending:
        a, b = pending.pop()
        if a is b:
            continue
        if isinstance(a, OBJECT):
            if not isinstance(b, OBJECT) or len(a) != len(b):
                return False
            for key, value in a.items():
                other = b.get(key, _ABSENT)
                if other is not value:
                    if other is _ABSENT:
                        return False
                    pending.append((value, other))
        elif isinstance(a, ARRAY):
            if not isinstance(b, ARRAY) or len(a) != len(b):
                return False
            pending.extend(zip(a, b, strict=True))
        # JSON has one type of number and a separate boolean; Python's True == 1 is the trap (PY-13).
        elif a != b or (type(a) is bool) is not (type(b) is bool):
            return False
    return True


def is_guarded(tokens: Sequence[str]) -> bool:
    """Whether a path passes ``__proto__`` or ``constructor/prototype``: JavaScript peers refuse to patch these."""
    return "__proto__" in tokens or ("constructor", "prototype") in pairwise(tokens)


def make_patch(old: Any, new: Any) -> list[dict[str, Any]]:
    """A small patch that turns the old document into the new one; empty if they are the same JSON.

    Its operations are ``add``, ``remove`` and ``replace``. Their values are those of the new document, not copies.

    Raises EncodeError, with a pointer into the document, for one that is not JSON or contains itself. Only what the
    patch would bring is looked at: a set is no array, but where the array of its elements was, it changes nothing.
    """
    encoded = _encoded(_encoder, new)
    if encoded is None:
        check_json(new)  # what msgspec has encoded has an end; anything else may not
    elif encoded == _encoded(_encoder, old):
        return []
    diff = _Diff()
    try:
        diff.glances = _GLANCES * (len(encoded) if encoded is not None else diff.size(new, _NO_LIMIT))
        diff.pair(old, new, "")
        diff.run()
    except (TypeError, ValueError, AttributeError):  # not the values, or names, that JSON has
        check_json(old)
        check_json(new)
        raise
    for operation in diff.operations:
        if "value" in operation:
            check_json(operation["value"], operation["path"])
    return diff.operations


def _encoded(encoder: msgspec.msgpack.Encoder, value: Any) -> bytes | None:
    try:
        return encoder.encode(value)
    except (ValueError, OverflowError, RecursionError, TypeError):
        return None  # half surrogates, integers beyond 64 bits, extreme depth, or not JSON at all


class _Diff:
    """One comparison: the operations so far, what they cost on the wire, and what is still to be compared."""

    def __init__(self) -> None:
        self.operations: list[dict[str, Any]] = []
        self.cost = 0
        # Pairs of containers to compare: old, new, path. In between, with None for old, containers whose parts
        # have all been compared: new, path, and how many operations there were before it and at what cost.
        self.pending: list[tuple[Any, Any, str, int, int]] = []
        # What is known of the sizes of containers of the new document, by id: the size, or what it is at least. It
        # keeps them from being measured on every level: what the operations within a part cost has been compared
        # with the size of that part already.
        self.sizes: dict[int, int] = {}
        self.at_least: dict[int, int] = {}
        # How many bytes may still be encoded to find at C speed what is equal. A glance at a pair that differs is
        # followed by glances at its parts: without a limit a deep document would cost its depth times its size.
        # When it is used up, containers count as different until their parts have been compared.
        self.glances = 0

    def run(self) -> None:
        pending = self.pending
        while pending:
            old, new, path, count, cost = pending.pop()
            if old is None:
                self.settle(new, path, count, cost)
                continue
            pending.append((None, new, path, len(self.operations), self.cost))
            first = len(pending)
            if isinstance(new, OBJECT):
                self.compare_objects(old, new, path)
            else:
                self.compare_arrays(old, new, path)
            pending[first:] = pending[: first - 1 : -1]  # so that they are popped in their order

    def pair(self, old: Any, new: Any, path: str) -> None:
        """Compare what is at one path in both: containers later, the rest at once."""
        kind = OBJECT if isinstance(new, OBJECT) else ARRAY
        if isinstance(new, kind) and isinstance(old, kind):
            self.pending.append((old, new, path, 0, 0))
        elif not same_json(old, new):
            self.emit("replace", path, new)

    def compare_objects(self, old: dict[str, Any], new: dict[str, Any], path: str) -> None:
        guarded = "prototype" if path.endswith("/constructor") else "__proto__"
        if any(name in side for name in ("__proto__", guarded) for side in (old, new)):
            if not same_json(old, new):
                self.emit("replace", path, new)  # a path to the member itself would be refused, see is_guarded
            return
        for key in old:
            if key not in new:
                self.emit("remove", f"{path}/{escape_token(key)}")
        for key, value in new.items():
            before = old.get(key, _ABSENT)
            if before is value:
                continue
            if before is _ABSENT:
                self.emit("add", f"{path}/{escape_token(key)}", value)
            elif not self.is_same(before, value):
                self.pair(before, value, f"{path}/{escape_token(key)}")

    def compare_arrays(self, old: list[Any], new: list[Any], path: str) -> None:
        start, old_end, new_end = 0, len(old), len(new)
        while start + _STRETCH <= min(old_end, new_end) and self.is_same(
            old[start : start + _STRETCH], new[start : start + _STRETCH]
        ):
            start += _STRETCH
        while start < min(old_end, new_end) and self.is_same(old[start], new[start]):
            start += 1
        while start + _STRETCH <= min(old_end, new_end) and self.is_same(
            old[old_end - _STRETCH : old_end], new[new_end - _STRETCH : new_end]
        ):
            old_end -= _STRETCH
            new_end -= _STRETCH
        while start < min(old_end, new_end) and self.is_same(old[old_end - 1], new[new_end - 1]):
            old_end -= 1
            new_end -= 1
        kept: list[tuple[int, int]] = []
        if start < min(old_end, new_end) and (old_end - start, new_end - start) != (1, 1):
            kept = _alignment(
                [self.fingerprint(value) for value in old[start:old_end]],
                [self.fingerprint(value) for value in new[start:new_end]],
            )
        kept.append((old_end - start, new_end - start))
        i = j = start
        for old_offset, new_offset in kept:
            # Between two elements that were kept, others gave way to others: in place as far as both have some.
            # All to the left has its final shape, so indexes are those of the new list.
            olds, news = start + old_offset - i, start + new_offset - j
            both = min(olds, news)
            for step in range(both):
                self.pair(old[i + step], new[j + step], f"{path}/{j + step}")
            for _ in range(olds - both):
                self.emit("remove", f"{path}/{j + both}")
            for step in range(both, news):
                self.emit("add", f"{path}/{j + step}", new[j + step])
            i, j = start + old_offset + 1, start + new_offset + 1

    def is_same(self, old: Any, new: Any) -> bool:
        """Whether two values are the same JSON; of containers, whether that can be seen at a glance."""
        if not isinstance(new, CONTAINER):
            return same_json(old, new)
        encoded = self.glance(_encoder, new)
        return encoded is not None and encoded == _encoded(_encoder, old)

    def fingerprint(self, value: Any) -> Any:
        """A key that two elements have in common only if they are the same JSON."""
        if isinstance(value, bool):
            return (value, "boolean")
        if not isinstance(value, CONTAINER):
            return value
        encoded = self.glance(_canonical, value)
        return object() if encoded is None else (encoded,)

    def glance(self, encoder: msgspec.msgpack.Encoder, value: Any) -> bytes | None:
        if self.glances <= 0:
            return None
        encoded = _encoded(encoder, value)
        self.glances -= _COST_OF_FAILURE if encoded is None else len(encoded)
        return encoded

    def emit(self, name: str, path: str, value: Any = _ABSENT) -> None:
        if value is _ABSENT:
            self.operations.append({"op": name, "path": path})
            self.cost += _COST_OF_REMOVE + len(path)
        else:
            self.operations.append({"op": name, "path": path, "value": value})
            self.cost += _COST_WITH_VALUE + len(path) + self.size(value, _NO_LIMIT)

    def settle(self, new: Any, path: str, count: int, cost: int) -> None:
        """Replace the container as a whole instead, if that is shorter than the operations within it."""
        spent = self.cost - cost
        if spent == 0:
            return
        overhead = _COST_WITH_VALUE + len(path)
        limit = spent - overhead
        size = self.size(new, limit)
        if size < limit:
            del self.operations[count:]
            self.operations.append({"op": "replace", "path": path, "value": new})
            self.cost = cost + overhead + size
            self.sizes[id(new)] = size
        else:
            self.at_least[id(new)] = max(limit, 0)

    def size(self, value: Any, limit: int) -> int:
        """About how long the value is on the wire, with a comma. It stops counting at the limit, or soon after."""
        total = 0
        pending = [value]
        assumed: list[Any] = []
        while total < limit:
            if pending:
                node = pending.pop()
                if isinstance(node, str):
                    total += 3 + len(node)
                    continue
                if not isinstance(node, CONTAINER):
                    total += 1 + len(repr(node))  # True, None and numbers are about as long in Python as in JSON
                    continue
                if (known := self.sizes.get(id(node))) is not None:
                    total += known
                    continue
                if (known := self.at_least.get(id(node))) is not None:
                    total += known
                    assumed.append(node)
                    continue
            elif assumed:
                node = assumed.pop()  # what it is at least did not decide
                total -= self.at_least[id(node)]
            else:
                break
            total += 3 + len(node)  # before looking at each: an element takes a byte or more
            if total >= limit:
                break
            if isinstance(node, OBJECT):
                total += 2 * len(node) + sum(map(len, node))
                pending.extend(node.values())
            else:
                total -= len(node)
                pending.extend(node)
        return total


def _alignment(old: list[Any], new: list[Any]) -> list[tuple[int, int]]:
    """Which elements of the old list to keep as which of the new, by their fingerprints: as many as stay in order.

    The longest common subsequence, found as the longest rising chain of equal pairs (Hunt and Szymanski), which
    takes n log n where elements seldom repeat. Where they do, an element is only compared with its likes of about
    the same ordinal: that may keep fewer than possible, and bounds the work.
    """
    places: dict[Any, list[int]] = {}
    for j, key in enumerate(new):
        places.setdefault(key, []).append(j)
    window = max(1, _ALIGNMENT_EFFORT // len(old))
    seen: dict[Any, int] = {}
    ends: list[int] = []  # ends[k] is where the chain of k + 1 pairs that ends first ends, chains[k] its last link
    chains: list[Any] = []
    for i, key in enumerate(old):
        likes = places.get(key)
        if likes is None:
            continue
        if len(likes) > window:
            ordinal = seen.get(key, 0)
            seen[key] = ordinal + 1
            first = min(max(0, ordinal - window // 2), len(likes) - window)
            likes = likes[first : first + window]
        for j in reversed(likes):  # from the right, so that no two pairs of this element are in one chain
            k = bisect_left(ends, j)
            link = (i, j, chains[k - 1] if k else None)
            if k == len(ends):
                ends.append(j)
                chains.append(link)
            elif j < ends[k]:
                ends[k] = j
                chains[k] = link
    kept: list[tuple[int, int]] = []
    link = chains[-1] if chains else None
    while link is not None:
        kept.append((link[0], link[1]))
        link = link[2]
    kept.reverse()
    return kept
