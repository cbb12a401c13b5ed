"""The index of the search. Results that match equally well come in its order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

_SECTIONS: Final = ("Start", "How-to", "Guides", "Operate", "Reference", "Project")


def order_search(index: Path) -> None:
    """Put tasks before types, and what contributors read last.

    A match counts more the nearer it is to the beginning of a title. So the names of types get the page before them.
    """
    found = json.loads(index.read_text("utf-8"))
    for item in found["items"]:
        if item["path"][0] == "Reference" and item["path"][1:2] in (["Python"], ["Protocol"]) and item["level"] > 1:
            item["title"] = f"{item['path'][-1]} · {item['title']}"
    found["items"].sort(key=_place)
    index.write_text(json.dumps(found, ensure_ascii=False, separators=(",", ":")), "utf-8")


def _place(item: dict[str, Any]) -> int:
    section = item["path"][0]
    return _SECTIONS.index(section) if section in _SECTIONS else len(_SECTIONS)
