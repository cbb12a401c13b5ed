"""CopilotKit's runtime contract (1.75, mode "sse"), so that a CopilotKit page needs no Node process.

``routes`` has the table of routes and their handlers, ``envelope`` the single endpoint, ``documents`` the JSON that the
page reads, ``mount`` the path below which all of it is served.
"""

from aguila.server.copilotkit.mount import CopilotKit

__all__ = ["CopilotKit"]
