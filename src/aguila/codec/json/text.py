"""Parse and check JSON text without protocol types.

This module decides what the JSON standard leaves open:

* of a duplicate key, the last occurrence counts, as in JavaScript;
* NaN, Infinity and numbers beyond a double are refused in both directions;
* a lone surrogate (half an emoji, cut by a JavaScript peer) is kept, and written as an escape;
* bytes that are not UTF-8 are read as U+FFFD with a notice, and refused in strict mode;
* nesting beyond ``MAX_DEPTH`` and input beyond the size limit are refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Final, NoReturn

import msgspec

from aguila.codec.json.bounded_floats import json_decoder, parse_float
from aguila.codec.json.values import is_array, is_object
from aguila.codec.notices import Notice, Warn
from aguila.codec.pointer import escape_token
from aguila.errors import DecodeError, EncodeError

MAX_SIZE: Final = 10 * 1024 * 1024
"""The default limit for one event or document, in bytes: that of the published clients (PY-21)."""

MAX_DEPTH: Final = 256
"""The nesting limit: far beyond any real payload, and safe for recursive code downstream."""

_decode_any = json_decoder().decode
_write_finite = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False).encode

SHORT_JSON: Final = 2 * MAX_DEPTH
"""Bytes of JSON that cannot nest deeper than ``MAX_DEPTH``: every level takes two."""

_NOT_OPENING: Final = bytes(set(range(256)) - set(b"[{"))
_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{}"'))
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # as signed bytes: one level up, one level down
_SAMPLE: Final = 4096
_MANY_IN_SAMPLE: Final = 8
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def check_size(data: bytes | str, max_size: int, index: int | None = None) -> None:
    """Raise ``DecodeError`` if text is larger than ``max_size`` bytes."""
    size = len(data)
    if isinstance(data, str) and size * 4 > max_size:  # a character takes at most four bytes
        size = len(data.encode("utf-8", "surrogatepass"))
    if size > max_size:
        message = f"{size} bytes exceed the limit of {max_size}"
        raise DecodeError(message, rule="limit-size", index=index)


def check_depth(
    data: bytes | str,
    index: int | None = None,
    count_shallow: Callable[[], int] | None = None,
    most: int = MAX_DEPTH,
) -> None:
    """Raise ``DecodeError`` if JSON nests too deep.

    ``count_shallow`` returns a number of brackets that are known not to nest deep. It is only called if it may matter.
    """
    if len(data) <= 2 * most:
        return
    text = data.encode("utf-8", "replace") if isinstance(data, str) else data
    if _is_dense(text, b"{"):
        # One pass for both brackets. It takes as long as one ``bytes.count``.
        brackets = len(text.translate(None, _NOT_OPENING))
        if brackets <= most:
            return
        most_brackets = most + (0 if count_shallow is None else count_shallow())
    else:
        most_brackets = most + (0 if count_shallow is None else count_shallow())
        brackets = count_up_to(text, b"{", most_brackets)
        brackets += count_up_to(text, b"[", most_brackets - brackets)
    if brackets > most_brackets and _depth(text) > most:
        raise DecodeError(f"nested deeper than {most}", rule="limit-depth", index=index)


def count_up_to(text: bytes, char: bytes, most: int) -> int:
    """Count a character; return ``most + 1`` if there are more than ``most``.

    ``bytes.count`` takes the same time for every byte, ``bytes.find`` for every hit. A text that starts with few hits,
    as a long history with long messages does, is searched with ``find``.
    """
    if _is_dense(text, char):
        return min(text.count(char), most + 1)
    count = 0
    at = text.find(char)
    while at >= 0 and count <= most:
        count += 1
        at = text.find(char, at + 1)
    return count


def _is_dense(text: bytes, char: bytes) -> bool:
    """Return whether a text is short, or has many of this character at its start."""
    return len(text) <= _SAMPLE or text.count(char, 0, _SAMPLE) > _MANY_IN_SAMPLE


def _depth(data: bytes) -> int:
    """Return how deep JSON text nests. Brackets in strings do not count.

    Every step is one pass in C, because a scan token by token would take longer than decoding. Text that is not JSON
    gives any number; the parser refuses it.
    """
    if 92 in data:  # first the escaped backslashes: they do not escape what follows
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two adjacent quotes enclose no bracket, whether they are one string or the end and start of two.
    steps = data.translate(_STEPS, _NOT_STRUCTURE).replace(b'""', b"")
    if 34 in steps:
        steps = b"".join(steps.split(b'"')[::2])
    depth = 0
    while len(steps) > MAX_DEPTH:  # remove the innermost level while it is most of the text
        outer = steps.replace(b"\x01\xff", b"")
        if len(outer) * 2 > len(steps):
            break
        steps, depth = outer, depth + 1
    return depth + max(accumulate(memoryview(steps).cast("b")), default=0)


def parse_json(data: bytes | str, *, strict: bool, warn: Warn, index: int | None = None) -> Any:
    """Parse JSON text into plain values. Raises ``DecodeError``."""
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
    try:  # msgspec refuses lone surrogates, which JavaScript peers send; the standard library keeps them
        return json.loads(text, parse_constant=_refuse_constant, parse_float=parse_float)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not JSON: {error}", rule="json", index=index) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def encode_surrogates(obj: Any) -> bytes:
    """Encode an object that contains lone surrogates: they are written as escapes."""
    try:
        text = json.dumps(
            msgspec.to_builtins(obj, enc_hook=_read_raw), ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
    except (ValueError, TypeError, RecursionError) as error:
        raise EncodeError(str(error)) from None
    return text.encode("utf-8", "backslashreplace")


def _read_raw(value: Any) -> Any:
    """Return the value of a ``msgspec.Raw``, which ``to_builtins`` does not convert. Raises for other objects."""
    if isinstance(value, msgspec.Raw):
        return json.loads(bytes(value))
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


def replace_surrogates(value: Any) -> Any:
    """Return a plain value with question marks for lone surrogates."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def refuse_non_finite(obj: Any) -> None:
    """Raise ``EncodeError`` with the path of the first NaN or Infinity in an object that is otherwise writable."""
    try:
        value = msgspec.to_builtins(obj, enc_hook=_skip_raw)
        try:
            _write_finite(value)
        except ValueError:
            refuse_non_finite_numbers(value)
    except RecursionError:
        raise EncodeError("nested too deep to write") from None


def _skip_raw(value: Any) -> Any:
    """Return null for a ``msgspec.Raw``, which is JSON already. Raises for other objects."""
    if isinstance(value, msgspec.Raw):
        return None
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


def refuse_non_finite_numbers(value: Any, path: str = "") -> None:
    """Raise ``EncodeError`` with the path of the first NaN or Infinity in a plain value."""
    if isinstance(value, float) and not math.isfinite(value):
        raise EncodeError(f"{value} is not JSON", path=path)
    if is_object(value):
        for name, member in value.items():
            refuse_non_finite_numbers(member, f"{path}/{escape_token(str(name))}")
    elif is_array(value):
        for i, item in enumerate(value):
            refuse_non_finite_numbers(item, f"{path}/{i}")
