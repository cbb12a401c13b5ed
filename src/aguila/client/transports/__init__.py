"""Transports, which carry a client's requests.

Each name is imported when it is first used, because some need an extra (``client`` for httpx2, ``aiohttp``).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aguila.client.transports.aiohttp import AiohttpTransport
    from aguila.client.transports.asgi import ASGITransport
    from aguila.client.transports.base import (
        AsyncResponse,
        AsyncTransport,
        Request,
        Response,
        Timeouts,
        Transport,
    )
    from aguila.client.transports.httpx2 import AsyncHTTPX2Transport, HTTPX2Transport
    from aguila.client.transports.recorded import AsyncRecordedTransport, RecordedTransport
    from aguila.client.transports.threaded import ThreadedTransport

__all__ = [
    "ASGITransport",
    "AiohttpTransport",
    "AsyncHTTPX2Transport",
    "AsyncRecordedTransport",
    "AsyncResponse",
    "AsyncTransport",
    "HTTPX2Transport",
    "RecordedTransport",
    "Request",
    "Response",
    "ThreadedTransport",
    "Timeouts",
    "Transport",
]

_MODULES = {
    "ASGITransport": "asgi",
    "AiohttpTransport": "aiohttp",
    "AsyncHTTPX2Transport": "httpx2",
    "AsyncRecordedTransport": "recorded",
    "HTTPX2Transport": "httpx2",
    "RecordedTransport": "recorded",
    "ThreadedTransport": "threaded",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'base')}"), name)
