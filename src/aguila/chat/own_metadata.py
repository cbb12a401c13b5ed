"""Layer: chat. What we say in the protocol's metadata where it has no member: ``metadata["aguila"]`` (META-3).

Below: nothing. Above: streams, tool calls of agents, providers. Metadata of an event that builds a message is the
message's, and comes back with it in every later input (META-5): so what the model has to know again stands here.

=============  ==================  ====================================================================================
on             member              means
=============  ==================  ====================================================================================
tool message   ``error``           the error that the call was answered with: the event has no member for it
tool message   ``arguments``       what the call was made with, if the user edited its arguments
assistant's    ``order``           how texts and calls were said: lengths of texts and ids of calls, up to the last text
assistant's    ``citations``       what the text rests on, and where in it
tool call      ``before``          the id of the call that the model made it before, if it was told after that one
=============  ==================  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aguila.codec.values import is_object

OWN: Final = "aguila"
"""The key."""


def with_own(metadata: Mapping[str, Any] | None, **members: Any) -> dict[str, Any] | None:
    """Metadata with these members of ours added, but for those that are None; None if there is nothing to say."""
    own = {name: value for name, value in members.items() if value is not None}
    if not own:
        return None if metadata is None else dict(metadata)
    return {**(metadata or {}), OWN: {**own_of(metadata), **own}}


def own_of(metadata: Any) -> dict[str, Any]:
    """What is ours in some metadata. Whoever sends a history may have written it: its values are to be checked."""
    own: Any = metadata.get(OWN) if is_object(metadata) else None
    return own if is_object(own) else {}
