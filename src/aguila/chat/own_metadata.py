"""Aguila's own members in the protocol's metadata: ``metadata["aguila"]`` (META-3).

Metadata of an event that builds a message becomes the message's metadata and comes back in every later input (META-5).
So data that the model needs again is stored here.

=============  ==================  ====================================================================================
on             member              meaning
=============  ==================  ====================================================================================
tool message   ``error``           the error of the call; the event has no member for it
tool message   ``arguments``       the arguments that the call was made with, if the user edited them
assistant's    ``order``           the order of texts and calls: text lengths and call ids, up to the last text
assistant's    ``citations``       the sources of the text, and their positions in it
part           ``spelling``        ``binary`` if a part of an input was a binary part
tool call      ``before``          the id of the call that the model made after this one, if this one was sent later
interrupt      ``replay``          false in the store for one that the agent passes on; never sent
=============  ==================  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aguila.codec.json.values import is_object

OWN: Final = "aguila"
"""The metadata key."""


def add_own_metadata(metadata: Mapping[str, Any] | None, **members: Any) -> dict[str, Any] | None:
    """Add our members to metadata, except those that are None. Returns None if the result is empty."""
    own = {name: value for name, value in members.items() if value is not None}
    if not own:
        return None if metadata is None else dict(metadata)
    return {**(metadata or {}), OWN: {**read_own_metadata(metadata), **own}}


def read_own_metadata(metadata: Any) -> dict[str, Any]:
    """Return our members. The client may have written them: check their values."""
    own: Any = metadata.get(OWN) if is_object(metadata) else None
    return own if is_object(own) else {}
