"""Tools of an agent as their author's type checker sees them."""

from __future__ import annotations

from pathlib import Path

from typing_checks import pyright_findings, revealed

TYPED = """
from aguila import Run
from aguila.chat import tool

@tool
def add(a: int, b: int = 2) -> str:
    return str(a + b)

@tool(needs_approval=lambda arguments: arguments["a"] > 1)
async def later(a: int, run: Run) -> bytes:
    return bytes(a)

def plain(a: int) -> None: ...

reveal_type(add(1))
reveal_type(add.__call__)
reveal_type(later.__call__)
reveal_type(tool(plain).function)
"""

MISUSED = """
from aguila.chat import tool

@tool
def add(a: int) -> int:
    return a

add("1", 2)
"""


def test_a_tool_keeps_the_signature_of_its_function_for_a_type_checker(tmp_path: Path) -> None:
    assert revealed(tmp_path, TYPED) == [
        "str",
        "(a: int, b: int = 2) -> str",
        "(a: int, run: Run) -> CoroutineType[Any, Any, bytes]",
        "(a: int) -> None",
    ]
    assert [one["severity"] for one in pyright_findings(tmp_path, MISUSED)] == ["error"]
