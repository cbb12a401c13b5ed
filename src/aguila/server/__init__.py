"""Serve agents as an ASGI application with durable runs. Needs the ``server`` extra.

Names are imported when they are first used, so that a module of this package can be imported alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aguila.server.app import App
    from aguila.server.config.errors import Rejected
    from aguila.server.config.limits import Limits, Quota
    from aguila.server.config.options import Sends, Timing, Trust
    from aguila.server.frontends.metrics import Metrics
    from aguila.server.frontends.options import front_end_options
    from aguila.server.frontends.page.options import Page
    from aguila.server.http.access import ANONYMOUS, Principal
    from aguila.server.http.request import Request

__all__ = [
    "ANONYMOUS",
    "App",
    "Limits",
    "Metrics",
    "Page",
    "Principal",
    "Quota",
    "Rejected",
    "Request",
    "Sends",
    "Timing",
    "Trust",
    "front_end_options",
]

_MODULES = {
    "ANONYMOUS": "http.access",
    "App": "app",
    "Limits": "config.limits",
    "Metrics": "frontends.metrics",
    "Page": "frontends.page.options",
    "Principal": "http.access",
    "Quota": "config.limits",
    "Rejected": "config.errors",
    "Request": "http.request",
    "Sends": "config.options",
    "Timing": "config.options",
    "Trust": "config.options",
    "front_end_options": "frontends.options",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
