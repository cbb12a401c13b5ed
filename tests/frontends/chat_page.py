"""The page as its users see it: what to click and where to look."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import Locator, Page, expect


class ChatPage:
    """The chat of Aguila's page. ``console`` must stay empty: clear the errors that a test has caused on purpose."""

    def __init__(self, page: Page, url: str, console: list[str]) -> None:
        self.page = page
        self.url = url
        self.console = console

    @property
    def thread_id(self) -> str:
        found = re.search(r"#/chat/([^/]+)", self.page.url)
        assert found, self.page.url
        return found[1]

    def messages(self) -> Locator:
        return self.page.get_by_role("log", name="Messages")

    def composer(self) -> Locator:
        return self.page.get_by_role("textbox", name="Message")

    def write(self, text: str) -> None:
        """Type a message as a person would, and send it."""
        self.composer().click()
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")

    def ask(self, text: str) -> None:
        """Send a message in a new thread, and wait until the run has ended."""
        self.new_thread()
        self.write(text)
        expect(self.messages()).to_contain_text(text)
        self.is_idle()

    def is_idle(self) -> None:
        """Wait until the page offers to send again."""
        expect(self.page.get_by_role("button", name="Send", exact=True)).to_be_visible()
        expect(self.messages().get_by_text("Working…")).to_have_count(0)

    def sees(self, text: str | re.Pattern[str]) -> None:
        expect(self.messages()).to_contain_text(text)

    def stop(self) -> None:
        self.page.get_by_role("button", name="Stop").click()

    def new_thread(self) -> None:
        self.page.get_by_role("link", name="New thread").click()
        expect(self.page.get_by_role("heading", name="New thread").first).to_be_visible()

    def question(self) -> Locator:
        return self.page.get_by_label("Question", exact=True)

    def user_message(self, text: str) -> Locator:
        return self.page.get_by_label("You", exact=True).filter(has_text=text)

    def attach(self, name: str, media_type: str, data: bytes) -> None:
        files: Any = [{"name": name, "mimeType": media_type, "buffer": data}]
        self.page.locator(".composer input[type=file]").set_input_files(files)
        expect(self.page.get_by_label("Attachments").get_by_text("ready")).to_be_visible()
