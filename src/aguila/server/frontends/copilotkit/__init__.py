"""CopilotKit's runtime contract (1.75, mode "sse"), so that a CopilotKit page needs no Node process.

``routes`` has the routes and their handlers, ``envelope`` the single endpoint, ``documents`` the JSON that the page
reads, ``front_end`` the path of the routes.
"""

from typing import Any, Final

from aguila.server.frontends.copilotkit.front_end import CopilotKit

__all__ = ["APP_OPTIONS", "CopilotKit"]

APP_OPTIONS: Final[dict[str, Any]] = {
    "copilotkit": True,
    "langgraph_interrupts": True,
    "capabilities": {"custom": {"a2ui": True}},
}
"""What an app needs to serve CopilotKit pages: the routes, interrupts for ``useLangGraphInterrupt``, A2UI."""
