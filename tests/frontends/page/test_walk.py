"""The main walk through the page: what CI runs. Every keyword of the demo, then edit, branch, reload and two tabs."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from aguila_process import AguilaProcess
from chat_page import ChatPage
from playwright.sync_api import expect

from aguila.cli.demo import FEATURES, png


def check_help(chat: ChatPage) -> None:
    expect(chat.messages().get_by_role("listitem")).to_have_count(len(FEATURES))


def check_text(chat: ChatPage) -> None:
    chat.sees("everybody who watches sees it grow.")
    chat.sees("3 in, 19 out tokens (demo words)")


def check_frontend(chat: ChatPage) -> None:
    expect(chat.page.locator("body")).to_have_css("background-color", "rgb(230, 230, 250)")
    chat.page.get_by_label("File", exact=True).locator("input").set_input_files(
        [{"name": "notes.txt", "mimeType": "text/plain", "buffer": b"eagles"}]
    )
    chat.page.get_by_label("Confirmation").get_by_role("button", name="Yes").click()
    chat.sees("Your front end answered:")
    chat.sees("The page is lavender now.")
    chat.sees('"name":"notes.txt"')


def check_tools(chat: ChatPage) -> None:
    chat.sees("It is 24 degrees in Lisbon and 11 in Oslo.")
    cards = chat.page.locator(".call")
    expect(cards).to_have_count(2)
    expect(cards.first).to_contain_text(re.compile(r"get_weather.*done · .*Lisbon.*24", re.DOTALL))


def check_state(chat: ChatPage) -> None:
    chat.sees("Now with thyme.")
    chat.page.get_by_role("button", name="State").click()
    expect(chat.page.get_by_role("region", name="State")).to_contain_text('"potato"')


def check_reasoning(chat: ChatPage) -> None:
    chat.sees("The answer is 42.")
    expect(chat.page.get_by_text("six sevens are forty-two")).to_be_hidden()
    chat.page.get_by_text(re.compile("Thought for [0-9.]+ m?s")).click()
    expect(chat.page.get_by_text("six sevens are forty-two")).to_be_visible()


def check_activity(chat: ChatPage) -> None:
    chat.sees("The plan is done.")
    expect(chat.page.get_by_label("Plan").get_by_text("(done)")).to_have_count(3)


def check_steps(chat: ChatPage) -> None:
    research = chat.page.get_by_label("Step research")
    expect(research.get_by_label("Step search")).to_contain_text(re.compile("I search.*found.*1", re.DOTALL))
    expect(research).to_contain_text("two sources")


def check_subagents(chat: ChatPage) -> None:
    expect(chat.page.get_by_label("Subagent researcher")).to_contain_text("I found two papers about eagles.")
    expect(chat.page.get_by_label("Subagent critic")).to_contain_text("One of them is about golf.")
    chat.sees("My team has spoken.")


def check_interrupt(chat: ChatPage) -> None:
    chat.question().get_by_label("colour").fill("green")
    chat.question().get_by_role("button", name="Answer").click()
    chat.sees("It will be green.")
    expect(chat.question()).to_have_count(0)


def check_approval(chat: ChatPage) -> None:
    chat.question().get_by_label("to").fill("grace@example.com")
    chat.question().get_by_role("button", name="Approve with changes").click()
    chat.sees("Sent to grace@example.com.")


def check_image(chat: ChatPage) -> None:
    chat.sees("I drew a blue square.")
    expect(chat.page.locator(".call img")).to_have_js_property("naturalWidth", 16)


def check_generative(chat: ChatPage) -> None:
    expect(chat.page.get_by_label("Surface").get_by_text("Book the flight?").first).to_be_visible()
    chat.sees("Custom event demo.open-json-ui")
    chat.sees("<h1>Eagles</h1>")
    chat.page.get_by_label("Surface").get_by_role("button").click()
    expect(chat.user_message("book")).to_be_visible()


def check_error(chat: ChatPage) -> None:
    expect(chat.messages().get_by_role("alert")).to_contain_text(re.compile("Reference: [0-9a-f-]{36}"))


def check_slow(chat: ChatPage) -> None:
    chat.sees("Stopped.")


CHECKS = {name.removeprefix("check_"): check for name, check in globals().items() if name.startswith("check_")}


def test_every_keyword_of_the_demo_shows_its_feature(server: AguilaProcess, open_page: Callable[..., ChatPage]) -> None:
    assert set(CHECKS) == set(FEATURES)
    chat = open_page(server.url)
    for keyword, check in CHECKS.items():
        chat.new_thread()
        chat.write(f"Show me {keyword}, please")
        if keyword == "slow":
            chat.sees("1 2 3")
            chat.stop()
        chat.is_idle()
        check(chat)


def test_a_new_thread_shows_the_agent_and_sends_a_suggestion(
    server: AguilaProcess, open_page: Callable[..., ChatPage]
) -> None:
    chat = open_page(server.url)
    expect(chat.messages().get_by_role("heading", name="Demo")).to_be_visible()
    chat.page.get_by_role("button", name="Show me tools").click()
    chat.sees("It is 24 degrees in Lisbon and 11 in Oslo.")
    expect(chat.user_message("Show me tools")).to_be_visible()


def test_an_attached_image_is_uploaded_answered_and_shown(
    server: AguilaProcess, open_page: Callable[..., ChatPage]
) -> None:
    chat = open_page(server.url)
    chat.attach("square.png", "image/png", png(5, 7, (200, 0, 0)))
    chat.write("What image is this?")
    chat.sees(re.compile("You sent a PNG image, 5 by 7, of [0-9]+ bytes"))
    expect(chat.page.get_by_label("You", exact=True).get_by_alt_text("square.png")).to_have_js_property(
        "naturalWidth", 5
    )


def test_edit_regenerate_and_switch_between_branches(server: AguilaProcess, open_page: Callable[..., ChatPage]) -> None:
    chat = open_page(server.url)
    chat.ask("text please")
    chat.write("steps please")
    chat.sees("two sources")
    chat.is_idle()
    second = chat.user_message("steps please")
    second.get_by_role("button", name="Edit").click()
    chat.page.get_by_label("Edit message").fill("reasoning please")
    chat.page.keyboard.press("Enter")
    chat.sees("The answer is 42.")
    chat.is_idle()
    expect(chat.messages()).not_to_contain_text("two sources")
    edited = chat.user_message("reasoning please")
    expect(edited).to_contain_text("2 / 2")
    chat.page.get_by_role("button", name="Regenerate").last.click()
    expect(edited).to_contain_text("3 / 3")
    chat.is_idle()
    edited.get_by_role("button", name="Previous branch").click()
    expect(edited).to_contain_text("2 / 3")
    edited.get_by_role("button", name="Previous branch").click()
    chat.sees("two sources")
    expect(chat.messages()).not_to_contain_text("The answer is 42.")
    chat.page.reload()
    chat.sees("two sources")
    expect(chat.user_message("steps please")).to_contain_text("1 / 3")


def test_the_first_message_has_branches_too(server: AguilaProcess, open_page: Callable[..., ChatPage]) -> None:
    chat = open_page(server.url)
    chat.ask("text please")
    chat.user_message("text please").get_by_role("button", name="Edit").click()
    chat.page.get_by_label("Edit message").fill("activity please")
    chat.page.get_by_role("button", name="Send again").click()
    chat.sees("The plan is done.")
    chat.is_idle()
    expect(chat.messages()).not_to_contain_text("sees it grow")
    chat.user_message("activity please").get_by_role("button", name="Previous branch").click()
    chat.sees("sees it grow")
    expect(chat.messages()).not_to_contain_text("The plan is done.")
    chat.write("steps please")
    chat.sees("two sources")
    chat.is_idle()
    expect(chat.user_message("text please")).to_contain_text("1 / 2")


def test_a_reload_during_a_run_and_a_second_tab_show_the_same_run(
    server: AguilaProcess, open_page: Callable[..., ChatPage]
) -> None:
    chat = open_page(server.url)
    chat.write("slow please")
    chat.sees("1 2 3 4 5")
    chat.page.reload()
    chat.sees(" ".join(map(str, range(1, 15))))
    expect(chat.user_message("slow please")).to_be_visible()
    other = open_page(chat.page.url, context=chat.page.context)
    other.sees("1 2 3 4 5")
    other.stop()
    for tab in (chat, other):
        tab.is_idle()
        tab.sees("Stopped.")
    other.write("steps please")
    for tab in (chat, other):
        expect(tab.user_message("steps please")).to_be_visible()
        tab.sees("two sources")


@pytest.mark.parametrize("width", [360, 2560])
def test_the_page_fits_narrow_and_wide_windows(
    server: AguilaProcess, open_page: Callable[..., ChatPage], width: int
) -> None:
    chat = open_page(server.url, viewport={"width": width, "height": 700})
    chat.write("tools please")
    chat.sees("11 in Oslo.")
    assert chat.page.evaluate("document.documentElement.scrollWidth") == width
    expect(chat.page.get_by_role("button", name="Threads")).to_be_visible(visible=width == 360)
    expect(chat.composer()).to_be_in_viewport()
    chat.page.get_by_role("button", name="Rename").click()
    title = chat.page.get_by_label("Title", exact=True).bounding_box()
    assert title is not None
    assert title["width"] > 100
    chat.page.keyboard.press("Escape")


def test_a_message_that_is_edited_stays_in_view(server: AguilaProcess, open_page: Callable[..., ChatPage]) -> None:
    chat = open_page(server.url)
    page = chat.page
    chat.ask("tools please")
    spare: int = page.evaluate(
        "document.querySelector('.scroll').clientHeight - document.querySelector('.scroll > .column').offsetHeight"
    )
    page.set_viewport_size({"width": 1280, "height": 900 - spare + 4})  # the messages just fit
    page.get_by_role("button", name="Edit").click()
    expect(page.get_by_label("Edit message")).to_be_focused()
    frames = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    assert page.evaluate(f"{frames}.then(() => document.querySelector('.scroll').scrollTop)") == 0
