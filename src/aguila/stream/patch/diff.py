"""Make a JSON Patch from two documents. The cost grows with the size of the documents, not with its square.

The two documents are walked side by side. At each container, added and removed members become operations at once. Pairs
of containers that are in both are compared later. So when an operation is emitted, everything above it has its final
shape, and its path is valid in the new document. When a container is done, its operations are the last ones of the
list. If replacing the whole container is shorter, one ``replace`` takes their place.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import msgspec

from aguila.codec.pointer import escape_token
from aguila.stream.json_values import ARRAY, CONTAINER, OBJECT, check_json, json_equal

_ABSENT: Any = object()
_NO_LIMIT = 1 << 62


_MAX_ALIGN_PAIRS = 1 << 16
"""Limit on the pairs of equal elements that the alignment of two lists compares, if elements repeat."""

_STRIDE = 64
"""Number of list elements that are compared at once, by their encoding."""

_ENCODE_BUDGET = 64
"""Limit on the bytes encoded to find equal parts, as a multiple of the document's size."""

_COST_OF_FAILURE = 1024
"""Bytes that a failed attempt to encode a value takes from the budget."""

# Bytes of an operation besides its path and value, with the comma after it (``size`` counts it if there is a value).
_COST_WITH_VALUE = len('{"op":"replace","path":"","value":}')
_COST_OF_REMOVE = len('{"op":"remove","path":""},')

# MessagePack instead of JSON: it is faster, and does not encode NaN as null.
_encoder = msgspec.msgpack.Encoder()
_canonical = msgspec.msgpack.Encoder(order="deterministic")


def make_patch(old: Any, new: Any) -> list[dict[str, Any]]:
    """Make a small patch that turns the old document into the new one. It is empty if they are equal JSON.

    Its operations are ``add``, ``remove`` and ``replace``. Their values are those of the new document, not copies.

    Raises EncodeError, with a pointer into the document, for a value that is not JSON or contains itself. Only the
    values that the patch contains are checked: a set in the place of an equal array is not found.
    """
    encoded = _try_encode(_encoder, new)
    if encoded is None:
        check_json(new)  # a value that msgspec can encode does not contain itself
    elif encoded == _try_encode(_encoder, old):
        return []
    diff = _Diff()
    try:
        diff.encode_budget = _ENCODE_BUDGET * (len(encoded) if encoded is not None else diff.size(new, _NO_LIMIT))
        diff.pair(old, new, "")
        diff.run()
    except (TypeError, ValueError, AttributeError):  # a value or member name that is not JSON
        check_json(old)
        check_json(new)
        raise
    for operation in diff.operations:
        if "value" in operation:
            check_json(operation["value"], operation["path"])
    return diff.operations


def _try_encode(encoder: msgspec.msgpack.Encoder, value: Any) -> bytes | None:
    try:
        return encoder.encode(value)
    except (ValueError, OverflowError, RecursionError, TypeError):
        return None  # half surrogates, integers beyond 64 bits, extreme depth, or not JSON


