"""Layer: protocol. What every wire type is made of.

Above: the modules of this package. Below: msgspec. Nothing here does I/O or knows an event.

Three decisions are made once, here, for every type:

* A field without a value is ``None`` and is never written (ENV-6). ``Maybe[T]`` spells such a field: a
  type checker reads it as ``T | None``, while msgspec sees plain ``T`` and so refuses a null on the wire
  at C speed. Nothing in the protocol is both omittable and nullable, so no third state is needed.
* Objects are closed (``forbid_unknown_fields``): an undescribed member is noticed for free, and only
  then does the decoder take the slower path that strips it with a warning (PROC-3).
* Objects are immutable values. ``replace(obj, field=...)`` makes a changed copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

if TYPE_CHECKING:
    from typing import Optional

    Maybe = Optional
    AnyJSON = Any
else:

    class Maybe:
        """``Maybe[T]`` is ``T`` to msgspec, so that null is refused where absence is meant."""

        def __class_getitem__(cls, item: Any) -> Any:
            return item

    # Any JSON value but a whole null (ENV-6: optional opaque fields are omitted, never null).
    AnyJSON = bool | int | float | str | list[Any] | dict[str, Any]

MAX_SAFE_INTEGER = 2**53 - 1
"""The largest integer that every peer can hold exactly (ENV-2, USE-6)."""

SafeInt = Annotated[int, msgspec.Meta(ge=-MAX_SAFE_INTEGER, le=MAX_SAFE_INTEGER)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_SAFE_INTEGER)]

Metadata = dict[str, Any]
"""Open by key; a null under a key is data (META-1)."""

replace = msgspec.structs.replace


class Wire(
    msgspec.Struct,
    # msgspec does not inherit kw_only and type checkers do not inherit frozen, so every class says both
    # again. A metaclass that said it for all would cost constructors their fast path (0.25 against 0.08 us).
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
    repr_omit_defaults=True,
):
    """The base of every object that has a place on the wire."""


class _TaggedMeta(msgspec.StructMeta):
    """Lets ``UserMessage(role="user", ...)`` say its own discriminator, as the official models do.

    Only for types that are not events, whose constructors are too hot for it.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        config: Any = cls.__struct_config__
        field, tag = config.tag_field, config.tag
        if field in kwargs:
            given = kwargs.pop(field)
            if given != tag:
                raise TypeError(f"{cls.__name__}.{field} is always {tag!r}, not {given!r}")
        return super().__call__(*args, **kwargs)


class Tagged(Wire, metaclass=_TaggedMeta, frozen=True, kw_only=True):
    """An object told from its siblings by one constant member (a role or a type)."""


class Phantom(Wire, tag_field="type", tag="\x00", frozen=True, kw_only=True):
    """A sibling that no peer can name.

    msgspec demands a tag only where there is a choice; a union with this makes ``type`` required where
    the protocol has a single value for it (``ToolCall.type``).
    """


def struct_fields(cls: type[msgspec.Struct]) -> Sequence[msgspec.structs.FieldInfo]:
    """The fields of a wire type, with their wire names and their requiredness."""
    return msgspec.structs.fields(cls)
