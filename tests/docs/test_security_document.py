"""SECURITY.md: every promise is a row of a table, and names a test that exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from route_table import route_names

from faults import hostile_routes

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "SECURITY.md").read_text().splitlines()
ROWS = [line for line in LINES if line.startswith("| ") and not line.startswith(("| what", "| route"))]
TEST = re.compile(r"`((?:tests|src/aguila/testing)/[^`:]+)::(test_\w+)` \|$")


@cache
def functions_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(function.name for function in functions)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_names_an_existing_test(row: str) -> None:
    found = TEST.search(row)
    assert found is not None, "the row does not end with a test"
    assert found[2] in functions_in(found[1])


def test_lines_without_a_test_are_not_promised() -> None:
    heading = ""
    for line in LINES:
        if line and not line.startswith(("- ", "  ", "|")):
            heading = line
        assert not line.startswith("- ") or heading == "Not promised:", line
        assert not line.startswith("**"), line


def test_the_table_of_routes_has_every_route_with_its_hostile_cases() -> None:
    section = "\n".join(LINES).partition("## Hostile cases of each route\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    found = {route.removeprefix("| ").strip("`"): cases for route, cases, _ in rows}
    assert found == {route: hostile_routes.describe(route) for route in route_names()}


def test_documents_that_open_a_server_to_others_say_so_in_the_same_breath() -> None:
    root = Path(__file__).parents[2]
    for path in [root / "README.md", *(root / "docs").rglob("*.md"), *(root / "examples").glob("*.py")]:
        lines = path.read_text().splitlines()
        is_code = path.suffix == ".py"
        for number, line in enumerate(lines):
            is_code = is_code if path.suffix == ".py" else is_code != line.startswith("```")
            if is_code and re.search(r"allow_anonymous=True|--host 0\.0\.0\.0", line):
                said = " ".join(lines[max(0, number - 1) : number + 1])
                assert re.search(r"every(one| client)", said, re.IGNORECASE), f"{path.name}:{number + 1}"
