"""Use an MCP server in an agent: its questions are asked of the user, its progress and pages are shown.

In a run, a server has a session of its own, and makes one call at a time: so a question belongs to a call. A question
(elicitation) ends the run as ``run.ask`` does. The run that brings the answer makes the call again and gives the server
the recorded answer, so a server that acts before it asks acts twice.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shlex
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any, cast
from urllib.parse import urlsplit

from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport
from pydantic_ai import RunContext, ToolReturn
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.toolsets.abstract import ToolsetTool

from aguila.agent.handles import ActivityHandle
from aguila.agent.questions import InterruptCancelled
from aguila.agent.run import Run
from aguila.codec.json.values import is_object
from aguila.codec.logs import log_fields

__all__ = ["MCPServer"]

_log = logging.getLogger("aguila")

PROGRESS = "mcp-progress"
"""The type of the activity that shows the progress of a call."""

APP = "mcp-apps"
"""The type of the activity that carries the page (``ui://``) of a tool, as CopilotKit's pages read it."""

STARTS_WITHIN = 60.0
"""Seconds that a server has to start, by default. ``npx`` may have to download it."""

_APP_METADATA = "mcp_app"
_CONSENT: dict[str, Any] = {"type": "object", "properties": {}}


class MCPServer(MCPToolset[Any]):
    """An MCP server: a URL of streamable HTTP or SSE, or a command that is started for each run (stdio).

    It is a toolset of pydantic-ai, so ``approval_required``, ``filtered`` and ``prefixed`` apply. ``options`` are those
    of ``MCPToolset``, such as ``headers``, ``auth`` and ``tool_error_behavior``.
    """

    def __init__(self, server: str | Sequence[str], *, id: str | None = None, **options: Any) -> None:  # noqa: A002
        self.server = server
        self.options: dict[str, Any] = {"id": id, "init_timeout": STARTS_WITHIN, **options}
        super().__init__(_connection(server), **self.options)  # pyright: ignore[reportUnknownMemberType] - types of httpx

    def for_run_of(self, run: Run) -> MCPToolset[Any]:
        """Return the server as one run uses it."""
        return _RunServer(self.server, self.options, run)


def _connection(server: str | Sequence[str]) -> Any:
    """Return what to connect to. Each session of a command has a process of its own."""
    if isinstance(server, str) and server.startswith(("http://", "https://")):
        return server
    words = _words(server)
    if words and re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://", words[0]):
        raise ValueError(f"the URL of an MCP server begins with http:// or https://, not {words[0].split(':')[0]}://")
    if not words:
        raise ValueError(
            "an MCP server is a URL or a command, such as 'npx -y @modelcontextprotocol/server-everything'"
        )
    return StdioTransport(words[0], words[1:], keep_alive=False)


def _words(server: str | Sequence[str]) -> list[str]:
    return shlex.split(server) if isinstance(server, str) else list(server)


def _label(server: str | Sequence[str], name: str | None) -> str:
    """Return what errors call a server: its id, its URL without credentials, or its command."""
    if name is None and isinstance(server, str) and server.startswith(("http://", "https://")):
        url = urlsplit(server)
        name = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"
    if name is None:
        name = server if isinstance(server, str) else shlex.join(server)
    return f"the MCP server {name!r}"


class _RunServer(MCPToolset[Any]):
    """The session of one run. What the server sends during a call is handled by the task of that call."""

    def __init__(self, server: str | Sequence[str], options: dict[str, Any], run: Run) -> None:
        self.run = run
        self.shown_label = _label(server, options["id"])
        self.one_call = asyncio.Lock()
        self.received: asyncio.Queue[Callable[[], Awaitable[None]] | None] = asyncio.Queue()
        self.call_name = ""
        self.activity: ActivityHandle | None = None
        own: dict[str, Any] = {"elicitation_handler": self.receive_question, "progress_handler": self.receive_progress}
        own.update(options)
        super().__init__(_connection(server), **own)  # pyright: ignore[reportUnknownMemberType] - as above
        # A modern session (MCP 2026) has no connection on which a server could ask during a call. Servers that know it
        # know the handshake, too.
        self.client.mode = "legacy"
        self.shown_name = self.id or PurePath(_words(server)[0]).name

    @property
    def label(self) -> str:
        """The name of the server in errors."""
        return self.shown_label

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call a tool; ask what the server asks meanwhile."""
        async with self.one_call:
            received = self.received = asyncio.Queue()
            self.call_name, self.activity = name, None
            call = asyncio.create_task(super().call_tool(name, tool_args, ctx, tool))
            call.add_done_callback(lambda _: received.put_nowait(None))
            try:
                while (handle := await received.get()) is not None:
                    await handle()
            finally:
                call.cancel()  # a question ends the run: the call is made again with the answer
                await asyncio.wait({call})
            result: Any = call.result()
            found: Any = cast("Any", result).metadata if isinstance(result, ToolReturn) else None
            if is_object(found) and is_object(app := found.get(_APP_METADATA)):
                await self._show_app(app)
            return cast("Any", result)

    async def receive_question(self, message: str, response_type: Any, params: Any, context: Any) -> Any:
        """Handle ``elicitation/create``."""
        answer: asyncio.Future[ElicitResult[Any]] = asyncio.get_running_loop().create_future()
        self.received.put_nowait(partial(self._ask, message, params, answer))
        return await answer

    async def _ask(self, message: str, params: Any, answer: asyncio.Future[ElicitResult[Any]]) -> None:
        schema = getattr(params, "requested_schema", None)
        url = getattr(params, "url", None)
        # First the origin, which the server cannot write: one server must not pose as another, or as the agent. Users
        # do not see the arguments of a command, which may be secret.
        message = f"The tool {self.call_name!r} of the MCP server {self.shown_name!r} asks:\n{message}"
        if url is not None:
            message = f"{message}\n{url}"
        try:
            content = await self.run.ask(message, schema=_CONSENT if schema is None else schema)
        except InterruptCancelled:
            answer.set_result(ElicitResult(action="cancel"))
        else:
            answer.set_result(ElicitResult(action="accept", content=content if schema is not None else None))

    async def receive_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Handle ``notifications/progress``."""
        content = {"tool": self.call_name, "progress": progress, "total": total, "message": message}
        self.received.put_nowait(partial(self._show_progress, {k: v for k, v in content.items() if v is not None}))

    async def _show_progress(self, content: dict[str, Any]) -> None:
        if self.activity is None:
            self.activity = await self.run.activity(PROGRESS, content)
        else:
            await self.activity.update(content)

    async def _show_app(self, app: dict[str, Any]) -> None:
        uri = app["resource_uri"]
        content: dict[str, Any] = {"resourceUri": uri, "toolInput": app["tool_input"], "result": app["result"]}
        if app.get("toolset_id") is not None:
            content["serverId"] = app["toolset_id"]
        try:
            content["resource"] = await self.read_resource_for_app(uri)
        except Exception as error:  # noqa: BLE001 - any failure of the server: the result itself is good
            _log.warning("cannot read %s of the MCP server", uri, exc_info=error, extra=log_fields())
        await self.run.activity(APP, content)
