"""The options of an ``App`` that each front end needs. They are defined in the module of the front end."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final, Literal

from aguila.server.frontends import assistant_ui, copilotkit, tanstack, tdesign

FrontEnd = Literal["copilotkit", "assistant-ui", "tanstack", "tdesign"]

_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "copilotkit": copilotkit.APP_OPTIONS,
    "assistant-ui": assistant_ui.APP_OPTIONS,
    "tanstack": tanstack.APP_OPTIONS,
    "tdesign": tdesign.APP_OPTIONS,
}


def front_end_options(name: FrontEnd) -> dict[str, Any]:
    """Return the options of ``App`` that the pages of a front end need: ``App(agent, **front_end_options("tdesign"))``.

    To change one of them, replace it in the dict: ``front_end_options("tdesign") | {"history": "client"}``.
    Raises ``ValueError`` for an unknown name.
    """
    if name not in _OPTIONS:
        raise ValueError(f"unknown front end {name!r}; use one of {', '.join(_OPTIONS)}")
    return deepcopy(_OPTIONS[name])
