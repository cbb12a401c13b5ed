"""Read the request that a run was started with."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from aguila.codec import decode
from aguila.codec.compat import Level
from aguila.codec.json.bounded_floats import decode_json
from aguila.codec.notices import ignore_notice
from aguila.offload import LARGE, offload
from aguila.protocol import RunAgentInput, replace
from aguila.server.config.limits import UNLIMITED
from aguila.store import RunRecord, Store


class _Declared(msgspec.Struct, rename="camel"):
    protocol_version: Any = None


async def load_request(store: Store, run: RunRecord) -> RunAgentInput:
    """Read the request that a run was started with, under the run's stored id. A large one is decoded in a thread."""
    body = await store.request(run.key)
    found = await offload(decode_body, body) if len(body) > LARGE else decode_body(body)
    return found if found.run_id == run.run_id else replace(found, run_id=run.run_id)


def decode_body(body: bytes) -> RunAgentInput:
    """Decode a stored request as it was sent. Without a protocolVersion, older shapes are read (VER-18)."""
    level: Level = "wide"  # also for text that only the tolerant decoder reads
    with suppress(msgspec.DecodeError, UnicodeError):
        if decode_json(body, _Declared).protocol_version is not None:
            level = "standard"
    return decode(body, RunAgentInput, compat=level, warn=ignore_notice, max_size=UNLIMITED)
