"""Names in ``additional_properties`` for AG-UI data that chat types have no field for.

Client and server use the same names (#3475).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

THREAD_ID: Final = "ag_ui_thread_id"
"""The thread id, on updates and on options that continue a thread."""
RUN_ID: Final = "ag_ui_run_id"
"""The run id."""
CONTENT_ID: Final = "ag_ui_content_id"
"""The id of a part, or of the uploaded file that it refers to."""
REQUIRES_RESOLUTION: Final = "ag_ui_requires_resolution"
"""True on a file reference without a provider: it has to be resolved to bytes."""
FILENAME: Final = "filename"
"""The file name."""
METADATA: Final = "ag_ui_metadata"
"""The protocol's metadata of a message, part, tool call, event or interrupt, without the file name."""
PART_KIND: Final = "ag_ui_part_kind"
"""The kind of a part (``image``, ``document`` ...) if its media type does not determine it."""
PROVIDER: Final = "ag_ui_provider"
"""The provider whose file store has the file."""
ENCRYPTED_VALUE: Final = "ag_ui_encrypted_value"
"""An opaque value of the producer, to be sent back unchanged (ENC-1)."""
ENCRYPTED_VALUE_TYPE: Final = "ag_ui_encrypted_value_type"
"""The type of the opaque value (ENC-4)."""
PAYLOAD: Final = "ag_ui_payload"
"""Members of an approval's payload that have no field."""
SUBAGENT_RUN_ID: Final = "ag_ui_subagent_run_id"
"""The subagent that a message or update comes from."""

_OLD_THREAD_ID: Final = "agui_thread_id"  # read, never written


def thread_id_of(properties: Mapping[str, Any]) -> str | None:
    """Return the thread id, in the old spelling if there is no other (#3475)."""
    return _text(properties.get(THREAD_ID, properties.get(_OLD_THREAD_ID)))


def run_id_of(properties: Mapping[str, Any]) -> str | None:
    """Return the run id."""
    return _text(properties.get(RUN_ID))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
