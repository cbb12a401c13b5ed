"""The agents of an app by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from aguila.agent.agents import check_agent
from aguila.store import DEFAULT_AGENT

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,63}")


def named_agents(agents: Any) -> dict[str, Any]:
    """Map each agent of an app to its name; a single agent is named ``default``.

    Raises ``TypeError`` for an agent that cannot be called with a run, ``ValueError`` for a name that is not safe in a
    URL path, or for no agents at all.
    """
    if not isinstance(agents, Mapping):
        check_agent(agents)
        return {DEFAULT_AGENT: agents}
    found = dict(cast("Mapping[Any, Any]", agents))
    if not found:
        raise ValueError('an App needs at least one agent: App(agent), or App({"default": agent})')
    for name, agent in found.items():
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise ValueError(
                f"{name!r} cannot name an agent: use 1 to 64 of A-Z a-z 0-9 . _ ~ -, and begin with a letter or digit"
            )
        check_agent(agent)
    return found
