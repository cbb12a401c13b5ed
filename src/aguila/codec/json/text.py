"""Layer: codec. JSON text to plain values and back, for what the typed codec cannot take as it is.

Below: the standard library and msgspec. Above: ``json``. Knows no protocol type. What JSON leaves open is decided here:

* a duplicated key counts as its last occurrence, as in JavaScript;
* NaN, Infinity and numbers beyond a double are refused, reading and writing;
* a lone surrogate half (half an emoji, cut by a JavaScript peer) is kept, and escaped again when written;
* bytes that are not UTF-8 are read as U+FFFD with a notice, and refused in strict mode;
* nesting beyond ``MAX_DEPTH`` and input beyond the size cap are refused.
"""

from __future__ import annotations

import json
import math
import re
from itertools import accumulate
from typing import Any, Final, NoReturn

import msgspec

from aguila.codec.json.values import is_array, is_object
from aguila.codec.notices import Notice, Warn
from aguila.codec.pointer import escape_token
from aguila.errors import DecodeError, EncodeError

MAX_SIZE: Final = 10 * 1024 * 1024
"""The default cap on one event or document, in bytes: that of the published clients (PY-21)."""

MAX_DEPTH: Final = 256
"""How deep JSON may nest. Far beyond any real payload, and safe for recursive code downstream."""

_decode_any = msgspec.json.Decoder().decode
_write_finite = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False).encode

# Nothing this short can nest deeper than MAX_DEPTH and be JSON: every level takes two bytes.
SHORT_JSON: Final = 2 * MAX_DEPTH

_NOT_OPENING: Final = bytes(set(range(256)) - set(b"[{"))
_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{}"'))
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # as signed bytes: one level up, one level down
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def check_size(data: bytes | str, max_size: int, index: int | None = None) -> None:
    """Raises ``DecodeError`` for text that is too large."""
    size = len(data)
    if isinstance(data, str) and size * 4 > max_size:  # four bytes is the most that a character takes
        size = len(data.encode("utf-8", "surrogatepass"))
    if size > max_size:
        message = f"{size} bytes, more than the {max_size} allowed"
        raise DecodeError(message, rule="limit-size", index=index)


def check_depth(data: bytes | str, index: int | None = None, flat: int = 0, most: int = MAX_DEPTH) -> None:
    """Raises ``DecodeError`` for JSON that nests too deep.

    ``flat`` is a number of brackets that are known to nest in one another only a few levels deep.
    """
    if len(data) <= 2 * most:
        return
    text = data.encode("utf-8", "replace") if isinstance(data, str) else data
    if len(text.translate(None, _NOT_OPENING)) - flat > most and _depth(text) > most:
        raise DecodeError(f"nested deeper than {most}", rule="limit-depth", index=index)


def _depth(data: bytes) -> int:
    """How deep JSON text nests. Brackets within strings do not count: they could hide any depth.

    Every step is one pass in C: a token by token scan would take longer than the decoding it guards. Text that is not
    JSON may give any number; the parser refuses it.
    """
    if 92 in data:  # escaped backslashes first: they escape nothing themselves
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two quotes side by side begin and end nothing between them, whichever of them begins.
    steps = data.translate(_STEPS, _NOT_STRUCTURE).replace(b'""', b"")
    if 34 in steps:
        steps = b"".join(steps.split(b'"')[::2])
    depth = 0
    while len(steps) > MAX_DEPTH:  # take off the innermost level while that is most of the text
        outer = steps.replace(b"\x01\xff", b"")
        if len(outer) * 2 > len(steps):
            break
        steps, depth = outer, depth + 1
    return depth + max(accumulate(memoryview(steps).cast("b")), default=0)


def parse_json(data: bytes | str, *, strict: bool, warn: Warn, index: int | None = None) -> Any:
    """``data`` as plain JSON values, or a ``DecodeError`` that says what is wrong with the text."""
    try:
        return _decode_any(data)
    except UnicodeError as error:
        if isinstance(data, bytes):
            if strict:
                raise DecodeError(f"not UTF-8: {error}", rule="utf-8", index=index) from None
            warn(Notice(rule="utf-8", message=f"bytes that are not UTF-8 were read as U+FFFD ({error.args[-1]})"))
            return parse_json(data.decode("utf-8", "replace"), strict=strict, warn=warn, index=index)
        problem = str(error)
    except RecursionError:
        raise DecodeError("nested too deep for this stack", rule="limit-depth", index=index) from None
    except msgspec.DecodeError as error:
        problem = str(error)
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    if _SURROGATE.search(text) is None:
        raise DecodeError(f"not JSON: {problem}", rule="json", index=index)
    try:  # msgspec refuses lone surrogate halves, which JavaScript peers send; the standard library keeps them
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not JSON: {error}", rule="json", index=index) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"number out of range: {text}")
    return value


def encode_surrogates(obj: Any) -> bytes:
    """The same JSON with lone surrogate halves escaped: the only form in which they can travel."""
    try:
        text = json.dumps(msgspec.to_builtins(obj), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError) as error:
        raise EncodeError(str(error)) from None
    return text.encode("utf-8", "backslashreplace")


def replace_surrogates(value: Any) -> Any:
    """A plain value with question marks for lone surrogate halves."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def refuse_non_finite(obj: Any) -> None:
    """Raises ``EncodeError`` with the path of the first NaN or Infinity in an object that is otherwise writable."""
    value = msgspec.to_builtins(obj)
    try:
        _write_finite(value)
    except ValueError:
        _refuse_non_finite(value, "")


def _refuse_non_finite(value: Any, path: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise EncodeError(f"{value} is not JSON", path=path)
    if is_object(value):
        for name, member in value.items():
            _refuse_non_finite(member, f"{path}/{escape_token(str(name))}")
    elif is_array(value):
        for i, item in enumerate(value):
            _refuse_non_finite(item, f"{path}/{i}")
