"""Treat the errors of MCP servers in a run. The packages of MCP need not be installed."""

from __future__ import annotations

import logging
from typing import Any, Protocol, Self, runtime_checkable

from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.toolsets import WrapperToolset
from pydantic_ai.toolsets.abstract import ToolsetTool

from aguila.codec.logs import log_fields
from aguila.errors import RunFailed

_log = logging.getLogger("aguila")


@runtime_checkable
class MCPConnection(Protocol):
    """The public attributes by which an ``MCPToolset`` is recognized."""

    tool_error_behavior: str
    max_retries: int | None


class ServerInRun(WrapperToolset[Any]):
    """An MCP server in a run: its errors are results, as those of an own tool, unless it has ``max_retries``.

    An ``MCPToolset`` raises ``ModelRetry``, which ends the run at the second error of a tool. A server that cannot be
    started or reached fails the run with ``mcp_unavailable``, and the log names it.
    """

    async def __aenter__(self) -> Self:
        """Open the session."""
        try:
            return await super().__aenter__()
        except Exception as error:
            raise self._fail(error) from error

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools of the server."""
        try:
            return await super().get_tools(ctx)
        except Exception as error:
            raise self._fail(error) from error

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Call a tool of the server."""
        try:
            return await super().call_tool(name, tool_args, ctx, tool)
        except ModelRetry as error:
            if getattr(self.wrapped, "max_retries", None) is not None:
                raise
            raise ToolFailed(error.message) from error

    def _fail(self, error: Exception) -> RunFailed:
        advice = "check its command or URL, and whether it starts alone"
        _log.error("cannot use %s: %s; %s", self.wrapped.label, error, advice, extra=log_fields())
        return RunFailed("An MCP server of the agent is not available.", code="mcp_unavailable")
