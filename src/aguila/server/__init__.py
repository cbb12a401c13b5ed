"""Serve agents as an ASGI application with durable runs. Needs the ``server`` extra.

Names are imported when they are first used, so that a module of this package can be imported alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aguila.server.access.authentication import ANONYMOUS, Principal
    from aguila.server.app import App
    from aguila.server.errors import Rejected
    from aguila.server.front_ends import front_end_options
    from aguila.server.limits import Limits
    from aguila.server.page.options import Page
    from aguila.server.request import Request

__all__ = ["ANONYMOUS", "App", "Limits", "Page", "Principal", "Rejected", "Request", "front_end_options"]

_MODULES = {
    "ANONYMOUS": "access.authentication",
    "App": "app",
    "Limits": "limits",
    "Page": "page.options",
    "Principal": "access.authentication",
    "Rejected": "errors",
    "Request": "request",
    "front_end_options": "front_ends",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
