"""More of the inspector in Chromium: cost, comparison, files, widths, keyboard."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from aguila_process import AguilaProcess
from chat_page import ChatPage
from inspector_page import InspectedThread, InspectorPage
from playwright.sync_api import expect
from stores.long_run import long_run

from aguila.cli.check import check_file

OpenPage = Callable[..., ChatPage]


def test_the_cost_of_a_run(thread: InspectedThread) -> None:
    thread.play("text", "r")
    one = thread.inspect()
    one.tab("Cost")
    panel = one.page.get_by_role("tabpanel")
    expect(panel).to_contain_text("First event after the start")
    expect(panel).to_contain_text(re.compile(r"Longest gap\s*\d+ ms after event"))
    expect(panel.get_by_role("row", name=re.compile("words"))).to_contain_text(re.compile("all calls.*19"))
    expect(panel.get_by_role("row", name=re.compile("TEXT_MESSAGE_CONTENT"))).to_be_visible()
    one.tab("Input")
    expect(panel).to_contain_text(thread.id)


def test_the_tokens_of_each_model_call(thread: InspectedThread) -> None:
    thread.play("tools", "r")
    one = thread.inspect()
    one.tab("Cost")
    rows = one.page.get_by_role("tabpanel").get_by_role("row", name=re.compile("demo words"))
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text(re.compile("call 1.*3.*12"))
    expect(rows.nth(1)).to_contain_text(re.compile("call 2.*24.*10"))
    expect(rows.nth(2)).to_contain_text(re.compile("all calls.*27.*22"))


def test_two_runs_are_compared(thread: InspectedThread) -> None:
    thread.play("text", "r")
    thread.play("state", "s")
    one = thread.inspect()
    one.page.get_by_label("Compare with another run").select_option("s")
    expect(one.page.get_by_role("region", name="Run r")).to_contain_text("1 differ")
    expect(one.page.get_by_role("region", name="Run s")).to_contain_text("potato")
    expect(one.page.get_by_role("row", name=re.compile("^Duration"))).to_be_visible()
    one.page.get_by_role("button", name="Back to the run").click()
    expect(one.events()).to_be_visible()


def test_a_downloaded_run_is_a_recording_that_the_page_opens(thread: InspectedThread, tmp_path: Path) -> None:
    thread.play("tools", "r")
    one = thread.inspect()
    page = one.page
    expect(one.bar()).to_contain_text("success")
    names = ("Download run", "Download thread")
    for name in names:
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        download.value.save_as(tmp_path / f"{name}.jsonl")
    for name in names:
        path = tmp_path / f"{name}.jsonl"
        assert check_file(str(path), format_=None, input_file=None).findings == []
        page.locator("input[type=file]").set_input_files(path)
        expect(page.get_by_role("heading", name=f"{name}.jsonl")).to_be_visible()
        expect(one.events()).to_contain_text("TOOL_CALL_RESULT")
        one.tab("Messages")
        expect(page.get_by_role("tabpanel")).to_contain_text("get_weather")


def test_a_downloaded_thread_has_the_requests_of_its_runs(thread: InspectedThread, tmp_path: Path) -> None:
    thread.play("text", "r")
    thread.play("state", "s")
    one = thread.inspect("s")
    expect(one.bar()).to_contain_text("success")
    with one.page.expect_download() as download:
        one.page.get_by_role("button", name="Download thread").click()
    download.value.save_as(tmp_path / "thread.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "thread.jsonl").read_text().splitlines()]
    assert [line["input"]["messages"][-1]["content"] for line in lines if "input" in line] == ["text", "state"]
    one.drop("thread.jsonl", (tmp_path / "thread.jsonl").read_text())
    side = one.page.get_by_role("navigation", name="Threads and runs")
    expect(side.get_by_role("button", name="s 21 events")).to_be_visible()
    one.tab("Messages")
    expect(one.page.get_by_role("tabpanel")).to_contain_text("before the run")


def test_runs_have_the_names_of_their_messages_on_every_branch(server: AguilaProcess, open_page: OpenPage) -> None:
    chat = open_page(server.url)
    chat.ask("steps please")
    chat.page.get_by_role("button", name="Edit").click()
    chat.page.get_by_label("Edit message").fill("interrupt please")
    chat.page.get_by_role("button", name="Send again").click()
    chat.question().get_by_label("colour").fill("green")
    chat.question().get_by_role("button", name="Answer").click()
    chat.sees("It will be green.")
    chat.is_idle()
    chat.page.get_by_role("link", name="Inspect", exact=True).click()
    one = InspectorPage(chat.page, chat.page.url)
    runs = chat.page.get_by_role("navigation", name="Threads and runs").locator(".runs")
    for name in ("steps please", "interrupt please", "interrupt please (continued)"):
        expect(runs.get_by_text(name, exact=True)).to_have_count(1)
    expect(one.bar().get_by_role("heading", name="interrupt please (continued)")).to_be_visible()
    one.tab("Cost")
    runs.get_by_text("steps please", exact=True).click()
    expect(one.bar().get_by_role("heading", name="steps please")).to_be_visible()
    expect(chat.page.get_by_role("tab", name="Cost")).to_have_attribute("aria-selected", "true")


def test_a_dropped_file_is_opened_or_refused_with_the_reason(server: AguilaProcess, open_page: OpenPage) -> None:
    one = InspectorPage(open_page(server.url).page, f"{server.url}/#/inspect")
    lines = [json.dumps(event) for event in long_run(50)]
    one.drop("run.sse", "".join(f"data: {line}\n\n" for line in lines))
    expect(one.events()).to_contain_text(f"{len(lines)} events")
    one.drop("events.json", f"[{','.join(lines)}]")
    expect(one.page.get_by_role("heading", name="events.json")).to_be_visible()
    one.drop("notes.json", "[]")
    expect(one.page.get_by_role("alert")).to_contain_text("notes.json cannot be opened: The file has no events")


@pytest.mark.parametrize("width", [360, 800, 2560])
def test_nothing_is_cut_off_at_any_width(thread: InspectedThread, width: int) -> None:
    thread.play("tools", "r")
    one = thread.inspect(viewport={"width": width, "height": 900})
    expect(one.bar()).to_contain_text("success")
    assert one.page.evaluate("document.documentElement.scrollWidth") <= width
    for button in one.page.get_by_role("button").all():
        if button.is_visible():
            box = button.bounding_box()
            assert box is not None
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width + 1


def test_every_part_is_reached_by_keyboard(thread: InspectedThread) -> None:
    thread.play("state", "r")
    one = thread.inspect()
    page = one.page
    expect(one.bar()).to_contain_text("success")
    reached: list[str] = []
    for _ in range(60):
        page.keyboard.press("Tab")
        name = page.evaluate(
            "(document.activeElement.getAttribute('aria-label') || document.activeElement.textContent).trim()"
        )
        reached.append(name)
    for wanted in ("Open recording", "Copy as curl", "Zoom in", "Next event", "Filter by text", "Events of the run"):
        assert wanted in reached, reached
    one.events().get_by_role("listbox").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(one.selected_row()).to_contain_text("STATE_DELTA")
    page.get_by_role("tab", name="Messages").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("tab", name="State")).to_be_focused()
    expect(page.locator(".tree .changed")).to_contain_text("leek")
