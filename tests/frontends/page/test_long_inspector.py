"""The inspector on a run of 100,000 events: it opens, scrolls and travels without blocking the page.

The limits are CPU time of the page's main thread, which a busy machine does not change. On an idle machine it is the
time that a user waits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aguila_process import AguilaProcess
from chat_page import ChatPage
from inspector_page import InspectorPage, check_time_travel
from playwright.sync_api import Browser, Page, expect
from stores.long_run import RUN, THREAD, long_run, store_events

SIZE = 117_000  # a turn is less than the 50 events that it counts as
OPEN = 2.0
LONGEST_TASK = 0.1
MEMORY = 300 * 1_000_000

SCROLL = """async () => {
  const list = document.querySelector('.events-list');
  for (let at = 0; at < 200; at++) {
    list.scrollTop = ((at * 37) % 100) / 100 * list.scrollHeight;
    await new Promise(requestAnimationFrame);
  }
}"""


@pytest.fixture(scope="module")
def long_server(
    built_page: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[AguilaProcess, list[Any]]]:
    """The demo on a file with a run of 100,000 events."""
    folder: Path = tmp_path_factory.mktemp("long")
    events = list(long_run(SIZE))
    assert len(events) >= 100_000
    store_events(folder / "threads.db", events)
    server = AguilaProcess(folder, None)
    yield server, events
    server.stop()


class Traced:
    """The CPU time of a page's main thread, in seconds: all of it, and that of the longest task."""

    def __init__(self, browser: Browser, page: Page, work: Callable[[], Any]) -> None:
        browser.start_tracing(page=page, categories=["toplevel"])
        try:
            work()
        finally:
            events = json.loads(browser.stop_tracing())["traceEvents"]
        names = [event for event in events if event["name"] == "thread_name"]
        main = {(one["pid"], one["tid"]) for one in names if one["args"]["name"] == "CrRendererMain"}
        tasks: dict[int, list[float]] = {}
        for event in events:
            if (
                event["name"] == "ThreadControllerImpl::RunTask"
                and (event["pid"], event["tid"]) in main
                and "tdur" in event
            ):
                tasks.setdefault(event["pid"], []).append(event["tdur"] / 1e6)
        assert tasks, "the trace has no tasks"
        page_tasks = max(tasks.values(), key=sum)
        self.total, self.longest = sum(page_tasks), max(page_tasks)


def test_a_run_of_100_000_events_opens_and_scrolls_at_once(
    long_server: tuple[AguilaProcess, list[Any]], browser: Browser, open_page: Callable[..., ChatPage]
) -> None:
    server, events = long_server
    page = open_page(server.url).page

    def load() -> None:
        one = InspectorPage(page, f"{server.url}/#/inspect/{THREAD}/{RUN}")
        expect(one.bar()).to_contain_text("success")
        expect(one.bar()).to_contain_text(f"{len(events):,} events")
        expect(page.get_by_role("tabpanel")).to_contain_text("messages")

    opened = Traced(browser, page, load)
    assert opened.total < OPEN, opened.total
    scrolled = Traced(browser, page, lambda: page.evaluate(SCROLL))
    assert scrolled.longest < LONGEST_TASK, scrolled.longest
    slider = page.get_by_label("Show the run as of event")
    travelled = Traced(browser, page, lambda: [slider.fill(str(at * 9_999)) for at in (3, 9, 1, 7, 0, 10, 5)])
    assert travelled.longest < LONGEST_TASK, travelled.longest
    filtered = Traced(browser, page, lambda: page.get_by_label("Filter by text").fill("word7"))
    assert filtered.longest < LONGEST_TASK, filtered.longest

    session = page.context.new_cdp_session(page)
    usage = session.send("Runtime.getHeapUsage")
    assert usage["totalSize"] + usage["embedderHeapUsedSize"] + usage["backingStorageSize"] < MEMORY, usage


def test_time_travel_at_ten_positions_equals_reduce_of_the_prefix(
    long_server: tuple[AguilaProcess, list[Any]], open_page: Callable[..., ChatPage]
) -> None:
    server, events = long_server
    page = open_page(server.url, permissions=["clipboard-read", "clipboard-write"]).page
    one = InspectorPage(page, f"{server.url}/#/inspect/{THREAD}/{RUN}")
    last = len(events) - 1
    check_time_travel(one, events, [0, 17, 4095, 4096, 5000, last, 33_333, 8191, 99_999, 50_001])
