"""Layer: stream. JSON Patch (RFC 6902): ``apply_patch``, and ``make_patch`` from ``diff``.

Below: pointers from ``aguila.codec``. Above: the reducer applies the deltas of state and activities with it.
It never changes a document it was given, nor the patch.

How it works. The first write below a container copies that container (not its children) and every container
above it; the result shares all the rest with the old document. The copies made during one application are
*owned* by it: nobody else can see them, so further operations write to them directly, and a patch of a thousand
operations copies each container once. Since only owned containers are ever written to, a patch that fails
half-way has changed nothing (SNAP-9), and a value of the patch can sit in the document without being copied.
The price: documents must be treated as values, never changed in place by those who hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aguila.codec.pointer import parse_pointer
from aguila.errors import PatchError
from aguila.stream.diff import is_guarded, make_patch, same_json
from aguila.stream.documents import ARRAY, OBJECT

__all__ = ["apply_patch", "make_patch", "same_json"]

_Operation = Mapping[str, Any]
_Path = tuple[str, ...]
_Owned = dict[int, Any]
"""The containers that this application made, by id. Holding them keeps their ids from being reused."""


_MAPPING: Any = Mapping


class _Refused(Exception):
    """Why an operation does not apply; ``apply_patch`` adds which one it was."""


def apply_patch(document: Any, patch: Sequence[Mapping[str, Any]]) -> Any:
    """The document with all operations of the patch applied in order; the document given stays as it is.

    The result shares what the patch did not touch with the old document, and holds values of the patch. Removing
    the whole document gives None. Members that an operation does not define are ignored.

    Raises PatchError, with the index of the operation, if any operation is malformed or does not apply: a
    pointer that leads nowhere, a ``test`` that fails (comparing as ``same_json`` does), a ``move`` into its own
    child, or a pointer through ``__proto__`` or ``constructor/prototype``, which the JavaScript clients refuse:
    applying it here would leave two consumers of one stream with different states.
    """
    if not isinstance(patch, ARRAY):
        raise PatchError(f"a patch is an array of operations, not {_kind(patch)}", rule="SNAP-8")
    root = document
    owned: _Owned = {}
    for index, operation in enumerate(patch):
        try:
            path = operation["path"]
            root = _OPERATIONS[operation["op"]](root, operation, _recent.get(path) or _steps(path), owned)
        except (_Refused, KeyError, TypeError) as error:
            raise _diagnosis(error, index, operation) from None
    return root


def _diagnosis(error: Exception, index: int, operation: Any) -> PatchError:
    """The PatchError for an operation that failed. Malformed ones are only told apart here, off the fast path."""
    if not isinstance(operation, _MAPPING):
        message = f"an operation is an object, not {_kind(operation)}"
        return PatchError(message, index=index, operation=operation, rule="SNAP-8")
    path = operation.get("path")
    where = path if isinstance(path, str) else ""

    def because(message: str, rule: str = "SNAP-8") -> PatchError:
        return PatchError(message, index=index, operation=operation, path=where, rule=rule)

    name = operation.get("op")
    if not isinstance(name, str) or name not in _OPERATIONS:
        return because(f"'op' is one of {', '.join(_OPERATIONS)}, not {_brief(name)}")
    for member in _NEEDS[name]:
        if member not in operation:
            return because(f"{name!r} needs the member {member!r}")
        if member != "value" and not isinstance(operation[member], str):
            return because(f"{member!r} is a string, not {_kind(operation[member])}")
    if not isinstance(error, _Refused):
        raise error
    return because(str(error), "SNAP-9")


def _kind(value: Any) -> str:
    """What JSON calls a value of this kind."""
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, OBJECT):
        return "an object"
    if isinstance(value, ARRAY):
        return "an array"
    return {"str": "a string", "int": "a number", "float": "a number", "NoneType": "null"}.get(
        type(value).__name__, type(value).__name__
    )


def _brief(value: Any) -> str:
    """A value for a message: a peer's path or name may be of any length."""
    text = repr(value)
    return text if len(text) <= _BRIEF else f"{text[:_BRIEF]}... ({len(text)} characters)"


_BRIEF = 80


# The deltas of a stream write to the same few places over and over, and a third of the time of an operation goes
# into reading its path. Bounded in number and length, since a peer chooses the paths.
_recent: dict[str, _Path] = {}
_RECENT_PATHS = 1024
_RECENT_LENGTH = 128


def _steps(pointer: Any) -> _Path:
    if not isinstance(pointer, str):
        raise TypeError(pointer)  # _diagnosis says it better
    try:
        steps = parse_pointer(pointer)
    except ValueError as error:
        raise _Refused(str(error).replace(repr(pointer), _brief(pointer))) from None
    if "proto" in pointer and is_guarded(steps):
        raise _Refused(f"{_brief(pointer)} names a prototype, which JavaScript peers refuse")
    if len(pointer) <= _RECENT_LENGTH:
        if len(_recent) >= _RECENT_PATHS:
            _recent.clear()
        _recent[pointer] = steps
    return steps


