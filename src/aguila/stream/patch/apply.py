"""Apply JSON Patches (RFC 6902) without changing the document or the patch.

The first write below a container copies that container (not its children) and every container above it. The result
shares the rest with the old document. The copies made by one call are *owned* by it: nothing else has a reference to
them, so later operations write to them directly. A patch of a thousand operations copies each container once. Only
owned containers are written to. So a patch that fails half-way changes nothing (SNAP-9), and values of the patch are
used without a copy. In return, callers must not change a document in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import msgspec

from aguila.codec.pointer import parse_pointer
from aguila.errors import PatchError
from aguila.stream.json_values import ARRAY, OBJECT, json_equal

_MAX_DOCUMENTS: Final = 15  # besides the last one
_MAX_EVICTED: Final = 10_000

_Operation = Mapping[str, Any]
_Owned = dict[int, Any]
"""The containers made by this call, by id. The references keep the ids from being reused."""


_MAPPING: Any = Mapping


Path = tuple[str, ...]

_MAX_SHOWN = 80  # characters of a path or name that an error shows: a peer may send any length


class OperationError(Exception):
    """The reason why an operation does not apply. ``apply_patch`` adds its index."""


class TooLarge(OperationError):
    """The document is larger than its limit after an operation."""


def apply_patch(document: Any, patch: Sequence[Mapping[str, Any]]) -> Any:
    """Apply the operations of a patch in order and return the new document. The old document is unchanged.

    The result shares the untouched parts with the old document, and contains values of the patch. Removing the whole
    document returns None. Members that an operation does not define are ignored.

    Raises PatchError, with the index of the operation, if an operation is malformed or does not apply: the path does
    not exist, a ``test`` fails (values are compared by ``json_equal``), a ``move`` goes into its own child, or the path
    contains ``__proto__`` or ``constructor/prototype``. JavaScript clients refuse such paths, and two consumers of one
    stream must not end with different states. ``PatchLimit`` limits the size of documents.
    """
    if not isinstance(patch, ARRAY):
        raise PatchError(f"a patch must be an array of operations, not {_describe_type(patch)}", rule="SNAP-8")
    root = document
    owned: _Owned = {}
    for index, operation in enumerate(patch):
        try:
            root = _OPERATIONS[operation["op"]](root, operation, parse_path(operation["path"]), owned)
        except (OperationError, KeyError, TypeError) as error:
            raise _describe_failure(error, index, operation) from None
    return root


class SizeBudget:
    """The size limit of documents, and how many bytes may be measured to keep it.

    Values that arrive pay for their measurement. Copies do not: a stream could copy a part of a large document again
    and again, and each copy is measured.
    """

    __slots__ = ("_spent", "earned", "limit", "measured")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.earned = 0
        """The bytes that arrived, and ``_EARNED_PER_OPERATION`` for each operation."""
        self.measured = 0
        """The bytes that were measured."""
        self._spent = 0

    def measure(self, value: Any) -> int:
        """Return the size of a document, or of a copied part of it. Raises ``TooLarge`` if that was done too often."""
        if self._spent > _FREE_MEASUREMENTS * self.limit + _MEASURED_PER_BYTE * self.earned:
            raise TooLarge(f"too much was copied within documents of up to {self.limit} bytes; send the values instead")
        size = size_of(value)
        self._spent += size
        self.measured += size
        return size


_FREE_MEASUREMENTS = 2
_MEASURED_PER_BYTE = 64
_EARNED_PER_OPERATION = 128
"""Bytes that each operation earns besides its own. Measuring ``_MEASURED_PER_BYTE`` times as many takes about as long
as reading and applying the operation."""


def apply_limited(document: Any, patch: Sequence[Mapping[str, Any]], size: int, budget: SizeBudget) -> tuple[Any, int]:
    """Apply a patch as ``apply_patch`` does, to a document of at most ``size`` bytes.

    Returns the new document and an upper bound for its size. Removed values are not subtracted. If the bound exceeds
    the limit, the document is measured, and may then grow by an eighth of the limit before it is measured again.
    """
    limit = budget.limit
    if not isinstance(patch, ARRAY):
        raise PatchError(f"a patch must be an array of operations, not {_describe_type(patch)}", rule="SNAP-8")
    root = document
    owned: _Owned = {}
    copied: dict[int, tuple[Any, int]] = {}  # sizes by id, with the value, so that its id is not used again
    for index, operation in enumerate(patch):
        try:
            name, path = operation["op"], operation["path"]
            value: Any = None
            if name == "replace" or name == "add":
                value = operation["value"]
            elif name == "copy":
                value = _resolve(root, parse_path(operation["from"]))
            is_whole = value is root
            root = _OPERATIONS[name](root, operation, parse_path(path), owned)
            cls = value.__class__
            added = len(path) + _OVERHEAD
            if is_whole:
                size += size
            elif cls is str:
                added += len(value)
            elif cls is dict or cls is list:
                known = copied.get(id(value))
                if known is None:
                    known = copied[id(value)] = (value, budget.measure(value) if name == "copy" else size_of(value))
                added += known[1]
            size += added
            budget.earned += _EARNED_PER_OPERATION + (len(path) if name == "copy" else added)
            if size > limit:
                size = budget.measure(root)
                if size > limit:
                    raise TooLarge(f"the document would have more than {limit} bytes")
                size -= limit // 8
        except (OperationError, KeyError, TypeError) as error:
            raise _describe_failure(error, index, operation) from None
    return root, size


_OVERHEAD = 24
"""Bytes of a number, or of the punctuation around another value."""


def size_of(value: Any) -> int:
    """Return how many bytes a JSON value has."""
    try:
        return len(_encode(value))
    except (UnicodeError, TypeError, msgspec.MsgspecError):  # a lone surrogate, or not JSON
        return len(repr(value))


_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class _Prepared:
    """The result of a patch of a document. ``size`` is None if the document was not measured."""

    document: Any
    patch: Sequence[Mapping[str, Any]]
    result: Any
    size: int | None = None
    error: PatchError | None = None


class PatchLimit:
    """Applies patches to documents of at most ``limit`` bytes of JSON, and at most an eighth more.

    Remembers the sizes of the last documents, so that a document that is patched again and again is measured once.
    Without a limit, documents of any size are patched.
    """

    __slots__ = ("_budget", "_evicted", "_last", "_prepared", "_sizes")

    def __init__(self, limit: int | None) -> None:
        self._budget = None if limit is None else SizeBudget(limit)
        # The last document and its size. Nearly every patch is for it, so it is not looked up with the others.
        self._last: tuple[Any, int] | None = None
        self._sizes: dict[int, tuple[Any, int]] = {}  # with the document, so that its id is not used again
        self._evicted: dict[int, None] = {}  # not a set: an empty dict takes less memory, and every run has one
        self._prepared: _Prepared | None = None

    def apply_patch(self, document: Any, patch: Sequence[Mapping[str, Any]]) -> Any:
        """Apply a patch as ``apply_patch`` does. Raise ``PatchError`` (``limit-size``) if the result is too large."""
        if self._prepared is not None:
            prepared, self._prepared = self._prepared, None
            if prepared.document is document and prepared.patch is patch:
                return self._take(prepared)
        if self._budget is None:
            return apply_patch(document, patch)
        last = self._last
        size = last[1] if last is not None and last[0] is document else self._take_size(document, self._budget)
        result = document
        try:
            result, size = apply_limited(document, patch, size, self._budget)
        finally:  # also if it failed: to measure a large document for each failing patch would take long
            self._last = (result, size)
        return result

    def prepare(self, document: Any, patch: Sequence[Mapping[str, Any]]) -> None:
        """Compute the result of ``apply_patch``, if it is called next and with the same objects.

        For long patches: it may be called in another thread, also while this one applies patches.
        """
        prepared = _Prepared(document, patch, document)
        try:
            if self._budget is None:
                prepared.result = apply_patch(document, patch)
            else:
                last = self._last
                known = last if last is not None and last[0] is document else self._sizes.get(id(document))
                prepared.size = self._measure(document, self._budget) if known is None else known[1]
                prepared.result, prepared.size = apply_limited(document, patch, prepared.size, self._budget)
        except PatchError as error:
            prepared.error = error
        self._prepared = prepared

    def take_measured(self) -> int:
        """Return how many bytes of copies were measured since the last call."""
        if self._budget is None:
            return 0
        measured, self._budget.measured = self._budget.measured, 0
        return measured

    def _take(self, prepared: _Prepared) -> Any:
        if prepared.size is not None:
            self._sizes.pop(id(prepared.document), None)
            if self._last is not None and self._last[0] is not prepared.document:
                self._remember(*self._last)
            self._last = (prepared.result, prepared.size)
        if prepared.error is not None:
            raise prepared.error
        return prepared.result

    def _take_size(self, document: Any, budget: SizeBudget) -> int:
        """Return the size of a document that is not the last one. The last one joins the others."""
        known = self._sizes.pop(id(document), None)
        size = self._measure(document, budget) if known is None else known[1]
        if self._last is not None:
            self._remember(*self._last)
        return size

    def _measure(self, document: Any, budget: SizeBudget) -> int:
        if id(document) not in self._evicted:
            return size_of(document)  # a new document, which was not measured
        try:
            size = budget.measure(document)
        except TooLarge as error:
            raise PatchError(str(error), rule="limit-size") from None
        self._evicted.pop(id(document), None)
        return size

    def _remember(self, document: Any, size: int) -> None:
        sizes = self._sizes
        if len(sizes) >= _MAX_DOCUMENTS:
            oldest = next(iter(sizes))
            del sizes[oldest]
            if len(self._evicted) < _MAX_EVICTED:
                self._evicted[oldest] = None
        sizes[id(document)] = (document, size)


def _describe_failure(error: Exception, index: int, operation: Any) -> PatchError:
    """Make the PatchError for a failed operation. Malformed operations are diagnosed here, off the fast path."""
    if not isinstance(operation, _MAPPING):
        message = f"an operation must be an object, not {_describe_type(operation)}"
        return PatchError(message, index=index, operation=operation, rule="SNAP-8")
    path = operation.get("path")
    where = path if isinstance(path, str) else ""

    def error_for(message: str, rule: str = "SNAP-8") -> PatchError:
        return PatchError(message, index=index, operation=operation, path=where, rule=rule)

    name = operation.get("op")
    if not isinstance(name, str) or name not in _OPERATIONS:
        return error_for(f"'op' must be one of {', '.join(_OPERATIONS)}, not {shorten(name)}")
    for member in _REQUIRED_MEMBERS[name]:
        if member not in operation:
            return error_for(f"{name!r} needs the member {member!r}")
        if member != "value" and not isinstance(operation[member], str):
            return error_for(f"{member!r} must be a string, not {_describe_type(operation[member])}")
    if not isinstance(error, OperationError):
        raise error
    return error_for(str(error), "limit-size" if isinstance(error, TooLarge) else "SNAP-9")


def shorten(value: Any) -> str:
    """Return the repr of a value, shortened for an error message."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}... ({len(text)} characters)"


