"""The agents of the tutorial do what it says they do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from serving import REPOSITORY, check_valid, serving, text_of, types

from aguila import App

BLOCKS = re.findall(r"^```python\n(.*?)^```", (REPOSITORY / "docs/tutorial.md").read_text(), re.MULTILINE | re.DOTALL)
SAID = ["Hello, world!", "You said: Hi", "They are in your basket.", "", "Hello, Ada."]


@pytest.mark.parametrize(("block", "words"), list(zip(BLOCKS, SAID, strict=True)), ids=range(1, 6))
def test_the_agent_of_the_tutorial_answers(
    block: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(compile(block, "tutorial.md", "exec"), names)
    with serving(names.get("app") or App(names["agent"])) as server:
        hi = [{"id": "m1", "role": "user", "content": "Hi"}]
        with server.run(headers={"authorization": "Bearer ada-token"}, messages=hi) as stream:
            events = stream.rest()
        check_valid(events)
        assert text_of(events) == words
        assert events[-1]["outcome"]["type"] == ("interrupt" if words == "" else "success")
        if words == "They are in your basket.":
            assert "STATE_DELTA" in types(events)
