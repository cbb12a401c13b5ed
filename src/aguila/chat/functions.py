"""Layer: chat. Python functions as tools: a ``Tool`` from a signature and a docstring, and arguments back to Python.

Below: msgspec, which makes schemas of types and values of JSON; ``docstrings``. Above: ``client.tools`` (tools that a
client offers) and the providers (tools that an agent has). Nothing here calls the function.

Types are those that msgspec describes: built-in types, ``Literal``, unions, enums, dates, UUIDs, dataclasses,
``TypedDict``, ``NamedTuple``, Structs, and ``Annotated`` with ``msgspec.Meta`` or a plain string as description. A
class with ``model_json_schema`` and ``model_validate`` (pydantic) describes itself. A parameter without a type takes
any JSON.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from aguila.chat.docstrings import read_docstring
from aguila.codec.values import is_array, is_object
from aguila.errors import DecodeError, EncodeError
from aguila.protocol import Tool

_DEFINITIONS = "#/$defs/{name}"
_LARGE = 1 << 63  # a whole number beyond is a measurement, and not a count


def function_schema(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    exclude: Collection[str] = (),
) -> Tool:
    """The function as a tool: its name, the summary of its docstring, and its parameters as a JSON Schema.

    Descriptions of parameters come from the docstring (Google, Sphinx and NumPy style) unless their type has one.
    ``exclude`` names parameters that the caller fills in, such as a context; so is ``self``. Raises ``TypeError`` for
    a function that cannot be called by the names of its parameters, and for types that no JSON Schema describes.
    """
    summary, documented = read_docstring(inspect.getdoc(function) or "")
    properties: dict[str, Any] = {}
    required: list[str] = []
    definitions: dict[str, Any] = {}
    is_open = False
    for parameter, type_ in _parameters(function, exclude):
        if parameter.kind is parameter.VAR_KEYWORD:
            is_open = True
            continue
        schema = _schema_of(type_, function, parameter, definitions)
        if parameter.name in documented and "description" not in schema:
            schema = {**schema, "description": documented[parameter.name]}
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        elif (default := _json_default(parameter.default)) is not _NO_DEFAULT:
            schema = {**schema, "default": default}
        properties[parameter.name] = schema
    parameters: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = required
    if not is_open:
        parameters["additionalProperties"] = False
    if definitions:
        parameters["$defs"] = definitions
    return Tool(
        name=_name_of(function) if name is None else name,
        description=summary if description is None else description,
        parameters=parameters,
    )


def read_arguments(
    function: Callable[..., Any], arguments: Mapping[str, Any], *, exclude: Collection[str] = ()
) -> dict[str, Any]:
    """Arguments from a model's JSON as the function's types want them, to be passed by name.

    Raises ``DecodeError``, with a pointer, for a wrong value, a missing argument, and one that the function has not.
    """
    left = dict(arguments)
    read: dict[str, Any] = {}
    for parameter, type_ in _parameters(function, exclude):
        if parameter.kind is parameter.VAR_KEYWORD:
            read |= left
            left = {}
        elif parameter.name in left:
            read[parameter.name] = _read(left.pop(parameter.name), type_, parameter.name)
        elif parameter.default is parameter.empty:
            raise DecodeError("a required argument is missing", rule="TOOL-3", path=f"/{parameter.name}")
    for unknown in left:
        raise DecodeError("the function has no such argument", rule="TOOL-3", path=f"/{unknown}")
    return read


def _parameters(function: Callable[..., Any], exclude: Collection[str]) -> list[tuple[inspect.Parameter, Any]]:
    hints = get_type_hints(inspect.unwrap(_plain(function)), include_extras=True)
    found: list[tuple[inspect.Parameter, Any]] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in exclude:
            continue
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise TypeError(f"{_name_of(function)}: a tool is called by name, so {parameter} cannot be filled in")
        found.append((parameter, hints.get(parameter.name, Any)))
    return found


def _plain(function: Callable[..., Any]) -> Any:
    """Where the annotations are: the function of a method, the call of an object, what a partial binds."""
    inner: Any = getattr(function, "func", function)
    if inspect.isroutine(inner) or inspect.isclass(inner):
        return inner
    return type(inner).__call__


def _name_of(function: Callable[..., Any]) -> str:
    inner: Any = getattr(function, "func", function)
    name = getattr(inner, "__name__", None)
    return name if isinstance(name, str) else type(inner).__name__


# Types


def _schema_of(
    type_: Any, function: Callable[..., Any], parameter: inspect.Parameter, definitions: dict[str, Any]
) -> dict[str, Any]:
    described, description = _described(type_)
    if hasattr(described, "model_json_schema"):
        schema = described.model_json_schema(ref_template="#/$defs/{model}")
        definitions.update(schema.pop("$defs", {}))
    else:
        try:
            (schema,), components = msgspec.json.schema_components([described], ref_template=_DEFINITIONS)
        except TypeError as error:
            raise TypeError(f"{_name_of(function)}: parameter {parameter.name!r} has no JSON Schema: {error}") from None
        definitions.update(components)
    return schema if description is None else {**schema, "description": description}


def _described(type_: Any) -> tuple[Any, str | None]:
    """A type, and the plain string that ``Annotated`` may give it as description; msgspec reads its own kind."""
    if get_origin(type_) is not Annotated:
        return type_, None
    inner, *notes = get_args(type_)
    text = next((note for note in notes if isinstance(note, str)), None)
    kept = [note for note in notes if isinstance(note, msgspec.Meta)]
    return (Annotated[inner, *kept] if kept else inner), text


def _read(value: Any, type_: Any, name: str) -> Any:
    described, _ = _described(type_)
    if hasattr(described, "model_validate"):
        try:
            return described.model_validate(value)
        except ValueError as error:
            raise DecodeError(f"wrong value: {error}", rule="TOOL-3", path=f"/{name}") from error
    try:
        try:
            return msgspec.convert(value, described)
        except msgspec.ValidationError:
            # To a JSON Schema, which is what was advertised, 1.0 is an integer.
            whole = _with_integers(value)
            if whole is value:
                raise
            return msgspec.convert(whole, described)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        path = re.sub(r"\.|\[|\]", "/", where.rstrip("`")).replace("//", "/").rstrip("/")
        raise DecodeError(message, rule="TOOL-3", path=f"/{name}{path}") from None


def _with_integers(value: Any) -> Any:
    """The same with integers for whole numbers, the same object if there are none."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _LARGE else value
    if is_object(value):
        members: dict[str, Any] = value
        changed = {name: _with_integers(member) for name, member in members.items()}
        return changed if any(changed[name] is not member for name, member in members.items()) else members
    if is_array(value):
        elements: list[Any] = value
        others = [_with_integers(element) for element in elements]
        return others if any(new is not old for new, old in zip(others, elements, strict=True)) else elements
    return value


class _NoDefault:
    """A default that is no JSON, and so is not mentioned."""


_NO_DEFAULT = _NoDefault()


def _json_default(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value)
    except (TypeError, EncodeError):
        return _NO_DEFAULT
