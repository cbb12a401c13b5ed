"""Layer: chat. What pydantic knows of a function's types and results, for applications that use it.

Below: pydantic, if the application has imported it: no annotation is of pydantic otherwise, so it is never imported for
its own sake, and the base install does without. Above: ``functions``, and whoever sends what a function returned.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from aguila.errors import DecodeError


class Default(NamedTuple):
    """The default that a ``Field`` gives a parameter."""

    value: Any


def is_pydantic(type_: Any) -> bool:
    """Whether a type has a model of pydantic in it, or a ``Field``."""
    return "pydantic" in sys.modules and _mentions(type_, set())


def _mentions(type_: Any, seen: set[int]) -> bool:
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
            except NameError:  # msgspec will say so
                return False
            return any(_mentions(hint, seen) for hint in hints.values())
    inside: Any = (*get_args(type_), *getattr(type_, "__metadata__", ()))
    return any(_mentions(each, seen) for each in inside)


def with_field(type_: Any, default: Any) -> tuple[Any, Default | None]:
    """A type with the ``Field`` that a parameter has as its default, and what the ``Field`` has as its default."""
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
    """Whether a default is no value but a ``Field``."""
    if "pydantic" not in sys.modules:
        return False
    from pydantic.fields import FieldInfo

    return isinstance(value, FieldInfo)


def schemas_of(types: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """The JSON Schemas of some types by name, and what they refer to. Raises ``TypeError`` if one has none."""
    import pydantic

    try:
        adapters = [(name, "validation", pydantic.TypeAdapter(type_)) for name, type_ in types.items()]
        made: Any = pydantic.TypeAdapter.json_schemas(adapters, ref_template="#/$defs/{model}")  # type: ignore[arg-type]
    except pydantic.errors.PydanticUserError as error:
        raise TypeError(f"no JSON Schema of these types: {error}") from None
    schemas, rest = made
    return {name: schema for (name, _), schema in schemas.items()}, rest.get("$defs", {})


def validated(value: Any, type_: Any, name: str) -> Any:
    """A value as the type wants it. Raises ``DecodeError``, with a pointer, for a wrong one."""
    import pydantic

    try:
        return pydantic.TypeAdapter(type_).validate_python(value)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where: Sequence[int | str] = first["loc"]
        path = "".join([f"/{step}" for step in where])
        raise DecodeError(first["msg"], rule="TOOL-3", path=f"/{name}{path}") from None


def as_json(value: Any) -> Any:
    """A value with plain JSON for the models in it; itself if pydantic does not know either what it is."""
    if "pydantic" not in sys.modules:
        return value
    import pydantic_core

    try:
        return pydantic_core.to_jsonable_python(value)
    except (ValueError, TypeError):
        return value
