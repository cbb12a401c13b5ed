"""Read the request that a run was started with."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from aguila.codec import decode
from aguila.codec.compat import Level
from aguila.codec.json.bounded_floats import decode_json
from aguila.codec.json.decoder import decode_excised
from aguila.codec.json.large_strings import excise_strings
from aguila.codec.notices import Notice
from aguila.offload import LARGE, LARGE_JSON, offload
from aguila.protocol import RunAgentInput, replace
from aguila.server.limits import UNLIMITED
from aguila.store import RunRecord, Store


class _Declared(msgspec.Struct, rename="camel"):
    protocol_version: Any = None


async def load_input(store: Store, run: RunRecord) -> RunAgentInput:
    """Read the request that a run was started with, under the run's stored id. A large one is decoded in a thread."""
    body = await store.input(run.scope, run.thread_id, run.run_id)
    found = await offload(decode_body, body) if len(body) > LARGE_JSON else decode_body(body)
    return found if found.run_id == run.run_id else replace(found, run_id=run.run_id)


def decode_body(body: bytes) -> RunAgentInput:
    """Decode a stored request as it was sent. Without a protocolVersion, older shapes are read (VER-18)."""
    short = excise_strings(body) if len(body) > LARGE else None
    is_old = _is_old(body) if short is None else _is_old(short.text, body)
    level: Level = "wide" if is_old else "standard"
    if short is not None:
        return decode_excised(short, RunAgentInput, compat=level, warn=_ignore)
    return decode(body, RunAgentInput, compat=level, warn=_ignore, max_size=UNLIMITED)


def _is_old(*texts: bytes) -> bool:
    for text in texts:
        with suppress(msgspec.DecodeError, UnicodeError):
            return decode_json(text, _Declared).protocol_version is None
    return True  # text that only the tolerant decoder reads


def _ignore(notice: Notice) -> None:
    """Drop a notice: it was reported when the request arrived."""
