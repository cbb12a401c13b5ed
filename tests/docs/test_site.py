"""``make docs``: the site has every document, its links lead somewhere, and it loads nothing from other hosts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "scripts" / "build_documentation.py"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built anew. The build fails on a warning and on a broken link."""
    folder = tmp_path_factory.mktemp("documentation")
    done = subprocess.run([sys.executable, str(BUILD), str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stdout + done.stderr
    return folder / "site"


def test_every_document_is_a_page_in_the_navigation(site: Path) -> None:
    navigation = (site.parent / "zensical.toml").read_text().partition("[[project.nav]]")[2]
    documents = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in documents if f'"{page.replace("README", "index")}"' not in navigation] == []


@pytest.mark.parametrize(
    ("html", "finding"),
    [
        ('<a href="none/">', "page.html: none/ is no file of the site"),
        ('<a href="#none">', "page.html: #none is no anchor of page.html"),
        ('<img src="none.png">', "page.html: none.png is no file of the site"),
        ('<script src="https://example.com/a.js">', "page.html loads https://example.com/a.js"),
        ('<a href="https://example.com/">', None),
        ('<a href="#here"><p id="here">', None),
    ],
)
def test_a_broken_link_and_a_foreign_script_are_found(
    html: str, finding: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BUILD.parent))
    from documentation.links import broken_links

    (tmp_path / "404.html").write_text("")
    (tmp_path / "page.html").write_text(html)
    assert broken_links(tmp_path) == ([] if finding is None else [finding])


def test_a_diagram_is_shown_as_text(site: Path) -> None:
    page = (site / "sequences" / "index.html").read_text()
    assert "stateDiagram-v2" in page
    assert not re.search(r'class="mermaid"', page)
