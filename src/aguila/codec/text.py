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
from typing import Any, Final, NoReturn

import msgspec

from aguila.codec.notice import Notice, Warn
from aguila.codec.pointer import escape_token
from aguila.codec.values import is_array, is_object
from aguila.errors import DecodeError, EncodeError

MAX_SIZE: Final = 10 * 1024 * 1024
"""The default cap on one event or document, in bytes: that of the published clients (PY-21)."""

MAX_DEPTH: Final = 256
"""How deep JSON may nest. Far beyond any real payload, and safe for recursive code downstream."""

_decode_any = msgspec.json.Decoder().decode

_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def check_limits(data: bytes | str, max_size: int, index: int | None) -> None:
    """Raises ``DecodeError`` for text that is too large or nests too deep; cheap for text that is neither."""
    if len(data) > max_size:
        message = f"{len(data)} bytes, more than the {max_size} allowed"
        raise DecodeError(message, rule="limit-size", index=index)
    if isinstance(data, str):
        deep = data.count("{") + data.count("[") > MAX_DEPTH and _depth(data.encode("utf-8", "replace")) > MAX_DEPTH
    else:
        deep = data.count(b"{") + data.count(b"[") > MAX_DEPTH and _depth(data) > MAX_DEPTH
    if deep:
        raise DecodeError(f"nested deeper than {MAX_DEPTH}", rule="limit-depth", index=index)


def _depth(data: bytes) -> int:
    """How deep ``data`` nests, or an upper bound below the limit.

    Brackets inside strings only add noise, so the fast way counts them too: delete all else, then cancel matching pairs
    round by round, each round one level. Only a residue (noise, or real depth) is worth the exact look.
    """
    rest = data.translate(None, _NOT_BRACKETS)
    for rounds in range(MAX_DEPTH):
        shorter = rest.replace(b"[]", b"").replace(b"{}", b"")
        if len(shorter) + rounds < MAX_DEPTH:
            return len(shorter) + rounds
        if len(shorter) == len(rest):
            break
        rest = shorter
    depth = deepest = 0
    for token in _TOKEN.finditer(data):
        bracket = token[0]
        if bracket in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
        elif bracket in (b"]", b"}"):
            depth -= 1
    return deepest


def load(data: bytes | str, *, strict: bool, warn: Warn, index: int | None = None) -> Any:
    """``data`` as plain JSON values, or a ``DecodeError`` that says what is wrong with the text."""
    try:
        return _decode_any(data)
    except UnicodeError as error:
        if isinstance(data, bytes):
            if strict:
                raise DecodeError(f"not UTF-8: {error}", rule="utf-8", index=index) from None
            warn(Notice(rule="utf-8", message=f"bytes that are not UTF-8 were read as U+FFFD ({error.args[-1]})"))
            return load(data.decode("utf-8", "replace"), strict=strict, warn=warn, index=index)
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


def refuse_non_finite(value: Any, path: str) -> None:
    """Raises ``EncodeError`` with the path of the first NaN or Infinity in a plain value."""
    if isinstance(value, float) and not math.isfinite(value):
        raise EncodeError(f"{value} is not JSON", path=path)
    if is_object(value):
        for name, member in value.items():
            refuse_non_finite(member, f"{path}/{escape_token(str(name))}")
    elif is_array(value):
        for i, item in enumerate(value):
            refuse_non_finite(item, f"{path}/{i}")
