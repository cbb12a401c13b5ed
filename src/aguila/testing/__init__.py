"""Layer: testing. What Aguila's own tests use and a user's tests may use too.

May import every other layer; no other layer but ``cli`` imports it. Names are found when they are first used, so that
importing this package loads nothing. Hypothesis strategies are in ``aguila.testing.strategies`` (needs the ``testing``
extra); the pytest plugin, ``plugin``, loads itself.
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

_HOMES = {
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
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
