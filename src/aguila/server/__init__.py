"""Layer: server. An agent as an ASGI application: durable runs that anyone with the right scope can come back to.

Below: ``aguila.agent`` and ``aguila.store``. Needs the ``server`` extra. Names are found when they are first used, so
that a module of this package can be imported alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aguila.server.app import App
    from aguila.server.auth import ANONYMOUS, Principal, Request
    from aguila.server.errors import Rejected
    from aguila.server.limits import Limits

__all__ = ["ANONYMOUS", "App", "Limits", "Principal", "Rejected", "Request"]

_HOMES = {
    "ANONYMOUS": "auth",
    "App": "app",
    "Limits": "limits",
    "Principal": "auth",
    "Rejected": "errors",
    "Request": "auth",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
