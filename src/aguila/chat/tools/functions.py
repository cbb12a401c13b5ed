"""Python functions as tools: make a ``Tool`` from a signature and docstring, and convert arguments to Python values.

Supported are the types that msgspec describes: built-in types, ``Literal``, unions, enums, dates, UUIDs, dataclasses,
``TypedDict``, ``NamedTuple``, Structs, and ``Annotated`` with ``msgspec.Meta`` or a plain string as description; also
paths, and iterables, which become lists. If a type contains a pydantic model or ``Field``, pydantic handles the
parameter. A class with ``model_json_schema`` and ``model_validate`` describes itself. A parameter without a type
accepts any JSON.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path, PurePath
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from aguila.chat.tools.docstrings import read_docstring
from aguila.chat.tools.pydantic_types import Default, apply_field, convert_value, is_field, is_pydantic, make_schemas
from aguila.codec.json.values import is_array, is_object
from aguila.errors import DecodeError, EncodeError
from aguila.protocol import Tool

_DEFINITIONS = "#/$defs/{name}"
_LARGE = 1 << 63  # larger floats are not converted to integers


def function_schema(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    description: str | None = None,
    exclude: Collection[str] = (),
) -> Tool:
    """Describe a function as a tool: its name, the summary of its docstring, and its parameters as a JSON Schema.

    Parameter descriptions come from the docstring (Google, Sphinx or NumPy style) unless the type has one. ``exclude``
    names parameters that the caller fills in, such as a context; ``self`` is excluded too. Raises ``TypeError`` for a
    function that cannot be called with keyword arguments, and for types without a JSON Schema.
    """
    summary, documented = read_docstring(inspect.getdoc(_unwrap_partial(function)) or "")
    properties: dict[str, Any] = {}
    required: list[str] = []
    definitions: dict[str, Any] = {}
    is_open = False
    found = _parameters(function, exclude)
    models = {parameter.name: _split_description(type_)[0] for parameter, type_, _ in found if is_pydantic(type_)}
    modelled, definitions = make_schemas(models) if models else ({}, definitions)
    for parameter, type_, given in found:
        if parameter.kind is parameter.VAR_KEYWORD:
            is_open = True
            continue
        if parameter.name in modelled:
            schema = _with_description(modelled[parameter.name], _split_description(type_)[1])
        else:
            schema = _make_schema(type_, function, parameter, definitions)
        if parameter.name in documented and "description" not in schema:
            schema = {**schema, "description": documented[parameter.name]}
        if given is None and (parameter.default is parameter.empty or is_field(parameter.default)):
            required.append(parameter.name)
        elif (default := _json_default(parameter.default if given is None else given.value)) is not _NO_DEFAULT:
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
    """Convert arguments from a model's JSON to the function's types, as keyword arguments.

    Raises ``DecodeError``, with a pointer, for a wrong value, a missing argument or an unknown argument.
    """
    left = dict(arguments)
    read: dict[str, Any] = {}
    for parameter, type_, given in _parameters(function, exclude):
        if parameter.kind is parameter.VAR_KEYWORD:
            read |= left
            left = {}
        elif parameter.name in left:
            read[parameter.name] = _convert_value(left.pop(parameter.name), type_, parameter.name)
        elif given is not None:
            read[parameter.name] = given.value
        elif parameter.default is parameter.empty or is_field(parameter.default):
            raise DecodeError("a required argument is missing", rule="TOOL-3", path=f"/{parameter.name}")
    for unknown in left:
        raise DecodeError("the function has no such parameter", rule="TOOL-3", path=f"/{unknown}")
    return read


_Parameters = list[tuple[inspect.Parameter, Any, Default | None]]


def _parameters(function: Callable[..., Any], exclude: Collection[str]) -> _Parameters:
    """List the parameters with their types, and with the defaults of pydantic ``Field``s."""
    hints = get_type_hints(inspect.unwrap(_annotated_object(function)), include_extras=True)
    found: _Parameters = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in exclude:
            continue
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise TypeError(f"{_name_of(function)}: a tool is called by keyword, but {parameter} is positional-only")
        found.append((parameter, *apply_field(hints.get(parameter.name, Any), parameter.default)))
    return found


def _annotated_object(function: Callable[..., Any]) -> Any:
    """Return the object with the annotations: the function of a method, ``__call__`` of an object."""
    inner = _unwrap_partial(function)
    if inspect.isroutine(inner) or inspect.isclass(inner):
        return inner
    return type(inner).__call__


def _unwrap_partial(function: Callable[..., Any]) -> Any:
    """Return the function inside a partial, or the function itself."""
    return function.func if isinstance(function, (functools.partial, functools.partialmethod)) else function


def _name_of(function: Callable[..., Any]) -> str:
    inner = _unwrap_partial(function)
    name = getattr(inner, "__name__", None)
    return name if isinstance(name, str) else type(inner).__name__


# Types


def _make_schema(
    type_: Any, function: Callable[..., Any], parameter: inspect.Parameter, definitions: dict[str, Any]
) -> dict[str, Any]:
    described, description = _split_description(type_)
    if hasattr(described, "model_json_schema"):
        schema = described.model_json_schema(ref_template="#/$defs/{model}")
        definitions.update(schema.pop("$defs", {}))
    else:
        try:
            (schema,), components = msgspec.json.schema_components(
                [described], ref_template=_DEFINITIONS, schema_hook=_make_path_schema
            )
        except TypeError as error:
            reason = str(error).partition("\n")[0]
            raise TypeError(
                f"{_name_of(function)}: parameter {parameter.name!r} has no JSON Schema: {reason}. {_SUPPORTED}"
            ) from None
        for name, component in components.items():
            if definitions.setdefault(name, component) != component:
                raise TypeError(f"{_name_of(function)}: two parameter types are called {name!r}; rename one of them")
    return _with_description(schema, description)


_SUPPORTED = (
    "Supported are built-in types, literals, enums, dates, UUIDs, paths, lists, sets, mappings, dataclasses, "
    "TypedDicts, named tuples, Structs, pydantic models, and unions in which at most one type is an object."
)


def _with_description(schema: dict[str, Any], description: str | None) -> dict[str, Any]:
    return schema if description is None else {**schema, "description": description}


def _make_path_schema(type_: Any) -> dict[str, Any]:
    if type_ in _PATHS:
        return {"type": "string", "format": "path"}
    raise TypeError(f"{type_} is not a JSON type")


def _decode_path(type_: Any, value: Any) -> Any:
    if type_ in _PATHS and isinstance(value, str):
        return type_(value)
    raise ValueError("expected a path")


_PATHS: tuple[Any, ...] = (Path, PurePath)


def _split_description(type_: Any) -> tuple[Any, str | None]:
    """Split a type from the plain string that ``Annotated`` may give it as description. msgspec reads its own notes."""
    if get_origin(type_) is not Annotated:
        return _replace_iterables(type_), None
    inner, *notes = get_args(type_)
    text = next((note for note in notes if isinstance(note, str)), None)
    if is_pydantic(type_):
        bounds = [note for note in notes if isinstance(note, msgspec.Meta)]
        if bounds:
            raise TypeError(f"{inner} is a pydantic type, which does not support msgspec.Meta; use pydantic.Field")
        kept = [note for note in notes if not isinstance(note, str)]
    else:
        kept = [note for note in notes if isinstance(note, msgspec.Meta)]
    inner = _replace_iterables(inner)
    return (Annotated[inner, *kept] if kept else inner), text


def _replace_iterables(type_: Any) -> Any:
    """Replace iterables by lists, also inside a union, because JSON has no other form for them."""
    origin = get_origin(type_)
    if type_ is Iterable or origin is Iterable:
        return list[get_args(type_) or Any]
    if origin is Union or origin is UnionType:
        return Union[tuple(_replace_iterables(each) for each in get_args(type_))]  # noqa: UP007 - of as many as there are
    return type_


def _convert_value(value: Any, type_: Any, name: str) -> Any:
    described, _ = _split_description(type_)
    if is_pydantic(described):
        return convert_value(value, described, name)
    if hasattr(described, "model_validate"):
        try:
            return described.model_validate(value)
        except ValueError as error:
            raise DecodeError(f"wrong value: {error}", rule="TOOL-3", path=f"/{name}") from error
    try:
        try:
            return msgspec.convert(value, described, dec_hook=_decode_path)
        except msgspec.ValidationError:
            # In JSON Schema, which the tool advertises, 1.0 is an integer.
            converted = _convert_whole_floats(value)
            if converted is value:
                raise
            return msgspec.convert(converted, described, dec_hook=_decode_path)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        path = re.sub(r"\.|\[|\]", "/", where.rstrip("`")).replace("//", "/").rstrip("/")
        raise DecodeError(message, rule="TOOL-3", path=f"/{name}{path}") from None


def _convert_whole_floats(value: Any) -> Any:
    """Replace converted floats by integers. Returns the same object if there are none."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _LARGE else value
    if is_object(value):
        members: dict[str, Any] = value
        changed = {name: _convert_whole_floats(member) for name, member in members.items()}
        return changed if any(changed[name] is not member for name, member in members.items()) else members
    if is_array(value):
        elements: list[Any] = value
        others = [_convert_whole_floats(element) for element in elements]
        return others if any(new is not old for new, old in zip(others, elements, strict=True)) else elements
    return value


class _NoDefault:
    """Marks a default that is not JSON, and is not part of the schema."""


_NO_DEFAULT = _NoDefault()


def _json_default(value: Any) -> Any:
    try:
        return msgspec.to_builtins(value)
    except (TypeError, EncodeError):
        return _NO_DEFAULT
