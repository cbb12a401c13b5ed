"""Treat the errors of MCP servers in a run. The packages of MCP need not be installed."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.toolsets import WrapperToolset
from pydantic_ai.toolsets.abstract import ToolsetTool


@runtime_checkable
class MCPConnection(Protocol):
    """The public attributes by which an ``MCPToolset`` is recognized."""

    tool_error_behavior: str
    max_retries: int | None


class ServerInRun(WrapperToolset[Any]):
    """An MCP server in a run: its errors are results, as those of an own tool, unless it has ``max_retries``.

    An ``MCPToolset`` raises ``ModelRetry``, which ends the run at the second error of a tool.
    """

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
