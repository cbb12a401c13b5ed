"""Which documents the site has, and where in its navigation each is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

OUTSIDE_DOCS: Final = {
    "README.md": "index.md",
    "docs/reference/README.md": "reference/index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "AGENTS.md": "project/agents.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
    "benchmarks/results.md": "project/benchmarks.md",
    "examples/examples.md": "examples/index.md",  # made by examples.py
}
"""Document -> page, where the page does not have the path that the document has below docs/."""

_PYTHON: Final = ("server", "agent", "client", "frameworks", "testing", "stream", "store", "errors", "chat", "codec")

OTHER: Final = "Guides"

SECTIONS: Final[dict[str, list[str | tuple[str, list[str]]]]] = {
    "Start": ["index.md", "install.md", "tutorial.md", ("Examples", ["examples/index.md", "source/examples/*.py.md"])],
    "How-to": [
        "how-to/authenticate-users.md",
        "how-to/ask-for-approval.md",
        "how-to/share-state.md",
        "how-to/upload-files.md",
        "how-to/test-an-agent.md",
        "how-to/export-and-erase-data.md",
        "how-to/*.md",
    ],
    OTHER: [
        "agents.md",
        "models.md",
        "mcp.md",
        "frameworks.md",
        "server.md",
        "threads.md",
        "interrupts.md",
        "http.md",
        "client.md",
        "page.md",
        "inspector.md",
        "frontends.md",
        "copilotkit.md",
        "cli.md",
    ],
    "Reference": [
        "errors.md",
        "options.md",
        "reference/http.md",
        "reference/commands.md",
        ("Python", [f"reference/{name}.md" for name in _PYTHON]),
        (
            "Protocol",
            [
                "reference/index.md",
                "reference/events.md",
                "sequences.md",
                "rules.md",
                "reference/run.md",
                "reference/messages.md",
                "reference/*.md",
                "dialects.md",
            ],
        ),
        "glossary.md",
    ],
    "Operate": [
        "deploying.md",
        "operating.md",
        "scaling.md",
        "processes.md",
        "limits.md",
        "telemetry.md",
        "metrics.md",
        "stores.md",
    ],
    "Project": ["project/architecture.md", "peers.md", "clients.md", "founding.md", "project/*.md"],
}
"""Section -> its pages in order, and groups of pages. A pattern stands for the rest of a folder.

``OTHER`` has all other pages of docs/.
"""


def documents() -> dict[Path, str]:
    """Return the documents of the repository that are pages, and the path of each page."""
    found = {ROOT / document: page for document, page in OUTSIDE_DOCS.items()}
    for document in sorted((ROOT / "docs").rglob("*.md")):
        found.setdefault(document, document.relative_to(ROOT / "docs").as_posix())
    return found


def write_navigation(pages: Iterable[str]) -> str:
    """Write the navigation of these pages, as TOML."""
    left = sorted(pages)
    names = [name for entries in SECTIONS.values() for entry in entries for name in _names_of(entry)]
    named = {name for name in names if "*" not in name}
    if missing := named.difference(left):
        raise LookupError(f"SECTIONS names pages that do not exist: {', '.join(sorted(missing))}")
    lines: list[str] = []
    for section, entries in SECTIONS.items():
        found = [one for entry in entries for one in _resolve(entry, left, named)]
        if section == OTHER:
            found += [json.dumps(page) for page in left if page not in named and "/" not in page]
        if found:
            lines += ["[[project.nav]]", f"{json.dumps(section)} = [{', '.join(found)}]"]
    return "\n".join(lines) + "\n"


def _names_of(entry: str | tuple[str, list[str]]) -> list[str]:
    return [entry] if isinstance(entry, str) else entry[1]


def _resolve(entry: str | tuple[str, list[str]], pages: list[str], named: Iterable[str]) -> Iterator[str]:
    found = [
        page
        for name in _names_of(entry)
        for page in pages
        if page == name or ("*" in name and page not in named and Path(page).match(name))
    ]
    if isinstance(entry, str):
        yield from map(json.dumps, found)
    elif found:
        yield f"{{ {json.dumps(entry[0])} = {json.dumps(found)} }}"
