"""Layer: chat. The names under which what chat types have no field for is kept in ``additional_properties``.

One spelling for client and server (#3475). Below: nothing. Above: every mapping of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

THREAD_ID: Final = "ag_ui_thread_id"
"""The thread: on updates, and on options that continue one."""
RUN_ID: Final = "ag_ui_run_id"
"""The run."""
CONTENT_ID: Final = "ag_ui_content_id"
"""The id of a part, or of an uploaded file that it refers to."""
REQUIRES_RESOLUTION: Final = "ag_ui_requires_resolution"
"""True on a reference that somebody has to turn into bytes: an id that no provider is named for."""
FILENAME: Final = "filename"
"""The name of a file."""
METADATA: Final = "ag_ui_metadata"
"""The protocol's metadata of a message, part, tool call, event or interrupt, without the file name."""
PART_KIND: Final = "ag_ui_part_kind"
"""The kind of a part (``image``, ``document`` ...) where its media type does not tell."""
PROVIDER: Final = "ag_ui_provider"
"""Whose file store a handle belongs to."""
ENCRYPTED_VALUE: Final = "ag_ui_encrypted_value"
"""An opaque artefact of the producer, to be returned unchanged (ENC-1)."""
ENCRYPTED_VALUE_TYPE: Final = "ag_ui_encrypted_value_type"
"""What kind of artefact it is (ENC-4)."""
PAYLOAD: Final = "ag_ui_payload"
"""What the answer to a question for approval said besides: the members of its payload that have no field."""
SUBAGENT_RUN_ID: Final = "ag_ui_subagent_run_id"
"""The subagent that a message or update comes from."""

_OLD_THREAD_ID: Final = "agui_thread_id"  # read, never written


def thread_id_of(properties: Mapping[str, Any]) -> str | None:
    """The thread id in some additional properties, in the old spelling if there is no other (#3475)."""
    return _text(properties.get(THREAD_ID, properties.get(_OLD_THREAD_ID)))


def run_id_of(properties: Mapping[str, Any]) -> str | None:
    """The run id in some additional properties."""
    return _text(properties.get(RUN_ID))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
