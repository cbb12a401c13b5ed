"""Derive the capabilities of an agent from the configuration of its app. Only supported ones are declared (CAP-3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from aguila.codec import decode, encode
from aguila.codec.json.values import is_object
from aguila.codec.protobuf import has_protobuf
from aguila.protocol import (
    AgentCapabilities,
    HumanInTheLoopCapabilities,
    IdentityCapabilities,
    StateCapabilities,
    ToolsCapabilities,
    TransportCapabilities,
)


def derive_capabilities(
    *,
    name: str | None,
    is_durable: bool,
    agent: object,
    override: AgentCapabilities | Mapping[str, Any] | None,
) -> AgentCapabilities:
    """Merge the capabilities of the server, those of the agent's ``capabilities`` attribute, and ``override``.

    Later ones are merged over earlier ones, member by member. Raises ``DecodeError`` if the result is malformed.
    """
    derived = AgentCapabilities(
        identity=None if name is None else IdentityCapabilities(name=name),
        transport=TransportCapabilities(streaming=True, http_binary=has_protobuf(), resumable=True),
        tools=ToolsCapabilities(client_provided=True),
        state=StateCapabilities(snapshots=True, deltas=True, persistent_state=is_durable),
        human_in_the_loop=HumanInTheLoopCapabilities(
            supported=True, approvals=True, interrupts=True, approve_with_edits=True
        ),
    )
    given = [more for more in (getattr(agent, "capabilities", None), override) if more is not None]
    if not given:
        return derived
    merged = msgspec.to_builtins(derived)
    for more in given:
        merged = _merge(merged, msgspec.to_builtins(more))
    return decode(encode(merged), AgentCapabilities)


def _merge(base: Any, over: Any) -> Any:
    if not (is_object(base) and is_object(over)):
        return over
    return {**base, **{key: _merge(base.get(key), value) for key, value in over.items()}}
