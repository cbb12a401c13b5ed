"""An agent with the reference MCP servers in the page: progress, an image, a question of a server, an approval."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from chat_page import ChatPage
from models.mcp_agent import tour
from playwright.sync_api import expect

from aguila.server import App


def test_mcp_servers_show_progress_and_images_and_ask(
    tmp_path: Path, serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    chat = open_page(serve(App(tour(tmp_path), allow_anonymous=True, page=True)))
    chat.write("go")
    form = chat.question()
    form.get_by_label("String", exact=True).fill("Ann")
    form.get_by_label("Boolean", exact=True).check()
    form.get_by_role("button", name="Answer").click()
    chat.page.get_by_role("button", name="Approve").click()
    chat.sees("It returned:")
    chat.is_idle()
    chat.sees("mcp-progress")
    expect(chat.messages().locator("img")).to_be_visible()
    assert (tmp_path / "note.txt").read_text() == "eagles"
