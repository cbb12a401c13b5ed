"""The pictures in the documents: each exists, is used, is small, and contains no path of the machine that took it."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
REFERENCE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


def referenced() -> dict[pathlib.Path, str]:
    """Return the pictures that README.md and docs/ show, with their alternative texts."""
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {
        (document.parent / path).resolve(): text
        for document in documents
        for text, path in REFERENCE.findall(document.read_text("utf-8"))
    }


def test_the_documents_show_exactly_the_pictures_that_exist():
    assert set(referenced()) == set(PICTURES.iterdir())


def test_every_picture_has_an_alternative_text():
    assert [path.name for path, text in referenced().items() if not text] == []


def test_pictures_are_small():  # every clone has all of them
    assert [path.name for path in PICTURES.iterdir() if path.stat().st_size > 150_000] == []


def test_pictures_have_no_metadata_and_load_nothing():
    for path in PICTURES.iterdir():
        data = path.read_bytes()
        if path.suffix == ".png":
            assert not re.search(rb"tEXt|iTXt|zTXt|eXIf", data), path.name
        else:
            assert not re.search(r"/tmp|/home|/root|/work|@font-face|url\((?!#)", data.decode()), path.name