def is_prototype_path(tokens: Sequence[str]) -> bool:
    """Return whether a path contains ``__proto__`` or ``constructor/prototype``, which JavaScript peers refuse."""
    return "__proto__" in tokens or ("constructor", "prototype") in pairwise(tokens)


def parse_path(pointer: Any) -> Path:
    """Parse a JSON Pointer. Raises OperationError, or TypeError if it is not a string."""
    if not isinstance(pointer, str):
        raise TypeError(pointer)  # apply_patch replaces this error by a PatchError with the reason
    try:
        steps = parse_pointer(pointer)
    except ValueError as error:
        raise OperationError(str(error).replace(repr(pointer), shorten(pointer))) from None
    if "proto" in pointer and is_prototype_path(steps):
        raise OperationError(f"{shorten(pointer)} names a prototype, which JavaScript peers refuse")
    return steps


def parse_index(step: str, limit: int) -> int:
    """Parse an array index below the limit: digits without sign and leading zeros (RFC 6901)."""
    if not (step.isdigit() and step.isascii()) or (step[0] == "0" and step != "0"):
        raise OperationError(f"{shorten(step)} is not an array index")
    # The length is checked first, because int() raises its own error for thousands of digits.
    if len(step) > 18 or (index := int(step)) >= limit:
        raise OperationError(f"array index {shorten(step)} is out of range, it must be below {limit}")
    return index


