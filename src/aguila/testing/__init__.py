"""Tools to test agents, clients and stores; Aguila's own tests use them, too.

Names are imported when they are first used. Hypothesis strategies are in ``aguila.testing.strategies`` (extra
``testing``). pytest loads ``plugin``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aguila.stream.verification.checker import Finding, judge
    from aguila.testing.assertions import StreamAssertion, assert_stream
    from aguila.testing.chaos import Chaos
    from aguila.testing.client import ClientMaker, client_for, sync_client_for
    from aguila.testing.scripted import Approve, Ask, Call, ScriptedAgent, Wait
    from aguila.testing.store_contract import StoreContract

__all__ = [
    "Approve",
    "Ask",
    "Call",
    "Chaos",
    "ClientMaker",
    "Finding",
    "ScriptedAgent",
    "StoreContract",
    "StreamAssertion",
    "Wait",
    "assert_stream",
    "client_for",
    "judge",
    "sync_client_for",
]

_MODULES = {
    "Approve": "aguila.testing.scripted",
    "Ask": "aguila.testing.scripted",
    "Call": "aguila.testing.scripted",
    "Chaos": "aguila.testing.chaos",
    "ClientMaker": "aguila.testing.client",
    "Finding": "aguila.stream.verification.checker",
    "ScriptedAgent": "aguila.testing.scripted",
    "StoreContract": "aguila.testing.store_contract",
    "StreamAssertion": "aguila.testing.assertions",
    "Wait": "aguila.testing.scripted",
    "assert_stream": "aguila.testing.assertions",
    "client_for": "aguila.testing.client",
    "judge": "aguila.stream.verification.checker",
    "sync_client_for": "aguila.testing.client",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
