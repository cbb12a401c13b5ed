"""The options of an ``App`` that each front end needs."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final, Literal

FrontEnd = Literal["copilotkit", "assistant-ui", "tanstack", "tdesign"]

_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    # The routes, interrupts for ``useLangGraphInterrupt``, A2UI.
    "copilotkit": {"copilotkit": True, "langgraph_interrupts": True, "capabilities": {"custom": {"a2ui": True}}},
    "assistant-ui": {},
    # Its client sends the messages of an answer back as one.
    "tanstack": {"history": "server"},
    # Tencent's TDesign Chat sends only what the page puts into the request, which is the new message.
    "tdesign": {"history": "server"},
}


def front_end_options(name: FrontEnd) -> dict[str, Any]:
    """Return the options of ``App`` that the pages of a front end need: ``App(agent, **front_end_options("tdesign"))``.

    To change one of them, replace it in the dict: ``front_end_options("tdesign") | {"history": "client"}``.
    Raises ``ValueError`` for an unknown name.
    """
    if name not in _OPTIONS:
        raise ValueError(f"unknown front end {name!r}; use one of {', '.join(_OPTIONS)}")
    return deepcopy(_OPTIONS[name])
