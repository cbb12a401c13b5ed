"""An MCP server over stdio: a tool with a page, one that acts before it asks, one that only asks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("shop")
log = Path(sys.argv[1])


class Size(BaseModel):
    size: int


def note(text: str) -> None:
    with log.open("a") as file:
        file.write(text + "\n")


@server.tool(meta={"ui": {"resourceUri": "ui://shop/cart"}})
def show_cart() -> str:
    return "two eagles"


@server.resource("ui://shop/cart", mime_type="text/html;profile=mcp-app")
def cart() -> str:
    return "<p>two eagles</p>"


@server.tool()
async def order(item: str, context: Context[Any, Any]) -> str:
    note(f"reserved {item}")
    answer = await context.elicit(f"Which size of {item}?", Size)
    if answer.action != "accept":
        return f"not ordered: {answer.action}"
    note(f"ordered {item} {answer.data.size}")
    return f"ordered {item} in size {answer.data.size}"


server.run()
