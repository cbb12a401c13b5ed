"""The files that the documents for contributors name exist."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
DOCUMENTS = ("AGENTS.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
NAME = re.compile(r"`([\w./*-]+\.(?:py|proto|toml|md|sh|mjs))`")
PLACES = (ROOT, ROOT / "src" / "aguila", ROOT / "src" / "aguila" / "chat", ROOT / "docs")


def exists(name: str) -> bool:
    """Return whether a name is a path from one of the places, or the bare name of a file of the source or tests."""
    if any(True for place in PLACES for _ in place.glob(name)):
        return True
    trees = () if "/" in name else (ROOT / "src" / "aguila", ROOT / "tests")
    return any(True for tree in trees for _ in tree.rglob(name))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_that_a_document_names_exists(document: str):
    names = set(NAME.findall((ROOT / document).read_text("utf-8")))
    assert names
    assert sorted(name for name in names if not exists(name)) == []


def test_a_missing_file_is_found():
    assert not exists("_pb_write.py")
    assert not exists("codec/missing.py")