def _describe_type(value: Any) -> str:
    """Name the JSON type of a value."""
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, OBJECT):
        return "an object"
    if isinstance(value, ARRAY):
        return "an array"
    return {"str": "a string", "int": "a number", "float": "a number", "NoneType": "null"}.get(
        type(value).__name__, type(value).__name__
    )


def _key(node: Any, step: str) -> Any:
    """Return the member name or array index of an existing child."""
    if isinstance(node, OBJECT):
        if step in node:
            return step
        raise OperationError(f"there is no member {shorten(step)}")
    if isinstance(node, ARRAY):
        return parse_index(step, len(node))
    raise OperationError(f"cannot find {shorten(step)} in {_describe_type(node)}, which has no members")


def _resolve(root: Any, steps: Path) -> Any:
    for step in steps:
        root = root[_key(root, step)]
    return root


def _copy_container(node: Any, owned: _Owned) -> Any:
    """Copy a container, and own the copy."""
    if isinstance(node, OBJECT):
        copy: Any = {**node}
    elif isinstance(node, ARRAY):
        copy = [*node]
    else:
        raise OperationError(f"the path leads into {_describe_type(node)}, which has no members")
    owned[id(copy)] = copy
    return copy


def _copy_parents(root: Any, steps: Path, owned: _Owned) -> tuple[Any, Any]:
    """Return the root and the container of the path's last step.

    Both are owned, and so are all containers between them.
    """
    if id(root) not in owned:
        root = _copy_container(root, owned)
    node = root
    for step in steps[:-1]:
        key = _key(node, step)
        child = node[key]
        if id(child) not in owned:
            node[key] = child = _copy_container(child, owned)
        node = child
    return root, node


