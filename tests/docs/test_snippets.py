"""The Python in our documents runs, and gives what it says it gives."""

from __future__ import annotations

import ast
import re
import traceback
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", "docs/tutorial.md", "docs/chat.md", "docs/events.md"]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
GIVES = re.compile(r"^(?P<code>[^#\n]+?)\s+# (?P<value>True|b'.*|\[.*)$")


def blocks(document: str) -> list[str]:
    return BLOCK.findall((ROOT / document).read_text())


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_python_in_the_document_runs(document: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")  # a client is made, but sends no request
    found = blocks(document)
    assert found
    for block in found:
        if block.startswith(">>>"):
            continue
        names: dict[str, Any] = {}
        exec(compile(block, document, "exec"), names)
        for line in block.splitlines():
            if (claim := GIVES.match(line)) is not None:
                assert (
                    eval(claim["code"], names) == ast.literal_eval(claim["value"])
                    if claim["value"][0] != "["
                    else (repr(eval(claim["code"], names)) == claim["value"])
                ), line


def test_the_session_in_the_document_is_true() -> None:
    session = next(block for block in blocks("docs/events.md") if block.startswith(">>>"))
    call, expected = session.strip().splitlines()
    from aguila.codec import decode_event

    with pytest.raises(ValueError) as caught:
        eval(call.removeprefix(">>> "), {"decode_event": decode_event})
    assert traceback.format_exception_only(caught.value)[-1].strip() == expected


def test_every_link_in_the_documents_leads_somewhere() -> None:
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
