"""An agent whose model calls tools of the reference MCP servers of npm, one in each round."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from processes.node import node_path
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from aguila.frameworks import pydantic_ai
from aguila.frameworks.pydantic_ai.mcp import MCPServer

FOLDER = Path(__file__).parents[2] / "interop" / "mcp"


def node_server(name: str, *args: str) -> list[str]:
    """Return the command of a reference server."""
    return [node_path(FOLDER), str(FOLDER / "node_modules" / ".bin" / name), *args]


def calling(*calls: tuple[str, dict[str, Any]]) -> FunctionModel:
    """Make a model that calls tools, one in each round, and then says what the last one returned."""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        returned = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        if len(returned) < len(calls):
            name, args = calls[len(returned)]
            assert name in {tool.name for tool in info.function_tools}, "the server offers the tool"
            yield {0: DeltaToolCall(name, json.dumps(args), tool_call_id=f"call-{len(returned)}")}
        else:
            yield f"It returned: {returned[-1].model_response_str()[:200]}"

    return FunctionModel(stream_function=answer)


def tour(folder: Path) -> Any:
    """Make an agent that shows progress, an image and a question of ``everything``, and writes a file if it may."""
    everything = MCPServer(node_server("mcp-server-everything", "stdio"), id="everything")
    files = MCPServer(node_server("mcp-server-filesystem", str(folder)), id="files")
    model = calling(
        ("trigger-long-running-operation", {"duration": 0.3, "steps": 3}),
        ("get-tiny-image", {}),
        ("trigger-elicitation-request", {}),
        ("write_file", {"path": str(folder / "note.txt"), "content": "eagles"}),
    )
    asking = files.approval_required(lambda ctx, tool, args: tool.name == "write_file")
    return pydantic_ai.agent(Agent(model, toolsets=[everything, asking]))
