"""Base classes of the wire types. They make three decisions for every type:

* An absent field is ``None`` and is not encoded (ENV-6). Such a field is declared as ``Maybe[T]``: type checkers read
  ``T | None``, msgspec reads ``T`` and so refuses a null at C speed. No field of the protocol is both omittable and
  nullable, so a third state is not needed.
* Objects are closed (``forbid_unknown_fields``). Only if msgspec finds an unknown member, the decoder takes the slower
  path that strips it with a warning (PROC-3).
* Objects are immutable. ``replace(obj, field=...)`` makes a changed copy.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

if TYPE_CHECKING:
    from typing import Optional

    Maybe = Optional
    AnyJSON = Any
else:

    class Maybe:
        """``Maybe[T]`` is ``T`` for msgspec, so that null is refused."""

        def __class_getitem__(cls, item: Any) -> Any:
            return item

    # Any JSON value except null (ENV-6: optional opaque fields are omitted, never null).
    AnyJSON = bool | int | float | str | list[Any] | dict[str, Any]

MAX_SAFE_INTEGER = 2**53 - 1
"""The largest integer that every peer can represent exactly (ENV-2, USE-6)."""

SafeInt = Annotated[int, msgspec.Meta(ge=-MAX_SAFE_INTEGER, le=MAX_SAFE_INTEGER)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_SAFE_INTEGER)]

Metadata = dict[str, Any]
"""An open object; null is a valid value of a key (META-1)."""

replace = msgspec.structs.replace


class Wire(
    msgspec.Struct,
    # msgspec does not inherit kw_only and type checkers do not inherit frozen, so every class repeats both. A metaclass
    # that sets them would cost constructors their fast path (0.25 instead of 0.08 us).
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
    repr_omit_defaults=True,
):
    """The base of every wire type."""


class _TaggedMeta(msgspec.StructMeta):
    """Accept the constant discriminator in constructors, ``UserMessage(role="user", ...)``, as the official models do.

    Not for events, whose constructors are too hot for it.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        config: Any = cls.__struct_config__
        field, tag = config.tag_field, config.tag
        if field in kwargs:
            given = kwargs.pop(field)
            if given != tag:
                raise TypeError(f"{cls.__name__}.{field} must be {tag!r}, not {given!r}")
        return super().__call__(*args, **kwargs)


class _MessageMeta(_TaggedMeta):
    """Assign an id to a message that is constructed without one. A decoded message must have one (ENV-12)."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if "id" not in kwargs:
            kwargs["id"] = f"msg_{os.urandom(16).hex()}"
        return super().__call__(*args, **kwargs)


class _DescribedMeta(msgspec.StructMeta):
    """Let a constructor omit ``description``, which is then empty. It is required when decoded."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        kwargs.setdefault("description", "")
        return super().__call__(*args, **kwargs)


class Tagged(Wire, metaclass=_TaggedMeta, frozen=True, kw_only=True):
    """An object that is identified by one constant member, a role or a type."""


class Identified(Tagged, metaclass=_MessageMeta, frozen=True, kw_only=True):
    """A message: an object with an id, which its constructor assigns if it is omitted."""

    if TYPE_CHECKING:
        id: str = ""
    else:
        id: str


class Described(Wire, metaclass=_DescribedMeta, frozen=True, kw_only=True):
    """An object with a name and a description, which its constructor may omit."""

    name: str
    if TYPE_CHECKING:
        description: str = ""
    else:
        description: str


class Phantom(Wire, tag_field="type", tag="\x00", frozen=True, kw_only=True):
    """A union member that no peer can send.

    msgspec requires a tag only in a union of several types. With this one, ``type`` is required also where the protocol
    has a single value for it (``ToolCall.type``).
    """


def struct_fields(cls: type[msgspec.Struct]) -> Sequence[msgspec.structs.FieldInfo]:
    """Return the fields of a wire type, with their JSON names and whether they are required."""
    return msgspec.structs.fields(cls)
