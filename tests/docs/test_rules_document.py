"""docs/rules.md explains every rule id that the source uses, and no other."""

import pathlib
import re

import pytest

from aguila.codec.compat import RULES
from aguila.errors import SequenceError
from aguila.stream.verification.rule_texts import RULE_TEXTS

ROOT = pathlib.Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "rules.md").read_text("utf-8")
ROW = re.compile(r'^\| <a id="([^"]+)"></a>`([^`]+)` \| (.+) \|$', re.MULTILINE)

PROTOCOL_RULE = re.compile(r"\b([A-Z]{2,6}-[0-9]+)\b")
OWN_RULE = re.compile(r'\brule(?:: str)? ?= ?"([a-z][a-z0-9-]*)"')
NOT_RULES = frozenset({"UTF-8", "UTF-16"})


def used_rules() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "src" / "aguila").rglob("*.py"):
        if path.name == "rule_texts.py":  # the texts themselves
            continue
        text = path.read_text("utf-8")
        found |= set(PROTOCOL_RULE.findall(text)) | set(OWN_RULE.findall(text))
    return (found - NOT_RULES) | {rule.name for rule in RULES}


def test_every_rule_id_in_the_source_is_explained_and_every_explained_one_is_used():
    explained = {rule for _, rule, _ in ROW.findall(DOCUMENT)}
    used = used_rules()
    assert sorted(used - explained) == [], "add a row to docs/rules.md"
    assert sorted(explained - used) == [], "remove the row from docs/rules.md"


def test_every_row_is_one_sentence_with_the_anchor_that_errors_link_to():
    rows = ROW.findall(DOCUMENT)
    assert len(rows) == DOCUMENT.count("<a id=")
    for anchor, rule, meaning in rows:
        assert SequenceError("x", rule=rule).help == f"docs/rules.md#{anchor}"
        assert meaning.endswith(".")


def test_the_page_is_written_from_the_texts_in_the_source():
    assert {rule: text for _, rule, text in ROW.findall(DOCUMENT)} == RULE_TEXTS


@pytest.mark.parametrize("rule", ["CHK-7", "limit-size"])
def test_an_error_links_to_the_explanation_of_its_rule(rule: str):
    path, _, anchor = SequenceError("x", rule=rule).help.partition("#")
    assert f'<a id="{anchor}">' in (ROOT / path).read_text("utf-8")
