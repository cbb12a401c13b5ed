"""Accessibility: axe finds nothing in light and dark, and every action works by keyboard alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from accessibility import axe_findings
from aguila_process import AguilaProcess
from chat_page import ChatPage
from inspector_page import InspectedThread
from playwright.sync_api import Page, expect

from aguila.agent import Run
from aguila.server import App, Request


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(server: AguilaProcess, open_page: Callable[..., ChatPage], scheme: str) -> None:
    chat = open_page(server.url, color_scheme=scheme)
    assert axe_findings(chat.page) == []
    for keyword in (
        "help",
        "tools",
        "reasoning",
        "steps",
        "subagents",
        "activity",
        "error",
        "state",
        "image",
        "generative",
    ):
        chat.write(f"{keyword} please")
        chat.is_idle()
    chat.page.get_by_role("button", name="State").click()
    assert axe_findings(chat.page) == []
    chat.write("interrupt please")
    expect(chat.question()).to_be_visible()
    assert axe_findings(chat.page) == []
    chat.page.get_by_role("button", name="Delete", exact=True).click()
    assert axe_findings(chat.page) == []
    chat.page.keyboard.press("Escape")
    chat.ask("approval please")
    assert axe_findings(chat.page) == []
    chat.question().get_by_label("Edit as JSON").check()
    assert axe_findings(chat.page) == []
    chat.question().get_by_role("button", name="Reject…").click()
    assert axe_findings(chat.page) == []
    chat.ask("frontend please")
    assert axe_findings(chat.page) == []


def tab_to(page: Page, name: str, *, back: bool = False) -> None:
    """Move the focus with Tab to the element of this name."""
    for _ in range(120):
        page.keyboard.press("Shift+Tab" if back else "Tab")
        focused: str = page.evaluate(
            "(document.activeElement.labels?.[0]?.textContent ?? document.activeElement.ariaLabel ?? '')"
            " || document.activeElement.textContent"
        )
        if focused.strip() == name:
            return
    raise AssertionError(f"Tab does not reach {name!r}")


def press(page: Page, name: str, key: str = "Enter", *, back: bool = False) -> None:
    """Move the focus with Tab to the element of this name, and press a key on it."""
    tab_to(page, name, back=back)
    page.keyboard.press(key)


def send(chat: ChatPage, text: str) -> None:
    """Send a message from the composer, which has the focus."""
    expect(chat.composer()).to_be_focused()
    chat.page.keyboard.type(text)
    chat.page.keyboard.press("Enter")


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
    expect(page.get_by_label("Title", exact=True)).to_be_focused()
    page.keyboard.type("Renamed by keyboard")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Renamed by keyboard")).to_be_visible()
    expect(page.get_by_role("button", name="Rename")).to_be_focused()
    press(page, "New thread", back=True)
    expect(chat.composer()).to_be_focused()
    page.keyboard.type("interrupt please")
    page.keyboard.press("Enter")
    expect(chat.question()).to_be_visible()
    expect(chat.question().get_by_label("colour")).to_be_focused()  # who waited in the composer answers at once
    page.keyboard.type("g")
    page.keyboard.press("Enter")
    chat.sees("It will be g.")
    chat.is_idle()
    press(page, "Archive", back=True)
    expect(page.get_by_role("button", name="Unarchive")).to_be_visible()
    press(page, "Delete", back=True)
    press(page, "Delete thread")
    expect(page.get_by_role("heading", name="New thread").first).to_be_visible()


def test_approvals_are_given_edited_and_refused_by_keyboard(
    server: AguilaProcess, open_page: Callable[..., ChatPage]
) -> None:
    chat = open_page(server.url)
    page = chat.page
    send(chat, "approval please")
    expect(chat.question()).to_be_visible()
    press(page, "Approve", back=True)
    chat.sees("Sent to ada@example.com.")
    chat.is_idle()
    send(chat, "approval again")
    expect(chat.question()).to_be_visible()
    press(page, "Edit as JSON", "Space", back=True)
    tab_to(page, "Arguments", back=True)
    page.keyboard.press("Control+A")
    page.keyboard.type('{"to": "grace@example.com"}')
    press(page, "Approve with changes")
    chat.sees("Sent to grace@example.com.")
    chat.is_idle()
    send(chat, "one more approval")
    expect(chat.question()).to_be_visible()
    press(page, "Reject…", back=True)
    expect(chat.question().get_by_label("Reason")).to_be_focused()
    press(page, "Back")
    expect(chat.question().get_by_role("button", name="Reject…")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.type("Too early.")
    press(page, "Reject")
    chat.sees("Nothing was sent.")
    chat.is_idle()
    expect(chat.composer()).to_be_focused()


def test_files_and_tools_of_the_page_work_by_keyboard(
    server: AguilaProcess, open_page: Callable[..., ChatPage], tmp_path: Path
) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("eagles")
    chat = open_page(server.url)
    page = chat.page
    expect(chat.composer()).to_be_focused()
    for name in ("Attach files", "Remove notes.txt", "Attach files"):
        tab_to(page, name, back=True)
        if name.startswith("Remove"):
            page.keyboard.press("Enter")
            expect(page.get_by_label("Attachments")).to_have_count(0)
            chat.composer().focus()
            continue
        with page.expect_file_chooser() as chooser:
            page.keyboard.press("Enter")
        chooser.value.set_files(notes)
        expect(page.get_by_label("Attachments").get_by_text("ready")).to_be_visible()
    press(page, "Message", "x")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="notes.txt")).to_be_visible()
    chat.is_idle()
    send(chat, "frontend please")
    expect(page.get_by_label("Confirmation")).to_be_visible()
    press(page, "No", back=True)
    expect(page.get_by_label("Confirmation")).to_have_count(0)
    tab_to(page, "Pick a file: a picture or a note")
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    chooser.value.set_files(notes)
    chat.sees("Your front end answered:")
    chat.sees("The page is lavender now.")


def test_a_token_is_entered_by_keyboard(serve: Callable[[Any], str], open_page: Callable[..., ChatPage]) -> None:
    def authenticate(request: Request) -> str | None:
        return {"Bearer ada-secret": "ada"}.get(request.headers.get("authorization", ""))

    async def agent(run: Run) -> None:
        await run.say(f"Hello, {run.principal}.")

    chat = open_page(serve(App(agent, page=True, authenticate=authenticate)))
    page = chat.page
    expect(page.get_by_label("Bearer token")).to_be_focused()
    assert axe_findings(page) == []
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("401: the server does not accept this token.")
    expect(page.get_by_label("Bearer token")).to_be_focused()
    page.keyboard.type("ada-secret")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_hidden()
    send(chat, "Hi")
    chat.sees("Hello, ada.")
    chat.console[:] = [line for line in chat.console if " 401 " not in line]


def test_the_inspector_works_by_keyboard(thread: InspectedThread, tmp_path: Path) -> None:
    thread.play("subagents", "r")
    thread.play("state", "s")
    one = thread.inspect("r")
    page = one.page
    expect(one.bar()).to_contain_text("success")
    # The threads and runs are links, so Tab and Enter open them.
    tab_to(page, "Open recording")
    # Spans, zoom and pan.
    one.timeline().get_by_role("group").focus()
    page.keyboard.press("ArrowRight")
    expect(one.timeline()).to_contain_text("subagent researcher")
    page.keyboard.press("+")
    expect(one.timeline().get_by_role("button", name="Fit")).to_be_enabled()
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("0")
    expect(one.timeline().get_by_role("button", name="Fit")).to_be_disabled()
    page.keyboard.press("Escape")
    expect(one.events()).to_contain_text("28 events")
    # The slider.
    tab_to(page, "Show the run as of event")
    page.keyboard.press("Home")
    expect(one.selected_row()).to_contain_text("RUN_STARTED")
    page.keyboard.press("ArrowRight")
    expect(one.selected_row()).to_contain_text("SUBAGENT_STARTED")
    press(page, "End")
    # The filters.
    tab_to(page, "Filter by text")
    page.keyboard.type("EAGLES")
    expect(one.rows()).to_have_count(1)
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    tab_to(page, "Filter by type")
    page.keyboard.type("SUBAGENT_S")
    expect(one.rows()).to_have_count(2)
    # The tabs.
    page.keyboard.type("All")
    tab_to(page, "Messages")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tabpanel")).to_contain_text("Nothing violates the protocol")
    # Compare, and back.
    tab_to(page, "Compare with another run", back=True)
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("region", name="Run s")).to_be_visible()
    press(page, "Back to the run", back=True)
    expect(one.events()).to_be_visible()
    # Download, and open the file.
    tab_to(page, "Download run")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    download.value.save_as(tmp_path / "run.jsonl")
    assert json.loads((tmp_path / "run.jsonl").read_text().splitlines()[1])["event"]["type"] == "RUN_STARTED"
    tab_to(page, "Open recording", back=True)
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    chooser.value.set_files(tmp_path / "run.jsonl")
    expect(page.get_by_role("heading", name="run.jsonl")).to_be_visible()
