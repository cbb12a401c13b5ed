"""The demo agent chooses the feature that the message names."""

from __future__ import annotations

import pytest

from aguila.cli.demo import FEATURES, keyword_in


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ("Show me a tool", "tools"),
        ("TOOLS!", "tools"),
        ("a Frontend tool, please", "frontend"),
        ("one step", "steps"),
        ("Steps?", "steps"),
        ("Call a Subagent.", "subagents"),
        ("interrupts", "interrupt"),
        ("activities", "activity"),
        ("an Activity", "activity"),
        ("images", "image"),
        ("errors", "error"),
        ("Generative UI", "generative"),
        ("approvals", "approval"),
        ("something else", "help"),
        ("in this context", "help"),
        ("", "help"),
    ],
)
def test_a_keyword_is_found_in_singular_and_plural_and_any_case(text: str, keyword: str) -> None:
    assert keyword_in(text) == keyword


def test_every_keyword_finds_itself() -> None:
    assert [keyword_in(f"Show me {keyword}") for keyword in FEATURES] == list(FEATURES)
