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

    Later ones are merged over earlier ones, member by member. ``name`` is that of one of several agents, which
    ``override`` does not replace: its name is that of the app. Raises ``DecodeError`` if the result is malformed.
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
    merged = msgspec.to_builtins(derived)
    if (own := getattr(agent, "capabilities", None)) is not None:
        merged = _merge(merged, msgspec.to_builtins(own))
    if override is not None:
        named = {} if name is None else {"identity": {"name": merged["identity"]["name"]}}
        merged = _merge(_merge(merged, msgspec.to_builtins(override)), named)
    return decode(encode(merged), AgentCapabilities)


def _merge(base: Any, over: Any) -> Any:
    if not (is_object(base) and is_object(over)):
        return over
    return {**base, **{key: _merge(base.get(key), value) for key, value in over.items()}}
