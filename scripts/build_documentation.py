"""Build the documentation as a static site: ``make docs``.

It consists of the documents of the repository and of reference pages that are made here. Zensical, the successor of
mkdocs-material by the same authors, turns them into HTML; a warning of it fails the build. Then every link is checked.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from documentation.command_line import command_line_page
from documentation.http_api import http_page
from documentation.links import broken_links
from documentation.llms import write_llms
from documentation.navigation import ROOT, documents, write_navigation
from documentation.pages import Pages
from documentation.python_api import python_pages
from documentation.search import order_search

_CODE = re.compile(r"(?<=[| ])`[^`\n]*\\\|[^`\n]*`")
"""Code with a pipe in a table: GitHub needs a backslash before it, Python-Markdown shows that."""

HERE = Path(__file__).parent / "documentation"


def build(folder: Path) -> Path:
    """Build the site in this folder. Return the folder of the HTML in it."""
    for old in (folder / "pages", folder / "site"):
        shutil.rmtree(old, ignore_errors=True)
    pages = Pages(documents())
    pages.add(python_pages())
    pages.add({"reference/http.md": http_page(), "reference/commands.md": command_line_page()})
    for name, text in pages.markdown.items():
        _write(folder / "pages" / name, _CODE.sub(lambda found: found[0].replace("\\|", "|"), text))
    for name, picture in pages.pictures.items():
        (folder / "pages" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, folder / "pages" / name)
    shutil.copytree(HERE / "assets", folder / "pages" / "assets")
    shutil.copy(ROOT / "web" / "src" / "icon.svg", folder / "pages" / "assets")
    _write(folder / "zensical.toml", (HERE / "zensical.toml").read_text("utf-8") + write_navigation(pages.markdown))
    subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "--clean"], cwd=folder, check=True)
    site = folder / "site"
    order_search(site / "search.json")
    for useless in ("objects.inv", "sitemap.xml"):  # empty, because the site has no address
        (site / useless).unlink()
    for name, text in (pages.markdown | write_llms(pages.markdown)).items():
        _write(site / name, text)
    if broken := broken_links(site):
        sys.exit("These links lead nowhere:\n" + "\n".join(broken))
    return site


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


if __name__ == "__main__":
    site = build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "documentation")
    print(f"The site is in {site}; python -m http.server --directory {site} shows it.")
