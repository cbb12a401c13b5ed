"""docs/founding.md: every row names a source and a test that exist."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/founding.md").read_text()
ROWS = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith("| requirement")]
ROW = re.compile(
    r"\| (?P<what>.+?) \| "
    r"(?:`(?P<source>[^`]+)`|superseded by \[(?P<rule>[A-Z]+-[0-9]+)\]\(rules\.md#(?P<anchor>[a-z0-9-]+)\))"
    r" \| `(?P<file>tests/[^`:]+)::(?P<test>test_\w+)` \|"
)


@cache
def functions_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(function.name for function in functions)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_names_an_existing_source_and_an_existing_test(row: str) -> None:
    found = ROW.fullmatch(row)
    assert found is not None, "the row is not: requirement, source or superseding rule, test"
    if found["source"] is not None:
        assert (ROOT / found["source"]).exists()
    else:
        assert found["anchor"] == found["rule"].lower()
        assert f'<a id="{found["anchor"]}"></a>' in (ROOT / "docs/rules.md").read_text()
    assert found["test"] in functions_in(found["file"])


def test_no_row_is_partly_done_and_none_is_there_twice() -> None:
    assert "partly" not in TEXT.lower()
    sections = TEXT.split("\n## ")[1:]
    assert [section[:3] for section in sections] == ["000", "001", "002", "003", "004"]
    for section in sections:
        rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| ")]
        assert [row for row, count in Counter(rows).items() if count > 1] == []
    assert len(ROWS) >= 270
