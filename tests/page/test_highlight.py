"""The colours of code in the page take time that is linear in the text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from processes.node import run_node

FOLDER = Path(__file__).parent
LENGTH = 48_000


@pytest.mark.parametrize(("part", "language"), [("-", "css"), ('"\\', "js"), ("'\\", "py"), ("`\\", "js")])
def test_four_times_the_text_does_not_take_sixteen_times_as_long(part: str, language: str) -> None:
    text = part * (LENGTH // len(part))
    texts = [[text[: LENGTH // 4], language], [text, language]]
    short, long = json.loads(
        run_node(str(FOLDER / "highlight.mjs"), json.dumps(texts), folder=FOLDER.parents[1] / "web")
    )
    assert long < 8 * short + 200
