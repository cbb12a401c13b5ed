"""MCP servers as toolsets: the reference servers of npm over stdio and HTTP, and one of the official SDK."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp.client.transports import StdioTransport
from models.mcp_agent import calling, node_server, tour
from ports import free_port
from processes.node import run_node
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.function import FunctionModel
from serving import serving
from waiting import wait_until

from aguila import App
from aguila.client import GIVE_UP, AsyncThread, approve
from aguila.errors import RunFailed
from aguila.frameworks import pydantic_ai
from aguila.frameworks.pydantic_ai.mcp import MCPServer
from aguila.protocol import ActivityMessage, ToolMessage
from aguila.testing import client_for

pytestmark = pytest.mark.anyio
SHOP = Path(__file__).parents[1] / "support" / "mcp_shop.py"
WRONG: tuple[str, dict[str, Any]] = ("order", {})
"""A call without its argument."""


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def app_of(model: FunctionModel, *toolsets: Any) -> App:
    return App(pydantic_ai.agent(Agent(model, toolsets=toolsets)), store=":memory:")


def results(thread: AsyncThread) -> list[Any]:
    return [message.content for message in thread.messages if isinstance(message, ToolMessage)]


def activities(thread: AsyncThread, kind: str) -> list[dict[str, Any]]:
    return [one.content for one in thread.messages if isinstance(one, ActivityMessage) and one.activity_type == kind]


async def answer_all(thread: AsyncThread, answer: Any) -> None:
    await thread.resume({interrupt.id: answer for interrupt in thread.interrupts})


@pytest.fixture(scope="module")
def everything_url() -> Iterator[str]:
    """The reference server ``everything`` over streamable HTTP."""
    port = free_port()
    command = node_server("mcp-server-everything", "streamableHttp")
    with subprocess.Popen(command, env={"PORT": str(port), "HOST": "127.0.0.1"}, stderr=subprocess.DEVNULL) as server:
        wait_until(lambda: accepts(port))
        yield f"http://127.0.0.1:{port}/mcp"
        server.kill()


@pytest.fixture(params=["stdio", "http"])
def everything(request: pytest.FixtureRequest) -> MCPServer:
    if request.param == "http":
        return MCPServer(request.getfixturevalue("everything_url"), id="everything")
    return MCPServer(node_server("mcp-server-everything", "stdio"), id="everything")


async def test_progress_is_an_activity_and_the_result_a_message(everything: MCPServer) -> None:
    app = app_of(calling(("trigger-long-running-operation", {"duration": 0.3, "steps": 3})), everything)
    async with client_for(app) as client:
        thread = client.thread()
        await thread.run("go")
    (shown,) = activities(thread, "mcp-progress")
    assert (shown["tool"], shown["progress"], shown["total"]) == ("trigger-long-running-operation", 3, 3)
    assert "completed" in results(thread)[0]


async def test_images_and_structured_results_arrive_as_parts_and_json(everything: MCPServer) -> None:
    app = app_of(calling(("get-tiny-image", {}), ("get-structured-content", {"location": "New York"})), everything)
    async with client_for(app) as client:
        thread = client.thread()
        await thread.run("go")
    image, weather = results(thread)
    assert [part.type for part in image] == ["text", "image", "text"]
    assert json.loads(weather)["temperature"] == 33


async def test_an_elicitation_is_a_question(everything: MCPServer) -> None:
    app = app_of(calling(("trigger-elicitation-request", {})), everything)
    async with client_for(app) as client:
        thread = client.thread()
        await thread.run("go")
        (interrupt,) = thread.interrupts
        assert interrupt.response_schema is not None
        assert interrupt.response_schema["properties"]["name"]["type"] == "string"
        await answer_all(thread, {"name": "Ann", "check": True})
    assert not thread.interrupts
    assert "Name: Ann" in str(results(thread)[0])
    assert [message.role for message in thread.messages] == ["user", "assistant", "tool", "assistant"]


async def test_the_files_of_a_folder_with_approval_by_predicate(tmp_path: Path) -> None:
    server = MCPServer(node_server("mcp-server-filesystem", str(tmp_path)), id="files")
    files = server.approval_required(lambda ctx, tool, args: tool.name == "write_file")
    target = tmp_path / "note.txt"
    model = calling(
        ("list_allowed_directories", {}),
        ("write_file", {"path": str(target), "content": "eagles"}),
        ("read_text_file", {"path": str(target)}),
    )
    async with client_for(app_of(model, files)) as client:
        thread = client.thread()
        await thread.run("write")
        (interrupt,) = thread.interrupts
        assert interrupt.reason == "tool_call"
        assert not target.exists()
        await answer_all(thread, approve({"path": str(target), "content": "two eagles"}))
    assert target.read_text() == "two eagles"
    assert "two eagles" in str(results(thread)[-1])


async def test_a_server_that_acts_before_it_asks_acts_twice(tmp_path: Path) -> None:
    log = tmp_path / "log"
    shop = MCPServer([sys.executable, str(SHOP), str(log)])
    async with client_for(app_of(calling(("order", {"item": "eagle"})), shop)) as client:
        thread = client.thread()
        await thread.run("order")
        assert log.read_text().splitlines() == ["reserved eagle"]
        await answer_all(thread, {"size": 7})
    assert log.read_text().splitlines() == ["reserved eagle", "reserved eagle", "ordered eagle 7"]
    assert results(thread) == ["ordered eagle in size 7"]


async def test_the_server_learns_that_the_user_gave_up(tmp_path: Path) -> None:
    shop = MCPServer([sys.executable, str(SHOP), str(tmp_path / "log")])
    async with client_for(app_of(calling(("order", {"item": "eagle"})), shop)) as client:
        thread = client.thread()
        await thread.run("order")
        await answer_all(thread, GIVE_UP)
    assert results(thread) == ["not ordered: cancel"]


@pytest.mark.parametrize("is_plain", [False, True])
async def test_each_error_of_a_tool_is_a_result_that_the_model_sees(tmp_path: Path, is_plain: bool) -> None:
    command = [sys.executable, str(SHOP), str(tmp_path / "log")]
    shop = MCPToolset(StdioTransport(command[0], command[1:])) if is_plain else MCPServer(command)
    async with client_for(app_of(calling(*[WRONG] * 3), shop)) as client:
        thread = client.thread()
        await thread.run("order")
    assert len(results(thread)) == 3
    assert all("Field required" in one for one in results(thread))


async def test_the_retries_of_a_server_limit_its_errors(tmp_path: Path) -> None:
    shop = MCPServer([sys.executable, str(SHOP), str(tmp_path / "log")], max_retries=0)
    async with client_for(app_of(calling(*[WRONG] * 2), shop)) as client:
        with pytest.raises(RunFailed) as failed:
            await client.thread().run("order")
    assert failed.value.code == "unexpected_answer"


async def test_the_page_of_a_tool_is_carried(tmp_path: Path) -> None:
    shop = MCPServer([sys.executable, str(SHOP), str(tmp_path / "log")], id="shop")
    async with client_for(app_of(calling(("show_cart", {})), shop)) as client:
        thread = client.thread()
        await thread.run("cart")
    (app,) = activities(thread, "mcp-apps")
    assert (app["resourceUri"], app["serverId"], app["toolInput"]) == ("ui://shop/cart", "shop", {})
    assert app["result"]["content"] == [{"type": "text", "text": "two eagles"}]
    assert "<p>two eagles</p>" in json.dumps(app["resource"])


@pytest.mark.parametrize("server", ["http://key:secret@127.0.0.1:{port}/mcp?key=secret", "no-such-command-xyz --now"])
async def test_a_server_that_is_not_there_fails_the_run_and_is_named_in_the_log(
    server: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = server.format(port=free_port())
    app = app_of(calling(("order", {})), MCPServer(server))
    async with client_for(app) as client:
        with pytest.raises(RunFailed) as failed:
            await client.thread().run("go")
    assert failed.value.code == "mcp_unavailable"
    (named,) = [one.message for one in caplog.records if one.message.startswith("cannot use the MCP server")]
    assert server.partition("@")[2].partition("?")[0] in named
    assert "no-such-command-xyz --now" in named or "127.0.0.1" in named
    assert "secret" not in named


async def test_servers_with_an_equal_tool_name_are_both_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shops = [MCPServer([sys.executable, str(SHOP), str(tmp_path / name)], id=name) for name in ("left", "right")]
    async with client_for(app_of(calling(("order", {})), *shops)) as client:
        with pytest.raises(RunFailed):
            await client.thread().run("go")
    assert "he MCP server 'left'" in caplog.text
    assert "he MCP server 'right'" in caplog.text


@pytest.mark.parametrize(("server", "problem"), [("", "a URL or a command"), ("ftp://x/mcp", "not ftp://")])
def test_a_server_is_a_url_or_a_command(server: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        MCPServer(server)


def test_the_official_client_sees_progress_images_questions_and_approvals(tmp_path: Path) -> None:
    with serving(App(tour(tmp_path))) as server:
        turns = json.loads(run_node("mcp.mjs", json.dumps({"url": server.url})))
    assert [turn["outcome"]["type"] for turn in turns] == ["interrupt", "interrupt", "success"]
    messages = turns[-1]["messages"]
    (progress,) = [one for one in messages if one["role"] == "activity"]
    assert (progress["activityType"], progress["content"]["progress"]) == ("mcp-progress", 3)
    _, image, elicited, written = [one["content"] for one in messages if one["role"] == "tool"]
    assert [part["type"] for part in image] == ["text", "image", "text"]
    assert "Name: Ann" in str(elicited)
    assert "note.txt" in written
    assert (tmp_path / "note.txt").read_text() == "eagles"
