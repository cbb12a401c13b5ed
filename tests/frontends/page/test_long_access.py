"""Accessibility: axe finds nothing in light and dark, and every action works by keyboard alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aguila_process import AguilaProcess
from chat_page import ChatPage
from playwright.sync_api import Page, expect
from recipes import REPOSITORY

AXE = REPOSITORY / "web" / "node_modules" / "axe-core" / "axe.min.js"


def violations(page: Page) -> list[str]:
    """Return what axe finds on the page as it is."""
    page.evaluate(AXE.read_text())
    found: Any = page.evaluate("axe.run({resultTypes: ['violations']})")
    return [
        f"{one['id']}: {node['html']} {node['failureSummary']}" for one in found["violations"] for node in one["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(server: AguilaProcess, open_page: Callable[..., ChatPage], scheme: str) -> None:
    chat = open_page(server.url, color_scheme=scheme)
    assert violations(chat.page) == []
    for keyword in ("help", "tools", "reasoning", "steps", "subagents", "activity", "error", "state"):
        chat.write(f"{keyword} please")
        chat.is_idle()
    chat.page.get_by_role("button", name="State").click()
    assert violations(chat.page) == []
    chat.write("interrupt please")
    expect(chat.question()).to_be_visible()
    assert violations(chat.page) == []
    chat.page.get_by_role("button", name="Delete", exact=True).click()
    assert violations(chat.page) == []
    chat.page.keyboard.press("Escape")
    chat.ask("approval please")
    assert violations(chat.page) == []
    chat.ask("frontend please")
    assert violations(chat.page) == []


def press(page: Page, name: str, key: str = "Enter", *, back: bool = False) -> None:
    """Move the focus with Tab to the element of this name, and press a key on it."""
    for _ in range(120):
        page.keyboard.press("Shift+Tab" if back else "Tab")
        focused: str = page.evaluate(
            "(document.activeElement.labels?.[0]?.textContent ?? document.activeElement.ariaLabel ?? '')"
            " || document.activeElement.textContent"
        )
        if focused.strip() == name:
            page.keyboard.press(key)
            return
    raise AssertionError(f"Tab does not reach {name!r}")


def test_every_action_works_by_keyboard(server: AguilaProcess, open_page: Callable[..., ChatPage]) -> None:
    chat = open_page(server.url)
    page = chat.page
    expect(chat.composer()).to_be_focused()
    page.keyboard.type("text please")
    page.keyboard.press("Enter")
    chat.sees("sees it grow")
    chat.is_idle()
    press(page, "Edit", back=True)
    expect(page.get_by_label("Edit message")).to_be_focused()
    page.keyboard.press("Control+A")
    page.keyboard.type("slow please")
    press(page, "Send again")
    chat.sees("1 2 3")
    press(page, "Stop")
    chat.sees("Stopped.")
    press(page, "Previous branch", back=True)
    chat.sees("sees it grow")
    press(page, "Regenerate", back=True)
    expect(chat.user_message("text please")).to_contain_text("3 / 3")
    chat.is_idle()
    press(page, "Rename", back=True)
    expect(page.get_by_label("Title")).to_be_focused()
    page.keyboard.type("Renamed by keyboard")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Renamed by keyboard")).to_be_visible()
    press(page, "New thread", back=True)
    expect(chat.composer()).to_be_focused()
    page.keyboard.type("interrupt please")
    page.keyboard.press("Enter")
    expect(chat.question()).to_be_visible()
    press(page, "colour", "g", back=True)
    page.keyboard.press("Enter")
    chat.sees("It will be g.")
    chat.is_idle()
    press(page, "Archive", back=True)
    expect(page.get_by_role("button", name="Unarchive")).to_be_visible()
    press(page, "Delete", back=True)
    press(page, "Delete thread")
    expect(page.get_by_role("heading", name="New thread").first).to_be_visible()
