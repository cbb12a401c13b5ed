"""docs/sequences.md shows the tables as they are, and every rule of the tables has a test that carries its id."""

import importlib.util
import pathlib
import re

import pytest

from aguila.stream.verification import rules

ROOT = pathlib.Path(__file__).parents[2]
STREAM = ROOT / "src" / "aguila" / "stream"
NAMES = (
    "chunks",
    "writer",
    *(f"verification/{name}" for name in ("owners", "producer_rules", "rules", "verifier")),
)
SOURCES = [STREAM / f"{name}.py" for name in NAMES]
TESTED = ("test_chunks", "verification/test_producer_rules", "verification/test_verifier", "writer/test_writer")
TESTS = [ROOT / "tests" / "stream" / f"{name}.py" for name in TESTED]
RULE = re.compile(r'"([A-Z]+-[0-9]+)"')


@pytest.fixture(scope="module")
def diagrams():
    spec = importlib.util.spec_from_file_location("diagrams", ROOT / "scripts" / "diagrams.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_diagrams_are_current(diagrams):
    for path in diagrams.DOCUMENTS:
        document = path.read_text("utf-8")
        assert diagrams.drawn_into(path, document) == document, "run python scripts/diagrams.py"
    assert diagrams.main(["--check"]) == 0


def test_the_check_notices_a_diagram_that_is_not_what_the_tables_say(diagrams, tmp_path, monkeypatch, capsys):
    stale = tmp_path / "sequences.md"
    stale.write_text(f"top\n{diagrams.BEGIN}\nold\n{diagrams.END}\nbottom\n", "utf-8")
    monkeypatch.setattr(diagrams, "DOCUMENTS", {stale: diagrams.section})
    assert diagrams.main(["--check"]) == 1
    assert "diagrams.py" in capsys.readouterr().out
    assert diagrams.main([]) == 0
    assert diagrams.main(["--check"]) == 0
    text = stale.read_text("utf-8")
    assert text.startswith("top\n")
    assert text.endswith("bottom\n")
    assert "old" not in text


def test_a_document_without_the_markers_is_an_error(diagrams, tmp_path):
    with pytest.raises(SystemExit, match=r"empty\.md lacks"):
        diagrams.drawn_into(tmp_path / "empty.md", "nothing here")


def test_every_transition_of_the_tables_is_drawn(diagrams):
    section = diagrams.section()
    for item in rules.ITEMS:
        for cls in (item.opener, *item.content, *item.closers):
            assert rules.wire_name(cls) in section
        for rule in (item.double_open, item.not_open, item.open_at_finish):
            assert rule in section


def test_every_rule_that_refuses_something_is_in_a_test_and_every_rule_a_test_expects_exists():
    used = {rule for path in SOURCES for rule in RULE.findall(path.read_text("utf-8"))}
    tested = {rule for path in TESTS for rule in RULE.findall(path.read_text("utf-8"))}
    assert used == tested
    assert len(used) > 30
