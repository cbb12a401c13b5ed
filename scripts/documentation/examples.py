"""The page that lists the examples, from the first sentence of each."""

from __future__ import annotations

import ast
from typing import Final

from documentation.navigation import ROOT

EXAMPLES: Final = ROOT / "examples" / "examples.md"
"""Where the page would be in the repository. It is not a file."""

_INTRODUCTION: Final = """\
# Examples

Short programs, one for each feature. Each begins with the commands that run it, in a clone of the repository.

| example | shows |
|---|---|
"""


def examples_page() -> str:
    """Return the page as Markdown, with links as a document of ``examples/`` has them."""
    rows: list[str] = []
    for path in sorted(EXAMPLES.parent.glob("*.py")):
        first = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n\n")[0]
        rows.append(f"| [{path.name}]({path.name}) | {' '.join(first.split())} |")
    pages = [path.name for path in sorted((EXAMPLES.parent / "frontends").iterdir()) if (path / "README.md").is_file()]
    links = ", ".join(f"[{name}](frontends/{name})" for name in pages)
    return _INTRODUCTION + "\n".join(rows) + f"\n\nPages to copy for front ends: {links}.\n"