# Most indexes are small, and looking one up takes a third of the time of checking and converting it.
_SMALL_INDEXES = {str(index): index for index in range(256)}


def _index(step: str, limit: int) -> int:
    """The array index that a step of a path spells, below the limit: digits, no sign, no leading zero (RFC 6901)."""
    small = _SMALL_INDEXES.get(step)
    if small is not None and small < limit:
        return small
    if not (step.isdigit() and step.isascii()) or (step[0] == "0" and step != "0"):
        raise _Refused(f"{_brief(step)} is not an array index")
    # The length is looked at first because int() refuses thousands of digits with an error of its own.
    if len(step) > 18 or (index := int(step)) >= limit:
        raise _Refused(f"array index {_brief(step)} is out of range, it must be below {limit}")
    return index


def _key(node: Any, step: str) -> Any:
    """What Python finds the child by, that this step leads to: the name or the index of what is there."""
    if isinstance(node, OBJECT):
        if step in node:
            return step
        raise _Refused(f"there is no member {_brief(step)}")
    if isinstance(node, ARRAY):
        return _index(step, len(node))
    raise _Refused(f"{_brief(step)} is looked for in {_kind(node)}, which has no members")


def _resolve(root: Any, steps: _Path) -> Any:
    for step in steps:
        root = root[_key(root, step)]
    return root


def _own(node: Any, owned: _Owned) -> Any:
    """A copy of this container that we may write to."""
    if isinstance(node, OBJECT):
        copy: Any = {**node}
    elif isinstance(node, ARRAY):
        copy = [*node]
    else:
        raise _Refused(f"the path leads into {_kind(node)}, which has no members")
    owned[id(copy)] = copy
    return copy


def _own_parent(root: Any, steps: _Path, owned: _Owned) -> tuple[Any, Any]:
    """The root, and the container that the last step is to be looked up in, with all on the way owned."""
    if id(root) not in owned:
        root = _own(root, owned)
    node = root
    for step in steps[:-1]:
        key = _key(node, step)
        child = node[key]
        if id(child) not in owned:
            node[key] = child = _own(child, owned)
        node = child
    return root, node


def _share(value: Any, owned: _Owned) -> None:
    """Give up what we own of a value that is about to be in two places: neither may be written to any more.

    Owned containers lie under owned containers only, so the search ends where ownership does.
    """
    pending = [value]
    while pending:
        node = pending.pop()
        if owned.pop(id(node), None) is not None:
            pending.extend(node.values() if isinstance(node, OBJECT) else node)


def _put(root: Any, steps: _Path, value: Any, owned: _Owned) -> Any:
    if not steps:
        return value
    root, parent = _own_parent(root, steps, owned)
    step = steps[-1]
    if isinstance(parent, OBJECT):
        parent[step] = value
    elif step == "-":
        parent.append(value)
    else:
        parent.insert(_index(step, len(parent) + 1), value)
    return root


def _take(root: Any, steps: _Path, owned: _Owned) -> tuple[Any, Any]:
    """The root without the value at the path, and that value."""
    if not steps:
        return None, root
    root, parent = _own_parent(root, steps, owned)
    return root, parent.pop(_key(parent, steps[-1]))


def _add(root: Any, operation: _Operation, steps: _Path, owned: _Owned) -> Any:
    return _put(root, steps, operation["value"], owned)


def _remove(root: Any, operation: _Operation, steps: _Path, owned: _Owned) -> Any:
    return _take(root, steps, owned)[0]


def _replace(root: Any, operation: _Operation, steps: _Path, owned: _Owned) -> Any:
    value = operation["value"]
    if not steps:
        return value
    root, parent = _own_parent(root, steps, owned)
    parent[_key(parent, steps[-1])] = value
    return root


def _move(root: Any, operation: _Operation, steps: _Path, owned: _Owned) -> Any:
    source = _steps(operation["from"])
    if source == steps:
        _resolve(root, steps)  # nothing to do, but it has to be there
        return root
    if steps[: len(source)] == source:
        raise _Refused(f"{_brief(operation['from'])} cannot move into its own child")  # SNAP-11
    root, value = _take(root, source, owned)
    return _put(root, steps, value, owned)


def _copy(root: Any, operation: _Operation, steps: _Path, owned: _Owned) -> Any:
    value = _resolve(root, _steps(operation["from"]))
    _share(value, owned)
    return _put(root, steps, value, owned)


def _test(root: Any, operation: _Operation, steps: _Path, owned: _Owned) -> Any:
    expected = operation["value"]
    if not same_json(_resolve(root, steps), expected):
        raise _Refused("the test failed, another value is there")
    return root


_OPERATIONS: dict[str, Callable[[Any, _Operation, _Path, _Owned], Any]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}

_NEEDS = {
    "add": ("path", "value"),
    "remove": ("path",),
    "replace": ("path", "value"),
    "move": ("path", "from"),
    "copy": ("path", "from"),
    "test": ("path", "value"),
}
"""The members of each operation (SNAP-8). The decoder has seen to them already where a patch came over the wire."""
