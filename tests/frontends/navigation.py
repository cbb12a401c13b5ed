"""The places of the page, and the steps between them: what must be shown after each step."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from chat_page import ChatPage
from playwright.sync_api import expect
from serving import Gate, Server

from aguila.agent import Run
from aguila.server import App

NAMES = ("start page", "draft", "thread", "running thread", "inspector", "unknown thread", "thread of another agent")
DRAFT = "A message that is not sent"

LINK = """
(hash) => {
  document.getElementById("test-link")?.remove();
  const link = Object.assign(document.createElement("a"), { id: "test-link", href: hash, textContent: "Test link" });
  document.querySelector("header.bar").append(link);
}
"""


def say(text: str) -> list[dict[str, Any]]:
    return [{"id": "m", "role": "user", "content": text}]


class Places:
    """A server with a thread for each place, and the page on it."""

    def __init__(self, server: Server, gate: Gate, open_page: Callable[..., ChatPage]) -> None:
        # A thread is titled with its first message: here its id.
        server.events(thread_id="done", run_id="r1", messages=say("done"))
        server.events(path="/agents/other", thread_id="foreign", run_id="r2", messages=say("foreign"))
        with server.stream("POST", "/", json=start("busy", say("busy"))):
            gate.await_reached()
        self.chat = open_page(server.url)
        self.page = self.chat.page

    @staticmethod
    def app(gate: Gate) -> App:
        async def agent(run: Run) -> None:
            await run.say(f"Answer in {run.thread_id}.")
            if run.thread_id == "busy":
                await gate.wait()

        return App({"default": agent, "other": agent}, allow_anonymous=True, page=True)

    def hash_of(self, place: str) -> str:
        """Return the address of a place, which a link or a user can have."""
        return {
            "start page": "",
            "draft": "#/chat",
            "thread": "#/chat/done",
            "running thread": "#/chat/busy",
            "inspector": "#/inspect/done/r1",
            "unknown thread": "#/chat/nowhere",
            "thread of another agent": "#/chat/foreign",
        }[place]

    def check(self, place: str) -> None:
        """Check that the page shows a place, that its address stays, and that the tab does not spin."""
        self.check_responds()
        heading = self.page.get_by_role("heading", level=1)
        messages = self.chat.messages()
        if place in ("start page", "draft"):
            expect(heading).to_have_text("New thread")
            expect(messages).to_contain_text("Write a message to start.")
            assert re.fullmatch("(#/chat)?", self.hash()), self.hash()
        elif place == "inspector":
            expect(heading).to_have_text("Inspector")
            expect(self.page.locator(".run-bar")).to_contain_text("r1")
        elif place == "unknown thread":
            expect(heading).to_have_text("nowhere")
            expect(messages).to_contain_text("Write a message to start.")
        else:
            thread = self.hash_of(place).removeprefix("#/chat/")
            expect(heading).to_have_text(thread)
            expect(messages).to_contain_text(f"Answer in {thread}.")
            stop = self.page.get_by_role("button", name="Stop")
            expect(stop).to_be_visible(visible=place == "running thread")
        if place not in ("start page", "draft"):
            assert self.hash() == self.hash_of(place)
        if place == "draft":
            expect(self.chat.composer()).to_have_value(DRAFT)
        # Two frames and a task later nothing has moved the address.
        before = self.hash()
        self.page.evaluate(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
        )
        assert self.hash() == before
        self.check_responds()

    def check_responds(self) -> None:
        """Wait until the tab evaluates an expression. A tab that spins never does."""
        self.page.wait_for_function("1 + 1 === 2", timeout=20_000)

    def hash(self) -> str:
        return self.page.evaluate("location.hash")

    def go(self, place: str, means: str) -> None:
        """Go to a place by a click or by its URL, and check it."""
        if means == "click":
            self._click(place)
        else:
            self.page.goto(self.chat.url.rstrip("/") + "/" + self.hash_of(place))
        if place == "draft":
            self.chat.composer().fill(DRAFT)
        self.check(place)

    def reload(self, place: str) -> None:
        """Reload the page at a place, and check it."""
        self.page.reload()
        self.check(place)

    def forget_missing(self) -> None:
        """Remove what the browser reports about the thread that does not exist."""
        self.chat.console[:] = [line for line in self.chat.console if " 404 " not in line]

    def _click(self, place: str) -> None:
        listed = {"thread": "done", "running thread": "busy", "thread of another agent": "foreign"}
        in_chat = not self.hash().startswith("#/inspect")
        if place in ("start page", "draft"):
            self.page.get_by_role("link", name="New thread" if in_chat else "Aguila", exact=True).click()
        elif place in listed and in_chat:
            self.page.get_by_label("Threads", exact=True).get_by_role("link", name=re.compile(listed[place])).click()
        else:
            self.page.evaluate(LINK, self.hash_of(place))
            self.page.get_by_role("link", name="Test link").click()


def round_trip(places: Sequence[str]) -> Iterator[str]:
    """Return a walk that goes from each place to each other one exactly once."""
    steps = {place: [other for other in places if other != place] for place in places}
    walk: list[str] = []
    stack = [places[0]]
    while stack:  # Hierholzer's algorithm
        if steps[stack[-1]]:
            stack.append(steps[stack[-1]].pop())
        else:
            walk.append(stack.pop())
    return reversed(walk)


def start(thread: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"threadId": thread, "runId": "r3", "messages": messages, "protocolVersion": "1.1"}
