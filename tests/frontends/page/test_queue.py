"""Messages that are written during a run wait for its end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from accessibility import axe_findings
from chat_page import ChatPage
from playwright.sync_api import Locator, expect
from serving import Gate
from waiting import wait_until

from aguila.agent import Run
from aguila.server import App


class Desk:
    """A page, and an agent that answers each message with its number when its gate is opened."""

    def __init__(self, serve: Callable[[Any], str], open_page: Callable[..., ChatPage]) -> None:
        self.gates: dict[str, Gate] = defaultdict(Gate)

        async def agent(run: Run) -> None:
            text = run.user_text
            await self.gates[text].wait()
            if text == "fail":
                raise RuntimeError("the agent fails")
            if text == "ask":
                await run.ask("Which colour?", schema={"type": "object", "properties": {"colour": {"type": "string"}}})
            count = sum(message.role == "user" for message in run.messages)
            await run.say(f"Answer {count} to {text}.")

        self.open_page = open_page
        self.chat = open_page(serve(App(agent, allow_anonymous=True, page=True)))

    def waiting(self) -> Locator:
        return self.chat.page.get_by_role("region", name="Waiting messages")


@pytest.fixture
def desk(serve: Callable[[Any], str], open_page: Callable[..., ChatPage]) -> Iterator[Desk]:
    desk = Desk(serve, open_page)
    yield desk
    for gate in desk.gates.values():
        gate.open()


def test_messages_written_during_a_run_wait_and_are_sent_one_after_the_other(desk: Desk) -> None:
    chat = desk.chat
    chat.write("one")
    desk.gates["one"].await_reached()
    chat.write("two")
    expect(chat.composer()).to_have_value("")
    expect(desk.waiting()).to_contain_text("Sent when the run ends.")
    chat.write("three")
    expect(desk.waiting().get_by_role("listitem")).to_have_count(2)
    expect(chat.messages()).not_to_contain_text("two")
    assert axe_findings(chat.page) == []
    desk.gates["one"].open()
    chat.sees("Answer 1 to one.")
    expect(chat.user_message("two")).to_be_visible()
    expect(desk.waiting().get_by_role("listitem")).to_have_text(["threeTake back"])
    desk.gates["three"].open()
    desk.gates["two"].open()
    chat.sees("Answer 2 to two.")
    chat.sees("Answer 3 to three.")
    expect(desk.waiting()).to_have_count(0)
    chat.is_idle()


def test_a_message_that_waits_is_taken_back_with_its_attachment(desk: Desk) -> None:
    chat = desk.chat
    chat.write("one")
    desk.gates["one"].await_reached()
    chat.attach("note.txt", "text/plain", b"eagles")
    chat.write("two")
    expect(desk.waiting()).to_contain_text("two · note.txt")
    chat.composer().fill("more")
    desk.waiting().get_by_role("button", name="Take back").click()
    expect(desk.waiting()).to_have_count(0)
    expect(chat.composer()).to_have_value("two\nmore")
    expect(chat.page.get_by_label("Attachments")).to_contain_text("note.txt")
    desk.gates["one"].open()
    chat.sees("Answer 1 to one.")
    chat.is_idle()
    expect(chat.page.get_by_label("You", exact=True)).to_have_count(1)


def test_a_question_is_answered_before_a_message_that_waits_is_sent(desk: Desk) -> None:
    chat = desk.chat
    chat.write("ask")
    desk.gates["ask"].await_reached()
    chat.write("two")
    desk.gates["ask"].open()
    expect(chat.question()).to_be_visible()
    expect(desk.waiting()).to_contain_text("Sent after your answer.")
    desk.gates["two"].open()
    chat.question().get_by_label("colour").fill("green")
    chat.question().get_by_role("button", name="Answer").click()
    chat.sees("Answer 1 to ask.")
    chat.sees("Answer 2 to two.")


def test_after_a_failed_run_a_message_waits_for_its_user(desk: Desk) -> None:
    chat = desk.chat
    chat.write("fail")
    desk.gates["fail"].await_reached()
    chat.write("two")
    desk.gates["fail"].open()
    expect(chat.messages().get_by_role("alert")).to_be_visible()
    expect(desk.waiting()).to_contain_text("Not sent.")
    desk.gates["two"].open()
    desk.waiting().get_by_role("button", name="Send now").click()
    chat.sees("Answer 2 to two.")
    expect(desk.waiting()).to_have_count(0)


def test_a_stopped_run_sends_the_message_that_waits(desk: Desk) -> None:
    chat = desk.chat
    chat.write("one")
    desk.gates["one"].await_reached()
    chat.write("two")
    desk.gates["two"].open()
    chat.stop()
    chat.sees("Stopped.")
    chat.sees("Answer 2 to two.")


def test_a_message_goes_on_waiting_after_a_reload_and_is_sent_once(desk: Desk) -> None:
    chat = desk.chat
    chat.write("one")
    desk.gates["one"].await_reached()
    chat.write("two")
    chat.composer().fill("a draft")
    chat.page.reload()
    expect(desk.waiting()).to_contain_text("Sent when the run ends.")
    expect(chat.composer()).to_have_value("a draft")
    desk.gates["two"].open()
    desk.gates["one"].open()
    chat.sees("Answer 2 to two.")
    expect(desk.waiting()).to_have_count(0)
    chat.page.reload()
    chat.sees("Answer 2 to two.")
    expect(chat.user_message("two")).to_have_count(1)
    expect(desk.waiting()).to_have_count(0)


def test_in_a_thread_that_is_left_a_message_waits_for_its_user(desk: Desk) -> None:
    chat = desk.chat
    chat.write("one")
    desk.gates["one"].await_reached()
    chat.write("two")
    expect(desk.waiting()).to_be_visible()
    chat.new_thread()
    expect(desk.waiting()).to_have_count(0)
    desk.gates["one"].open()
    desk.gates["two"].open()
    threads = chat.url.rstrip("/") + "/threads"
    wait_until(lambda: not chat.page.request.get(threads).json()["threads"][0]["isRunning"])
    chat.page.go_back()
    chat.sees("Answer 1 to one.")
    desk.waiting().get_by_role("button", name="Send now").click()
    chat.sees("Answer 2 to two.")
    expect(desk.waiting()).to_have_count(0)


def test_messages_that_wait_in_two_tabs_are_sent_one_after_the_other(desk: Desk) -> None:
    chat = desk.chat
    chat.write("one")
    desk.gates["one"].await_reached()
    other = desk.open_page(chat.page.url, context=chat.page.context)
    other.sees("one")
    chat.write("two")
    other.write("three")
    for tab in (chat, other):
        expect(tab.page.get_by_role("region", name="Waiting messages")).to_contain_text("Sent when the run ends.")
    for text in ("two", "three", "one"):
        desk.gates[text].open()
    for tab in (chat, other):
        tab.sees("Answer 1 to one.")
        tab.sees("Answer 2 to ")
        tab.sees("Answer 3 to ")
        expect(tab.page.get_by_role("group", name="Branches")).to_have_count(0)
        expect(tab.page.get_by_role("region", name="Waiting messages")).to_have_count(0)


def test_an_answer_to_a_question_that_was_answered_elsewhere_shows_the_thread_at_once(desk: Desk) -> None:
    chat = desk.chat
    desk.gates["ask"].open()
    chat.write("ask")
    expect(chat.question()).to_be_visible()
    other = desk.open_page(chat.page.url)  # in another browser
    for tab, colour in ((other, "green"), (chat, "red")):
        tab.question().get_by_label("colour").fill(colour)
    other.question().get_by_role("button", name="Answer").click()
    other.sees("Answer 1 to ask.")
    chat.question().get_by_role("button", name="Answer").click()
    expect(chat.page.get_by_role("alert")).to_contain_text("answered in another tab or by another client")
    expect(chat.question()).to_have_count(0, timeout=10_000)
    chat.sees("Answer 1 to ask.")
    chat.is_idle()
    chat.console[:] = [line for line in chat.console if " 409 " not in line]
