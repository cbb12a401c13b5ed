"""``aguila inspect`` in front of third-party servers, in Chromium.

``make peers`` tries every feature without a browser.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from chat_page import ChatPage
from environments import peer_named, running
from inspector_page import InspectorPage
from playwright.sync_api import expect
from processes.commands import aguila_serve

RULES = {"quickstart": "VER-2", "pydantic_ai": None, "langgraph": "VER-2", "encoder_sse": None}
"""A rule that each server breaks, if any. Those with packages of their own are installed when they are first needed."""

CALLS_OFFERED = {"pydantic_ai"}
"""Servers that refuse the scripted call: the page does not offer its tool. tests/peers/test_inspect.py offers it."""


@pytest.mark.parametrize("name", RULES)
def test_chat_and_inspector_in_front_of_another_server(
    name: str, built_page: None, tmp_path: Path, open_page: Callable[..., ChatPage]
) -> None:
    with (
        running(peer_named(name)) as server,
        aguila_serve(tmp_path, server.url, "--no-open", command_name="inspect") as front,
    ):
        chat = open_page(front.url)
        page = chat.page
        expect(page.locator("header.bar")).to_contain_text(server.url)
        chat.write("cancel me later")
        chat.sees("tick tick")
        page.reload()
        chat.sees("tick tick tick tick")
        expect(chat.user_message("cancel me later")).to_be_visible()
        chat.stop()
        chat.sees("Stopped.")
        chat.is_idle()
        chat.write("interrupt please")
        if name == "langgraph":  # its interrupts have no message and no schema: the question is in the metadata
            expect(chat.question().get_by_role("heading")).to_have_text("Send it?")
            chat.question().get_by_label("Send as JSON").check()
            chat.question().get_by_label("Answer").fill('{"approved": true}')
            chat.question().get_by_role("button", name="Answer").click()
        else:
            chat.question().get_by_role("button", name="Approve").click()
        chat.sees("Sent.")
        chat.is_idle()
        if name not in CALLS_OFFERED:
            chat.write("frontend please")
            page.get_by_label("Pending call").get_by_label("Result").fill("teal")
            page.get_by_role("button", name="Send the result").click()
            chat.sees("The colour is teal.")
            chat.is_idle()
        chat.write("reasoning please")
        chat.sees("Forty-two.")
        chat.is_idle()
        page.get_by_role("link", name="Inspect", exact=True).last.click()
        inspector = InspectorPage(page, page.url)
        inspector.tab("Violations")
        expected = RULES[name] or "Nothing violates the protocol"
        expect(page.get_by_role("tabpanel")).to_contain_text(expected)
