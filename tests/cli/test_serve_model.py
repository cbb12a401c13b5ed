"""``aguila serve --model``: a chat with a model, MCP servers and tools, without code."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from processes.commands import aguila_serve
from serving import check_valid, text_of
from typer.testing import CliRunner

from aguila.cli.commands import commands

SHOP = Path(__file__).parents[1] / "support" / "mcp_shop.py"
TOOLS = """
from pydantic_ai import Tool


def count_eagles(park: str) -> int:
    \"\"\"Count the eagles of a park.\"\"\"
    return 2


def pay(amount: float) -> str:
    return "paid"


pay = Tool(pay, requires_approval=True)
"""


def asking(text: str) -> list[dict[str, Any]]:
    return [{"id": "m1", "role": "user", "content": text}]


def calls_in(events: list[dict[str, Any]]) -> list[str]:
    return [event["toolCallName"] for event in events if event["type"] == "TOOL_CALL_START"]


def test_a_model_gets_the_functions_of_a_module_and_asks_for_approval(tmp_path: Path) -> None:
    (tmp_path / "shop_tools.py").write_text(TOOLS)
    with aguila_serve(tmp_path, "--model", "test", "--instructions", "Be brief.", "--tools", "shop_tools") as server:
        events = server.events(messages=asking("Hi"))
        check_valid(events)
        assert sorted(calls_in(events)) == ["count_eagles", "pay"]
        (interrupt,) = events[-1]["outcome"]["interrupts"]
        assert interrupt["reason"] == "tool_call"
        answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
        resumed = server.events(run_id="then", messages=[], resume=[answer])
        assert "paid" in text_of(resumed)
        assert "test at" in server.log


def test_a_model_gets_the_tools_of_an_mcp_server(tmp_path: Path) -> None:
    command = shlex.join([sys.executable, str(SHOP), str(tmp_path / "log")])
    with aguila_serve(tmp_path, "--model", "test", "--mcp", command) as server:
        events = server.events(messages=asking("Hi"))
        check_valid(events)
        assert sorted(calls_in(events)) == ["order", "show_cart"]
        (message,) = [one["message"] for one in events[-1]["outcome"]["interrupts"]]
        assert message == f"The tool 'order' of the MCP server {Path(sys.executable).name!r} asks:\nWhich size of a?"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["mine:agent", "--model", "test"], "--model serves a chat of its own; drop mine:agent"),
        (["--mcp", "http://127.0.0.1:1/mcp"], "--instructions, --mcp and --tools are for a chat with --model"),
        (["--model", "nobody:gpt"], "cannot use the model nobody:gpt"),
        (["--model", "some-gpt"], "some-gpt; name its vendor, too, such as openai:gpt-5.4-mini"),
        (["openai:gpt-5.4-mini"], "for a chat with a model write --model openai:gpt-5.4-mini"),
        (["--model", "test", "--mcp", ""], "an MCP server is a URL or a command"),
        (["--model", "test", "--mcp", "npx 'x"], """cannot use --mcp "npx 'x": No closing quotation"""),
        (["--model", "test", "--tools", "./shop.py"], "./shop.py names a file, not a module; did you mean shop?"),
        (["--model", "test", "--tools", "not_there"], "there is no module not_there"),
        (["--model", "test", "--tools", "__future__"], "defines no public functions that a model could call"),
    ],
)
def test_what_cannot_be_served_is_said(
    words: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(commands, ["serve", *words, "--port", "0"], env={"COLUMNS": "200"})
    assert done.exit_code in (1, 2)
    assert problem in " ".join(done.output.replace("│", " ").split())
