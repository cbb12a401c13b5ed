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
RUN_STARTED    ``notices``         what was changed or left out of the request: ``rule``, ``message``, ``path``
RUN_STARTED    ``traceparent``     the span of a run that is traced, as in the HTTP header
=============  ==================  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aguila.codec.json.values import is_array, is_object
from aguila.codec.notices import MAX_NOTICES, Notice

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


def start_metadata(notices: Sequence[Notice], traceparent: str | None) -> dict[str, Any] | None:
    """Return the metadata of a RUN_STARTED: the first of the notices about its request, and the span of the run."""
    told = [{"rule": one.rule, "message": one.message, "path": one.path} for one in notices if not one.is_routine]
    return add_own_metadata(None, notices=told[:MAX_NOTICES] or None, traceparent=traceparent)


def read_notices(metadata: Any) -> list[Notice]:
    """Return the notices that a server reports with RUN_STARTED. Those that are malformed are ignored."""
    told: Any = read_own_metadata(metadata).get("notices")
    return [
        Notice(rule=one["rule"], message=one["message"], path=one["path"], event_type="RUN_STARTED")
        for one in (told[:MAX_NOTICES] if is_array(told) else ())
        if is_object(one) and all(isinstance(one.get(name), str) for name in ("rule", "message", "path"))
    ]
