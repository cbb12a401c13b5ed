"""The documents of the repository as pages of the site: their links lead to pages, also those to files of code."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from documentation.examples import EXAMPLES, examples_page
from documentation.navigation import ROOT

_FENCE: Final = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")
_COMMENT: Final = re.compile(r"^<!--.*?-->\n\n?", re.MULTILINE | re.DOTALL)
_NO_SEARCH: Final = "---\nsearch:\n  exclude: true\n---\n\n"
_LEXERS: Final = {".py": "python", ".mjs": "js", ".tsx": "tsx"}


class Pages:
    """The pages of the site, by path: Markdown of documents, and of every file that they link to."""

    def __init__(self, documents: dict[Path, str]) -> None:
        self.markdown: dict[str, str] = {}
        self.pictures: dict[str, Path] = {}
        self._page_of = dict(documents)
        waiting = list(documents)
        while waiting:
            source = waiting.pop()
            before = len(self._page_of)
            self.markdown[self._page_of[source]] = self._convert(source)
            waiting += list(self._page_of)[before:]

    def add(self, pages: dict[str, str]) -> None:
        """Add pages that no document of the repository has."""
        self.markdown |= {path: _COMMENT.sub("", text) for path, text in pages.items()}

    def _convert(self, source: Path) -> str:
        text = examples_page() if source == EXAMPLES else source.read_text("utf-8")
        if source.suffix != ".md":
            name = source.relative_to(ROOT).as_posix()
            title = name.removeprefix("examples/").removesuffix(".py") if source.parent == EXAMPLES.parent else name
            return f"{_NO_SEARCH}# {title}\n\n````{_LEXERS.get(source.suffix, '')}\n{text}````\n"
        parts: list[str] = [_NO_SEARCH] if source == ROOT / "CHANGELOG.md" else []
        end = 0
        for fence in _FENCE.finditer(text):
            parts += [self._prose(text[end : fence.start()], source), _indent(fence[0], fence[1])]
            end = fence.end()
        return "".join([*parts, self._prose(text[end:], source)])

    def _prose(self, text: str, source: Path) -> str:
        # Python-Markdown nests lists by four spaces, where GitHub takes two.
        nested = re.sub(r"^( +)", r"\1\1", _COMMENT.sub("", text), flags=re.MULTILINE)
        return _LINK.sub(lambda found: self._link(found, source), nested)

    def _link(self, found: re.Match[str], source: Path) -> str:
        target = Path(os.path.normpath(source.parent / found[2]))
        if target.is_dir():
            target = EXAMPLES if target == EXAMPLES.parent else target / "README.md"
        if target != EXAMPLES and not target.exists():
            return found[1]  # a folder without a document
        path = target.relative_to(ROOT).as_posix()
        if target.suffix in (".png", ".svg"):
            page = path.removeprefix("docs/")
            self.pictures[page] = target
        else:
            page = self._page_of.setdefault(target, f"source/{path.removesuffix('.md')}.md")
        here = Path(self._page_of[source]).parent
        return f"[{found[1]}]({os.path.relpath(page, here)}{found[3] or ''})"


def _indent(fence: str, more: str) -> str:
    return "\n".join(more + line if line else line for line in fence.split("\n"))
