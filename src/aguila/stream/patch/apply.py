"""Apply JSON Patches (RFC 6902) without changing the document or the patch.

The first write below a container copies that container (not its children) and every container above it. The result
shares the rest with the old document. The copies made by one call are *owned* by it: nothing else has a reference to
them, so later operations write to them directly. A patch of a thousand operations copies each container once. Only
owned containers are written to. So a patch that fails half-way changes nothing (SNAP-9), and values of the patch are
used without a copy. In return, callers must not change a document in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from aguila.codec.pointer import parse_pointer
from aguila.errors import PatchError
from aguila.stream.json_values import ARRAY, OBJECT, json_equal

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
    return apply_limited(document, patch, 0, None)[0]


def apply_limited(
    document: Any, patch: Sequence[Mapping[str, Any]], size: int, budget: SizeBudget | None
) -> tuple[Any, int]:
    """Apply a patch to a document of at most ``size`` bytes.

    Returns the new document and an upper bound for its size. Removed values are not subtracted. If the bound exceeds
    the limit, the document is measured, and may then grow by an eighth of the limit before it is measured again.
    """
    if not isinstance(patch, ARRAY):
        raise PatchError(f"a patch must be an array of operations, not {_describe_type(patch)}", rule="SNAP-8")
    root = document
    owned: _Owned = {}
    for index, operation in enumerate(patch):
        try:
            if budget is not None:
                size += budget.bytes_added(root, size, operation)
            root = _OPERATIONS[operation["op"]](root, operation, parse_path(operation["path"]), owned)
            if budget is not None and size > budget.limit:
                size = budget.check(root)
        except (OperationError, KeyError, TypeError) as error:
            raise _describe_failure(error, index, operation) from None
    return root, size


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

    def bytes_added(self, document: Any, size: int, operation: _Operation) -> int:
        """Return how many bytes an operation adds to a document of ``size`` bytes, at most."""
        name, path = operation["op"], operation["path"]
        self.earned += _EARNED_PER_OPERATION + len(path)
        added = len(path) + _OVERHEAD
        if name == "replace" or name == "add":
            value = operation["value"]
            brought = len(value) if value.__class__ is str else size_of(value) if value.__class__ in _CONTAINERS else 0
            self.earned += brought + _OVERHEAD
            added += brought
        elif name == "copy":
            value = _resolve(document, parse_path(operation["from"]))
            if value is document:
                added += size
            elif value.__class__ is str:
                added += len(value)
            elif value.__class__ in _CONTAINERS:
                added += self._measure(value)
        return added

    def check(self, document: Any) -> int:
        """Measure a document. Return its size, less what it may grow by until the next time. Raises ``TooLarge``."""
        size = self._measure(document)
        if size > self.limit:
            raise TooLarge(f"the document would have more than {self.limit} bytes")
        return size - self.limit // 8

    def _measure(self, value: Any) -> int:
        """Return the size of a document, or of a copied part of it. Raises ``TooLarge`` if that was done too often."""
        if self._spent > _FREE_MEASUREMENTS * self.limit + _MEASURED_PER_BYTE * self.earned:
            message = f"too much was copied within documents of up to {self.limit} bytes; send the values instead"
            raise TooLarge(message)
        size = size_of(value)
        self._spent += size
        self.measured += size
        return size


_FREE_MEASUREMENTS = 2
_MEASURED_PER_BYTE = 64
_EARNED_PER_OPERATION = 128
"""Bytes that each operation earns besides its own. Measuring ``_MEASURED_PER_BYTE`` times as many takes about as long
as reading and applying the operation."""


_CONTAINERS = frozenset({dict, list})
_OVERHEAD = 24
"""Bytes of a number, or of the punctuation around another value."""


def size_of(value: Any) -> int:
    """Return how many bytes a JSON value has."""
    try:
        return len(_encode(value))
    except (UnicodeError, TypeError, msgspec.MsgspecError):  # a lone surrogate, or not JSON
        return len(repr(value))


_encode = msgspec.json.Encoder().encode


class PatchLimit:
    """Applies patches to documents of at most ``limit`` bytes of JSON, and at most an eighth more.

    Remembers the size of the last document of each ``key``, such as the id of an activity, so that a document that is
    patched again and again is measured once. Without a limit, documents of any size are patched.
    """

    __slots__ = ("_budget", "_prepared", "_sizes")

    def __init__(self, limit: int | None) -> None:
        self._budget = None if limit is None else SizeBudget(limit)
        self._sizes: dict[str | None, tuple[Any, int]] = {}  # with the document, which another one may have replaced
        self._prepared: tuple[Any, Any, _Outcome] | None = None  # a document, a patch, and what comes of them

    def apply_patch(self, document: Any, patch: Sequence[Mapping[str, Any]], key: str | None = None) -> Any:
        """Apply a patch as ``apply_patch`` does. Raise ``PatchError`` (``limit-size``) if the result is too large."""
        prepared, self._prepared = self._prepared, None
        is_prepared = prepared is not None and prepared[0] is document and prepared[1] is patch
        result, size, error = prepared[2] if prepared and is_prepared else self._compute(document, patch, key)
        if self._budget is not None:  # also if it failed: to measure a large document for each failing patch takes long
            self._sizes[key] = (result, size)
        if error is not None:
            raise error
        return result

    def prepare(self, document: Any, patch: Sequence[Mapping[str, Any]], key: str | None = None) -> None:
        """Compute the result of ``apply_patch``, if it is called next and with the same objects.

        For long patches: it may be called in another thread, also while this one applies patches.
        """
        self._prepared = (document, patch, self._compute(document, patch, key))

    def take_measured(self) -> int:
        """Return how many bytes of copies were measured since the last call."""
        if self._budget is None:
            return 0
        measured, self._budget.measured = self._budget.measured, 0
        return measured

    def _compute(self, document: Any, patch: Sequence[Mapping[str, Any]], key: str | None) -> _Outcome:
        known = self._sizes.get(key)
        if known is not None and known[0] is document:
            size = known[1]
        else:
            size = 0 if self._budget is None else size_of(document)
        try:
            return *apply_limited(document, patch, size, self._budget), None
        except PatchError as error:
            return document, size, error


_Outcome = tuple[Any, int, PatchError | None]
"""The new document and its size, or the old ones and the error."""


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
