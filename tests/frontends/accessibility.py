"""Run axe, a checker of accessibility, on a page in the browser."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page
from recipes import REPOSITORY

_AXE = REPOSITORY / "web" / "node_modules" / "axe-core" / "axe.min.js"


def axe_findings(page: Page) -> list[str]:
    """Run axe on the page as it is now, and return its findings with the elements."""
    # A colour that is changing has no contrast yet.
    page.evaluate(
        "Promise.allSettled(document.getAnimations().filter((one) => one instanceof CSSTransition)"
        ".map((one) => one.finished)).then(() => null)"
    )
    page.evaluate(_AXE.read_text("utf-8"))
    found: Any = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {node['html'][:200]} {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]