class _Diff:
    """One comparison: the operations so far, their size in bytes, and the pairs still to be compared."""

    def __init__(self) -> None:
        self.operations: list[dict[str, Any]] = []
        self.cost = 0
        # Pairs of containers to compare: old, new, path. An entry with old=None marks a container whose parts have been
        # compared: new, path, and the number and size of the operations before it.
        self.pending: list[tuple[Any, Any, str, int, int]] = []
        # Known sizes of containers in the new document, by id: exact, or a lower bound. They save measuring a container
        # again on each level: the size of a part was already compared with that of the operations inside it.
        self.sizes: dict[int, int] = {}
        self.at_least: dict[int, int] = {}
        # Bytes that may still be encoded to find equal parts fast. If a pair differs, its parts are encoded again, so
        # without a limit a deep document would cost its depth times its size. When the budget is used up, containers
        # count as different until their parts have been compared.
        self.encode_budget = 0

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
            pending[first:] = pending[: first - 1 : -1]  # reversed, so that they are popped in order

    def pair(self, old: Any, new: Any, path: str) -> None:
        """Compare the two values at one path: containers later, other values at once."""
        kind = OBJECT if isinstance(new, OBJECT) else ARRAY
        if isinstance(new, kind) and isinstance(old, kind):
            self.pending.append((old, new, path, 0, 0))
        elif not json_equal(old, new):
            self.emit("replace", path, new)

    def compare_objects(self, old: dict[str, Any], new: dict[str, Any], path: str) -> None:
        guarded = "prototype" if path.endswith("/constructor") else "__proto__"
        if any(name in side for name in ("__proto__", guarded) for side in (old, new)):
            if not json_equal(old, new):
                self.emit("replace", path, new)  # JavaScript peers refuse a path to the member (is_prototype_path)
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
        while start + _STRIDE <= min(old_end, new_end) and self.is_same(
            old[start : start + _STRIDE], new[start : start + _STRIDE]
        ):
            start += _STRIDE
        while start < min(old_end, new_end) and self.is_same(old[start], new[start]):
            start += 1
        while start + _STRIDE <= min(old_end, new_end) and self.is_same(
            old[old_end - _STRIDE : old_end], new[new_end - _STRIDE : new_end]
        ):
            old_end -= _STRIDE
            new_end -= _STRIDE
        while start < min(old_end, new_end) and self.is_same(old[old_end - 1], new[new_end - 1]):
            old_end -= 1
            new_end -= 1
        kept: list[tuple[int, int]] = []
        if start < min(old_end, new_end) and (old_end - start, new_end - start) != (1, 1):
            kept = _align(
                [self.fingerprint(value) for value in old[start:old_end]],
                [self.fingerprint(value) for value in new[start:new_end]],
            )
        kept.append((old_end - start, new_end - start))
        i = j = start
        for old_offset, new_offset in kept:
            # Between two kept elements: pair up the changed elements, then remove or add the rest. Everything to the
            # left has its final shape, so indexes are those of the new list.
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
        """Return whether two values are equal JSON. Containers may be equal and still return False."""
        if not isinstance(new, CONTAINER):
            return json_equal(old, new)
        encoded = self.encode(_encoder, new)
        return encoded is not None and encoded == _try_encode(_encoder, old)

    def fingerprint(self, value: Any) -> Any:
        """Return a key that two elements share only if they are equal JSON."""
        if isinstance(value, bool):
            return (value, "boolean")
        if not isinstance(value, CONTAINER):
            return value
        encoded = self.encode(_canonical, value)
        return object() if encoded is None else (encoded,)

    def encode(self, encoder: msgspec.msgpack.Encoder, value: Any) -> bytes | None:
        if self.encode_budget <= 0:
            return None
        encoded = _try_encode(encoder, value)
        self.encode_budget -= _COST_OF_FAILURE if encoded is None else len(encoded)
        return encoded

    def emit(self, name: str, path: str, value: Any = _ABSENT) -> None:
        if value is _ABSENT:
            self.operations.append({"op": name, "path": path})
            self.cost += _COST_OF_REMOVE + len(path)
        else:
            self.operations.append({"op": name, "path": path, "value": value})
            self.cost += _COST_WITH_VALUE + len(path) + self.size(value, _NO_LIMIT)

    def settle(self, new: Any, path: str, count: int, cost: int) -> None:
        """Replace the operations inside a container by one ``replace`` of the container, if that is shorter."""
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
        """Estimate the size of a value in JSON, with a comma. Counting stops soon after the limit."""
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
                    total += 1 + len(repr(node))  # True, None and numbers are about as long as in JSON
                    continue
                if (known := self.sizes.get(id(node))) is not None:
                    total += known
                    continue
                if (known := self.at_least.get(id(node))) is not None:
                    total += known
                    assumed.append(node)
                    continue
            elif assumed:
                node = assumed.pop()  # the lower bound was not enough to reach the limit
                total -= self.at_least[id(node)]
            else:
                break
            total += 2 + len(node) + (not node)  # before visiting them: an element takes at least one byte
            if total >= limit:
                break
            if isinstance(node, OBJECT):
                total += 2 * len(node) + sum(map(len, node))
                pending.extend(node.values())
            else:
                total -= len(node)
                pending.extend(node)
        return total


def _align(old: list[Any], new: list[Any]) -> list[tuple[int, int]]:
    """Find which elements of the old list to keep as which of the new list, by fingerprint, without reordering.

    This is the longest common subsequence, as the longest rising chain of equal pairs (Hunt and Szymanski): n log n if
    elements seldom repeat. If they do, an element is only compared with equal ones of about the same ordinal. That
    limits the work, and may keep fewer elements than possible.
    """
    places: dict[Any, list[int]] = {}
    for j, key in enumerate(new):
        places.setdefault(key, []).append(j)
    window = max(1, _MAX_ALIGN_PAIRS // len(old))
    seen: dict[Any, int] = {}
    ends: list[int] = []  # ends[k]: smallest end of a chain of k + 1 pairs; chains[k]: the last link of that chain
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
        for j in reversed(likes):  # from the right, so that a chain has at most one pair of this element
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
