"""``llms.txt``, the list of all pages as Markdown, and ``llms-full.txt``, the text of those that users need."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_HEAD: Final = """\
# Aguila

> The complete AG-UI stack for Python: serve, call, store and inspect agents.

## Pages

"""
_NOT_FOR_USERS: Final = ("source/", "project/")


def write_llms(markdown: Mapping[str, str]) -> dict[str, str]:
    """Return the files by name."""
    pages = {path: text for path, text in sorted(markdown.items()) if not path.startswith("source/")}
    listed = [f"- [{_title(text)}]({path})" for path, text in pages.items()]
    full = [f"<!-- {path} -->\n\n{text}" for path, text in pages.items() if not path.startswith(_NOT_FOR_USERS)]
    return {"llms.txt": _HEAD + "\n".join(listed) + "\n", "llms-full.txt": "\n\n".join(full)}


def _title(text: str) -> str:
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    assert found is not None, "a page begins with its title"
    return found[1]
