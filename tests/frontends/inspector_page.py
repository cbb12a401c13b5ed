"""The inspector as its users see it: what to click and where to look."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import httpx2
from aguila_process import AguilaProcess
from chat_page import ChatPage
from playwright.sync_api import Locator, Page, expect

from aguila.codec import EventDecoder, encode
from aguila.stream import reduce


class InspectorPage:
    """The inspector on one run."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        page.goto(url)

    def bar(self) -> Locator:
        return self.page.locator(".run-bar")

    def timeline(self) -> Locator:
        return self.page.get_by_role("region", name="Timeline")

    def events(self) -> Locator:
        return self.page.get_by_role("region", name="Events", exact=True)

    def rows(self) -> Locator:
        """Return the events that the list shows now."""
        return self.page.get_by_role("listbox", name="Events of the run").get_by_role("option")

    def selected_row(self) -> Locator:
        return self.page.get_by_role("listbox", name="Events of the run").get_by_role("option", selected=True)

    def tab(self, name: str) -> None:
        self.page.get_by_role("tab", name=name).click()

    def select(self, event_type: str) -> None:
        """Select the first event of a type."""
        self.rows().filter(has_text=event_type).first.click()

    def travel(self, index: int) -> None:
        """Move the slider to an event."""
        self.page.get_by_label("Show the run as of event").fill(str(index))

    def copied(self, button: str) -> str:
        """Press a button that copies, and return the copied text."""
        self.page.evaluate("navigator.clipboard.writeText('')")
        self.page.get_by_role("button", name=button).click()
        for _ in range(200):
            text = self.page.evaluate("navigator.clipboard.readText()")
            if text:
                return text
            self.page.wait_for_timeout(20)
        raise AssertionError(f"{button} copied nothing")

    def drop(self, name: str, text: str) -> None:
        """Drop a file on the page."""
        transfer = self.page.evaluate_handle(
            "([name, text]) => { const t = new DataTransfer(); t.items.add(new File([text], name)); return t }",
            [name, text],
        )
        self.page.dispatch_event("main", "drop", {"dataTransfer": transfer})


class InspectedThread:
    """A thread of its own on a server, whose runs are shown. Runs are those of the demo."""

    def __init__(self, server: AguilaProcess, open_page: Callable[..., ChatPage]) -> None:
        self.server = server
        self.id = uuid.uuid4().hex[:8]
        self._open_page = open_page

    def url(self, run_id: str) -> str:
        return f"{self.server.url}/#/inspect/{self.id}/{run_id}"

    def input(self, text: str, run_id: str) -> dict[str, Any]:
        message = {"id": f"user-{run_id}", "role": "user", "content": text}
        return {"threadId": self.id, "runId": run_id, "protocolVersion": "1.1", "messages": [message]}

    def play(self, text: str, run_id: str) -> None:
        """Play a run to its end."""
        httpx2.post(self.server.url, json=self.input(text, run_id), timeout=60).raise_for_status()

    def inspect(self, run_id: str = "r", **options: Any) -> InspectorPage:
        """Open the inspector on a run."""
        return InspectorPage(self._open_page(self.server.url, **options).page, self.url(run_id))


def check_time_travel(one: InspectorPage, events: Sequence[dict[str, Any]], positions: Sequence[int]) -> None:
    """Compare the messages and the state at some events with those that the events up to there give."""
    expect(one.bar()).to_contain_text(f"{len(events):,} events")
    decoder = EventDecoder()
    typed = [event for raw in events for event in decoder.feed(json.dumps(raw))]
    for index in positions:
        one.travel(index)
        wanted = reduce(typed[: index + 1])
        one.tab("Messages")
        assert json.loads(one.copied("Copy messages")) == json.loads(encode(wanted.messages)), index
        one.tab("State")
        assert json.loads(one.copied("Copy state")) == wanted.state, index
