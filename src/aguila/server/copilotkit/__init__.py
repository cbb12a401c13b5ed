"""CopilotKit's runtime contract (1.75, mode "sse"), so that a CopilotKit page needs no Node process.

``routes`` has the routes and their handlers, ``envelope`` the single endpoint, ``documents`` the JSON that the page
reads, ``mount`` the path of the routes.
"""

from aguila.server.copilotkit.mount import CopilotKit

__all__ = ["CopilotKit"]
