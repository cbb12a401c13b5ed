"""The table of docs/frontends.md. ``make frontends`` runs these tests after it has played the pages."""

from __future__ import annotations

import pytest
import recipes
from front_ends import FrontEnd
from frontends_matrix import FRONT_ENDS, PAGE, SHORT, SHORT_FRONT_ENDS, Cell, document, main
from scenarios import SCENARIOS


def test_the_documented_table_has_every_front_end_scenario_and_version() -> None:
    written = PAGE.read_text()
    for name in SCENARIOS:
        assert f"\n| {name} | " in written
    head = document({front_end: dict.fromkeys(SCENARIOS, Cell("works")) for front_end in FRONT_ENDS})
    for line in head.split("\n"):
        if line.startswith(("## ", "| | ", "@")):
            assert line in written
    introduction, _, _ = head.partition("## What works")
    assert written.startswith(introduction)


def test_a_failure_stands_in_the_table_with_its_reason() -> None:
    column = dict.fromkeys(SCENARIOS, Cell("works")) | {"text": Cell("fails", "nothing came")}
    written = document({FRONT_ENDS[0]: column})
    assert "| text | **fails** (1) |" in written
    assert "1. nothing came" in written


def test_the_short_form_plays_scenarios_that_exist() -> None:
    assert set(SHORT) <= set(SCENARIOS)
    assert set(SHORT_FRONT_ENDS) <= set(FRONT_ENDS)


@pytest.mark.parametrize(("ci", "status"), [("true", 1), ("", 0)])
def test_without_a_browser_it_says_what_is_missing_and_fails_only_in_ci(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ci: str, status: int
) -> None:
    monkeypatch.setattr(recipes, "CHROMIUM", "/nowhere/chromium")
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("sys.argv", ["frontends_matrix.py"])
    monkeypatch.setenv("CI", ci)
    assert main() == status
    assert "/nowhere/chromium does not exist; apt-get install chromium" in capsys.readouterr().err


@pytest.mark.parametrize("front_end", FRONT_ENDS, ids=lambda front_end: front_end.title)
def test_what_a_front_end_cannot_show_is_a_scenario_with_a_reason(front_end: type[FrontEnd]) -> None:
    assert set(front_end.unsupported) <= set(SCENARIOS)
    assert all(front_end.unsupported.values())


@pytest.mark.parametrize("front_end", FRONT_ENDS, ids=lambda front_end: front_end.title)
def test_what_a_front_end_shows_with_a_loss_is_partly_in_the_documented_table(front_end: type[FrontEnd]) -> None:
    written = PAGE.read_text().split("\n")
    for name, reason in front_end.partly.items():
        row = next(line for line in written if line.startswith(f"| {name} | "))
        assert row.split(" | ")[1 + FRONT_ENDS.index(front_end)].startswith("partly (")
        assert any(line.endswith(f". {reason}") for line in written)
