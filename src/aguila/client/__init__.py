"""Call any AG-UI agent: ``AsyncClient`` for asyncio, ``Client`` without.

The logic is written once, as programs without I/O (``thread``, ``streaming``); ``drivers`` perform their actions.
"""

from aguila.chat.tools import FunctionTool, ToolError, tool
from aguila.client.async_client import AsyncClient, AsyncClientRun, AsyncThread
from aguila.client.chat import ChatClient, ChatOptions, ChatResponse, ChatStream
from aguila.client.files import part
from aguila.client.interrupts import GIVE_UP, approve, deny
from aguila.client.middleware import FilterToolCalls, Record, Stage, on_event, on_input
from aguila.client.requests.branches import ThreadRun, ThreadTree
from aguila.client.requests.threads import ThreadInfo
from aguila.client.runs.run import RunResult
from aguila.client.streaming.reconnect_policy import Reconnect
from aguila.client.sync_client import Client, ClientRun, Thread
from aguila.client.transports.base import Timeouts

__all__ = [
    "GIVE_UP",
    "AsyncClient",
    "AsyncClientRun",
    "AsyncThread",
    "ChatClient",
    "ChatOptions",
    "ChatResponse",
    "ChatStream",
    "Client",
    "ClientRun",
    "FilterToolCalls",
    "FunctionTool",
    "Reconnect",
    "Record",
    "RunResult",
    "Stage",
    "Thread",
    "ThreadInfo",
    "ThreadRun",
    "ThreadTree",
    "Timeouts",
    "ToolError",
    "approve",
    "deny",
    "on_event",
    "on_input",
    "part",
    "tool",
]
