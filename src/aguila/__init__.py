"""Aguila: the complete AG-UI stack for Python.

The few names most users need. They are found when they are first used, so that ``import aguila.protocol`` stays light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aguila.agent import Run
    from aguila.chat import ToolError, tool
    from aguila.client import AsyncClient, ChatClient, Client
    from aguila.server import App, Page

__version__ = "0.1.0"

__all__ = ["App", "AsyncClient", "ChatClient", "Client", "Page", "Run", "ToolError", "__version__", "tool"]

_HOMES = {
    "App": ("aguila.server", "server"),
    "AsyncClient": ("aguila.client", "client"),
    "ChatClient": ("aguila.client", "client"),
    "Client": ("aguila.client", "client"),
    "Page": ("aguila.server", "server"),
    "Run": ("aguila.agent", None),
    "ToolError": ("aguila.chat", None),
    "tool": ("aguila.chat", None),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, extra = _HOMES[name]
    try:
        return getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        package = error.name or ""
        if extra is None or package.partition(".")[0] == "aguila":
            raise
        from aguila.errors import MissingExtra

        raise MissingExtra(extra, package) from None  # a second traceback would hide what to install
