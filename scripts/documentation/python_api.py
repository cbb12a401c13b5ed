"""The reference of the Python packages that docs/reference does not have: from headers and docstrings."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from reference_python import write_page

_MODULES: Final = {
    "server": "Serve agents: `App` and its options.",
    "agent": "What an agent is called with: `Run` and its handles.",
    "client": "Call agents: `Client`, `AsyncClient`, `ChatClient`.",
    "frameworks": "Serve other endpoints and iterators of events; [each framework](../frameworks.md).",
    "testing": "Test agents and stores of your own.",
    "stream": "Verify, reduce, compact and write streams of events.",
    "store": "The event log: the contract and its records. [Write a store](../stores.md) shows how.",
    "errors": "All exceptions. [Error codes](../errors.md) has those of a server.",
}


def python_pages() -> dict[str, str]:
    """Return the pages, each as Markdown."""
    return {
        f"reference/{name}.md": write_page(f"aguila.{name}", introduction, [import_module(f"aguila.{name}")])
        for name, introduction in _MODULES.items()
    }
