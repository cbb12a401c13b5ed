"""Layer: chat. Python functions as tools: a ``Tool`` from a signature and a docstring, and arguments back to Python.

Below: msgspec, which makes schemas of types and values of JSON; ``docstrings``, ``pydantic_types``. Above:
``client.tools`` (tools that a client offers) and the providers (tools that an agent has). Nothing here calls the
function.

Types are those that msgspec describes: built-in types, ``Literal``, unions, enums, dates, UUIDs, dataclasses,
``TypedDict``, ``NamedTuple``, Structs, and ``Annotated`` with ``msgspec.Meta`` or a plain string as description; paths,
and iterables, which are lists then. A parameter whose type has a model of pydantic anywhere, or a ``Field``, is
pydantic's matter. A class with ``model_json_schema`` and ``model_validate`` describes itself. A parameter without a
type takes any JSON.
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

from aguila.chat.docstrings import read_docstring
from aguila.chat.pydantic_types import Default, is_field, is_pydantic, schemas_of, validated, with_field
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
    summary, documented = read_docstring(inspect.getdoc(_inner(function)) or "")
    properties: dict[str, Any] = {}
    required: list[str] = []
    definitions: dict[str, Any] = {}
    is_open = False
    found = _parameters(function, exclude)
    models = {parameter.name: _described(type_)[0] for parameter, type_, _ in found if is_pydantic(type_)}
    modelled, definitions = schemas_of(models) if models else ({}, definitions)
    for parameter, type_, given in found:
        if parameter.kind is parameter.VAR_KEYWORD:
            is_open = True
            continue
        if parameter.name in modelled:
            schema = _with_description(modelled[parameter.name], _described(type_)[1])
        else:
            schema = _schema_of(type_, function, parameter, definitions)
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
    """Arguments from a model's JSON as the function's types want them, to be passed by name.

    Raises ``DecodeError``, with a pointer, for a wrong value, a missing argument, and one that the function has not.
    """
    left = dict(arguments)
    read: dict[str, Any] = {}
    for parameter, type_, given in _parameters(function, exclude):
        if parameter.kind is parameter.VAR_KEYWORD:
            read |= left
            left = {}
        elif parameter.name in left:
            read[parameter.name] = _read(left.pop(parameter.name), type_, parameter.name)
        elif given is not None:
            read[parameter.name] = given.value
        elif parameter.default is parameter.empty or is_field(parameter.default):
            raise DecodeError("a required argument is missing", rule="TOOL-3", path=f"/{parameter.name}")
    for unknown in left:
        raise DecodeError("the function has no such argument", rule="TOOL-3", path=f"/{unknown}")
    return read


_Parameters = list[tuple[inspect.Parameter, Any, Default | None]]


def _parameters(function: Callable[..., Any], exclude: Collection[str]) -> _Parameters:
    """The parameters, their types, and the defaults of those that have a ``Field`` of pydantic."""
    hints = get_type_hints(inspect.unwrap(_plain(function)), include_extras=True)
    found: _Parameters = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in exclude:
            continue
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise TypeError(f"{_name_of(function)}: a tool is called by name, so {parameter} cannot be filled in")
        found.append((parameter, *with_field(hints.get(parameter.name, Any), parameter.default)))
    return found


def _plain(function: Callable[..., Any]) -> Any:
    """Where the annotations are: the function of a method, the call of an object, what a partial binds."""
    inner = _inner(function)
    if inspect.isroutine(inner) or inspect.isclass(inner):
        return inner
    return type(inner).__call__


def _inner(function: Callable[..., Any]) -> Any:
    """What a partial binds, or the function itself."""
    return function.func if isinstance(function, (functools.partial, functools.partialmethod)) else function


def _name_of(function: Callable[..., Any]) -> str:
    inner = _inner(function)
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
            (schema,), components = msgspec.json.schema_components(
                [described], ref_template=_DEFINITIONS, schema_hook=_schema_of_path
            )
        except TypeError as error:
            reason = str(error).partition("\n")[0]
            raise TypeError(
                f"{_name_of(function)}: parameter {parameter.name!r} has no JSON Schema: {reason}. {_SUPPORTED}"
            ) from None
        for name, component in components.items():
            if definitions.setdefault(name, component) != component:
                raise TypeError(f"{_name_of(function)}: two types of its parameters are called {name!r}")
    return _with_description(schema, description)


_SUPPORTED = (
    "A tool takes built-in types, literals, enums, dates, UUIDs, paths, lists, sets, mappings, dataclasses, "
    "TypedDicts, named tuples, Structs, models of pydantic, and unions in which at most one type is an object."
)


def _with_description(schema: dict[str, Any], description: str | None) -> dict[str, Any]:
    return schema if description is None else {**schema, "description": description}


def _schema_of_path(type_: Any) -> dict[str, Any]:
    if type_ in _PATHS:
        return {"type": "string", "format": "path"}
    raise TypeError(f"{type_} is no type of JSON")


def _read_path(type_: Any, value: Any) -> Any:
    if type_ in _PATHS and isinstance(value, str):
        return type_(value)
    raise ValueError("expected a path")


_PATHS: tuple[Any, ...] = (Path, PurePath)


def _described(type_: Any) -> tuple[Any, str | None]:
    """A type, and the plain string that ``Annotated`` may give it as description; msgspec reads its own kind."""
    if get_origin(type_) is not Annotated:
        return _with_lists(type_), None
    inner, *notes = get_args(type_)
    text = next((note for note in notes if isinstance(note, str)), None)
    if is_pydantic(type_):
        bounds = [note for note in notes if isinstance(note, msgspec.Meta)]
        if bounds:
            raise TypeError(f"{inner} is a matter of pydantic, which does not know msgspec.Meta: use pydantic.Field")
        kept = [note for note in notes if not isinstance(note, str)]
    else:
        kept = [note for note in notes if isinstance(note, msgspec.Meta)]
    inner = _with_lists(inner)
    return (Annotated[inner, *kept] if kept else inner), text


def _with_lists(type_: Any) -> Any:
    """Lists for iterables, which JSON has no other form for, also as members of a union."""
    origin = get_origin(type_)
    if type_ is Iterable or origin is Iterable:
        return list[get_args(type_) or Any]
    if origin is Union or origin is UnionType:
        return Union[tuple(_with_lists(each) for each in get_args(type_))]  # noqa: UP007 - of as many as there are
    return type_


def _read(value: Any, type_: Any, name: str) -> Any:
    described, _ = _described(type_)
    if is_pydantic(described):
        return validated(value, described, name)
    if hasattr(described, "model_validate"):
        try:
            return described.model_validate(value)
        except ValueError as error:
            raise DecodeError(f"wrong value: {error}", rule="TOOL-3", path=f"/{name}") from error
    try:
        try:
            return msgspec.convert(value, described, dec_hook=_read_path)
        except msgspec.ValidationError:
            # To a JSON Schema, which is what was advertised, 1.0 is an integer.
            whole = _with_integers(value)
            if whole is value:
                raise
            return msgspec.convert(whole, described, dec_hook=_read_path)
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
