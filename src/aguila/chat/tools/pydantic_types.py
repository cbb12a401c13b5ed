"""Schemas, validation and serialisation of pydantic types.

pydantic is used only if the application has imported it; otherwise no type can be a pydantic type.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from aguila.errors import DecodeError


class Default(NamedTuple):
    """The default that a ``Field`` gives to a parameter."""

    value: Any


def is_pydantic(type_: Any) -> bool:
    """Return whether a type contains a pydantic model or a ``Field``."""
    return "pydantic" in sys.modules and _contains_pydantic(type_, set())


def _contains_pydantic(type_: Any, seen: set[int]) -> bool:
    import pydantic
    from pydantic.fields import FieldInfo

    if id(type_) in seen:
        return False
    seen.add(id(type_))
    if isinstance(type_, FieldInfo):
        return True
    if inspect.isclass(type_):
        cls: Any = type_
        if issubclass(cls, pydantic.BaseModel) or hasattr(cls, "__pydantic_validator__"):
            return True
        if dataclasses.is_dataclass(cls) or hasattr(cls, "__total__") or hasattr(cls, "_fields"):
            try:
                hints = get_type_hints(cls, include_extras=True)
            except NameError:  # msgspec reports it
                return False
            return any(_contains_pydantic(hint, seen) for hint in hints.values())
    inside: Any = (*get_args(type_), *getattr(type_, "__metadata__", ()))
    return any(_contains_pydantic(each, seen) for each in inside)


def apply_field(type_: Any, default: Any) -> tuple[Any, Default | None]:
    """Return the type with the ``Field`` that is a parameter's default, and the default of that ``Field``."""
    if "pydantic" not in sys.modules:
        return type_, None
    from pydantic.fields import FieldInfo

    if isinstance(default, FieldInfo):
        type_ = Annotated[type_, default]
    notes = get_args(type_)[1:] if get_origin(type_) is Annotated else ()
    for note in reversed(notes):
        if isinstance(note, FieldInfo) and not note.is_required():
            return type_, Default(note.get_default(call_default_factory=True))
    return type_, None


def is_field(value: Any) -> bool:
    """Return whether a default is a ``Field`` instead of a value."""
    if "pydantic" not in sys.modules:
        return False
    from pydantic.fields import FieldInfo

    return isinstance(value, FieldInfo)


def make_schemas(types: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return the JSON Schemas of types by name, and their definitions. Raises ``TypeError`` if a type has none."""
    import pydantic

    try:
        adapters = [(name, "validation", pydantic.TypeAdapter(type_)) for name, type_ in types.items()]
        made: Any = pydantic.TypeAdapter.json_schemas(adapters, ref_template="#/$defs/{model}")  # type: ignore[arg-type]
    except pydantic.errors.PydanticUserError as error:
        raise TypeError(f"cannot make a JSON Schema for these types: {error}") from None
    schemas, rest = made
    return {name: schema for (name, _), schema in schemas.items()}, rest.get("$defs", {})


def convert_value(value: Any, type_: Any, name: str) -> Any:
    """Convert a value to a type. Raises ``DecodeError``, with a pointer, for a wrong value."""
    import pydantic

    try:
        return pydantic.TypeAdapter(type_).validate_python(value)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where: Sequence[int | str] = first["loc"]
        path = "".join([f"/{step}" for step in where])
        raise DecodeError(first["msg"], rule="TOOL-3", path=f"/{name}{path}") from None


def as_json(value: Any) -> Any:
    """Convert the pydantic models in a value to JSON. Returns other values unchanged."""
    if "pydantic" not in sys.modules:
        return value
    import pydantic_core

    try:
        return pydantic_core.to_jsonable_python(value)
    except (ValueError, TypeError):
        return value
