"""Tools to test agents and clients; Aguila's own tests use them, too.

Names are imported when they are first used. Hypothesis strategies are in ``aguila.testing.strategies`` (extra
``testing``). pytest loads ``plugin``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aguila.testing.assertions import StreamAssertion, assert_stream
    from aguila.testing.chaos import Chaos
    from aguila.testing.checker import Finding, judge
    from aguila.testing.client import ClientMaker, client_for, sync_client_for
    from aguila.testing.scripted import Approve, Ask, Call, ScriptedAgent, Wait

__all__ = [
    "Approve",
    "Ask",
    "Call",
    "Chaos",
    "ClientMaker",
    "Finding",
    "ScriptedAgent",
    "StreamAssertion",
    "Wait",
    "assert_stream",
    "client_for",
    "judge",
    "sync_client_for",
]

_MODULES = {
    "Approve": "scripted",
    "Ask": "scripted",
    "Call": "scripted",
    "Chaos": "chaos",
    "ClientMaker": "client",
    "Finding": "checker",
    "ScriptedAgent": "scripted",
    "StreamAssertion": "assertions",
    "Wait": "scripted",
    "assert_stream": "assertions",
    "client_for": "client",
    "judge": "checker",
    "sync_client_for": "client",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
