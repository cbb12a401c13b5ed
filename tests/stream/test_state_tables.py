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
def state_tables():
    spec = importlib.util.spec_from_file_location("state_tables", ROOT / "scripts" / "state_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_current(state_tables):
    for path in state_tables.DOCUMENTS:
        document = path.read_text("utf-8")
        assert state_tables.written_into(path, document) == document, "run python scripts/state_tables.py"
    assert state_tables.main(["--check"]) == 0


def test_the_check_notices_a_table_that_is_not_what_the_tables_say(state_tables, tmp_path, monkeypatch, capsys):
    stale = tmp_path / "sequences.md"
    stale.write_text(f"top\n{state_tables.BEGIN}\nold\n{state_tables.END}\nbottom\n", "utf-8")
    monkeypatch.setattr(state_tables, "DOCUMENTS", {stale: state_tables.section})
    assert state_tables.main(["--check"]) == 1
    assert "state_tables.py" in capsys.readouterr().out
    assert state_tables.main([]) == 0
    assert state_tables.main(["--check"]) == 0
    text = stale.read_text("utf-8")
    assert text.startswith("top\n")
    assert text.endswith("bottom\n")
    assert "old" not in text


def test_a_document_without_the_markers_is_an_error(state_tables, tmp_path):
    with pytest.raises(SystemExit, match=r"empty\.md lacks"):
        state_tables.written_into(tmp_path / "empty.md", "nothing here")


def test_every_transition_of_the_tables_is_written(state_tables):
    section = state_tables.section()
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