def _disown(value: Any, owned: _Owned) -> None:
    """Give up the owned containers of a value that is about to be in two places, so that neither is written to.

    Owned containers are only below owned containers, so the search ends where ownership does.
    """
    pending = [value]
    while pending:
        node = pending.pop()
        if owned.pop(id(node), None) is not None:
            pending.extend(node.values() if isinstance(node, OBJECT) else node)


def _insert_at(root: Any, steps: Path, value: Any, owned: _Owned) -> Any:
    if not steps:
        return value
    root, parent = _copy_parents(root, steps, owned)
    step = steps[-1]
    if isinstance(parent, OBJECT):
        parent[step] = value
    elif step == "-":
        parent.append(value)
    else:
        parent.insert(parse_index(step, len(parent) + 1), value)
    return root


def _remove_at(root: Any, steps: Path, owned: _Owned) -> tuple[Any, Any]:
    """Return the root without the value at the path, and that value."""
    if not steps:
        return None, root
    root, parent = _copy_parents(root, steps, owned)
    return root, parent.pop(_key(parent, steps[-1]))


def _add(root: Any, operation: _Operation, steps: Path, owned: _Owned) -> Any:
    return _insert_at(root, steps, operation["value"], owned)


def _remove(root: Any, operation: _Operation, steps: Path, owned: _Owned) -> Any:
    return _remove_at(root, steps, owned)[0]


def _replace(root: Any, operation: _Operation, steps: Path, owned: _Owned) -> Any:
    value = operation["value"]
    if not steps:
        return value
    root, parent = _copy_parents(root, steps, owned)
    parent[_key(parent, steps[-1])] = value
    return root


def _move(root: Any, operation: _Operation, steps: Path, owned: _Owned) -> Any:
    source = parse_path(operation["from"])
    if source == steps:
        _resolve(root, steps)  # nothing to move, but the path must exist
        return root
    if steps[: len(source)] == source:
        raise OperationError(f"{shorten(operation['from'])} cannot move into its own child")  # SNAP-11
    root, value = _remove_at(root, source, owned)
    return _insert_at(root, steps, value, owned)


def _copy(root: Any, operation: _Operation, steps: Path, owned: _Owned) -> Any:
    value = _resolve(root, parse_path(operation["from"]))
    _disown(value, owned)
    return _insert_at(root, steps, value, owned)


def _test(root: Any, operation: _Operation, steps: Path, owned: _Owned) -> Any:
    expected = operation["value"]
    if not json_equal(_resolve(root, steps), expected):
        raise OperationError("the test failed: the document has another value")
    return root


_OPERATIONS: dict[str, Callable[[Any, _Operation, Path, _Owned], Any]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}

_REQUIRED_MEMBERS = {
    "add": ("path", "value"),
    "remove": ("path",),
    "replace": ("path", "value"),
    "move": ("path", "from"),
    "copy": ("path", "from"),
    "test": ("path", "value"),
}
"""The required members of each operation (SNAP-8). Patches that were decoded are already checked for these."""
