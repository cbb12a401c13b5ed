"""The programs of docs/frameworks.md are short and run, and its tables have every option."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from serving import check_valid, serving, text_of

from aguila import App
from aguila.frameworks import from_events, upstream
from aguila.protocol import RunAgentInput

TEXT = (Path(__file__).parents[2] / "docs/frameworks.md").read_text()
ALL_BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
OF_FRAMEWORKS = [block for block in ALL_BLOCKS if re.search(r"frameworks import (?!from_events|upstream)", block)]
BLOCKS = [block for block in ALL_BLOCKS if block not in OF_FRAMEWORKS]


def names_of(block: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(block, "frameworks.md", "exec"), names)
    return names


@pytest.mark.parametrize("block", ALL_BLOCKS)
def test_the_programs_are_short(block: str) -> None:
    assert len([line for line in block.splitlines() if line.strip()]) <= 10


@pytest.mark.parametrize("block", BLOCKS)
def test_the_programs_run(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of frameworks run in tests/peers/test_frameworks.py."""
    monkeypatch.chdir(tmp_path)
    names = names_of(block)
    assert "agent_of" in names or isinstance(names["app"], App)


def test_every_option_is_in_a_table() -> None:
    for function in (upstream, from_events):
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                assert f"`{name}`" in TEXT, name


def test_the_iterator_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = (block for block in BLOCKS if "TEXT_MESSAGE_CHUNK" in block)
    with serving(names_of(block)["app"]) as server:
        events = server.events(messages=[{"id": "u1", "role": "user", "content": "hi"}])
    check_valid(events)
    assert text_of(events) == "You said 'hi'."


def test_an_adapter_gets_an_official_input() -> None:
    (block,) = (block for block in BLOCKS if "to_official" in block)

    class Adapter:
        async def run(self, input: Any) -> Any:
            assert type(input).__module__.startswith("ag_ui.")
            assert not isinstance(input, RunAgentInput)
            yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": "a1", "delta": input.messages[0].content}

    with serving(App(names_of(block)["agent_of"](Adapter()))) as server:
        events = server.events(
            state={}, tools=[], context=[], forwardedProps={}, messages=[{"id": "u1", "role": "user", "content": "hi"}]
        )
    assert text_of(events) == "hi"
