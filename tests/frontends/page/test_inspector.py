"""The inspector in Chromium: a run in all its parts, live and stored, recordings, comparison, keyboard, axe."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
from accessibility import axe_findings
from aguila_process import AguilaProcess
from chat_page import ChatPage
from inspector_page import InspectedThread, InspectorPage, check_time_travel
from playwright.sync_api import expect
from processes.commands import aguila_serve
from serving import run_input
from stores.long_run import RUN, THREAD, long_run, store_events
from tracing import tracing

from aguila import App

OpenPage = Callable[..., ChatPage]


def test_a_run_in_all_its_parts(thread: InspectedThread) -> None:
    thread.play("subagents", "r")
    thread.play("state", "s")
    one = thread.inspect(permissions=["clipboard-read", "clipboard-write"])
    page = one.page
    expect(one.bar()).to_contain_text("success")
    expect(page.get_by_role("navigation", name="Threads and runs")).to_contain_text("r")
    expect(one.events()).to_contain_text("SUBAGENT_STARTED")
    expect(one.timeline().get_by_role("img")).to_have_attribute("aria-label", re.compile(r"^\d+ spans$"))

    # A span selects its events, and an event its span.
    one.timeline().get_by_role("group").focus()
    page.keyboard.press("ArrowRight")
    expect(one.timeline()).to_contain_text("subagent researcher")
    page.keyboard.press("ArrowRight")
    expect(one.timeline()).to_contain_text("text assistant")
    expect(one.events()).to_contain_text(re.compile(r"\d+ of \d+"))
    expect(one.rows().first).to_contain_text("TEXT_MESSAGE_START")
    page.get_by_role("button", name="Remove the filter").click()

    # Filters.
    page.get_by_label("Filter by type").select_option("SUBAGENT_STARTED")
    expect(one.rows()).to_have_count(2)
    page.get_by_label("Filter by type").select_option("")
    page.get_by_label("Filter by text").fill("EAGLES")
    expect(one.rows()).to_have_count(1)
    page.get_by_label("Filter by text").fill("")

    # The state, and what an event changes of it.
    page.goto(thread.url("s"))
    expect(one.bar()).to_contain_text("success")
    one.select("STATE_DELTA")
    one.tab("State")
    expect(page.locator(".tree .changed")).to_contain_text("leek")
    one.tab("Violations")
    expect(page.get_by_role("tabpanel")).to_contain_text("Nothing violates the protocol")

    # What is copied.
    assert json.loads(one.copied("Copy event as JSON"))["type"] == "STATE_DELTA"
    assert one.copied("Copy as curl").startswith(f"curl -N '{thread.server.url}/'")
    page.get_by_role("button", name="End").click()
    copied: dict[str, Any] = {}
    exec(one.copied("Copy as pytest"), copied)
    copied["test_run_s"]()


def test_time_travel_shows_what_the_prefix_means(built_page: None, tmp_path: Path, open_page: OpenPage) -> None:
    events = list(long_run(3000))
    store_events(tmp_path / "threads.db", events)
    server = AguilaProcess(tmp_path, None)
    try:
        chat = open_page(server.url, permissions=["clipboard-read", "clipboard-write"])
        one = InspectorPage(chat.page, f"{server.url}/#/inspect/{THREAD}/{RUN}")
        check_time_travel(one, events, [0, 1, 700, 2, len(events) - 1, 1500])
    finally:
        server.stop()


def test_a_live_run_is_followed_and_a_reload_loses_nothing(thread: InspectedThread) -> None:
    server = thread.server
    with httpx2.stream("POST", server.url, json=thread.input("slow", "r"), timeout=60) as response:
        next(response.iter_bytes())
    one = thread.inspect()
    expect(one.bar()).to_contain_text("live")
    one.page.reload()
    expect(one.bar()).to_contain_text("live")
    httpx2.post(f"{server.url}/threads/{thread.id}/runs/r/cancel").raise_for_status()
    expect(one.bar()).to_contain_text("cancelled")
    stored = server.get(f"/threads/{thread.id}")["runs"][0]["last"]
    expect(one.events()).to_contain_text(f"{stored} events")


def test_a_recording_is_shown_with_its_violations(built_page: None, tmp_path: Path, open_page: OpenPage) -> None:
    events = [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "<img src=x onerror=alert(1)>"},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
    ]
    (tmp_path / "bad.jsonl").write_text("\n".join(map(json.dumps, events)))
    with aguila_serve(tmp_path, "bad.jsonl", "--no-open", command_name="inspect") as server:
        chat = open_page(server.url)
        one = InspectorPage(chat.page, f"{server.url}/?recording=bad.jsonl#/inspect")
        one.tab("Violations")
        panel = one.page.get_by_role("tabpanel")
        expect(panel).to_contain_text("STR-2")
        expect(panel).to_contain_text("Rule: Content and end events need an open item.")
        panel.get_by_role("button", name="Event 2").click()
        one.tab("Event")
        expect(panel).to_contain_text("<img src=x")
        expect(one.selected_row()).to_contain_text("TEXT_MESSAGE_CONTENT")


def test_axe_finds_nothing(thread: InspectedThread) -> None:
    thread.play("tools", "r")
    thread.play("state", "s")
    one = thread.inspect()
    for scheme in ("light", "dark"):
        one.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        expect(one.bar()).to_contain_text("success")
        one.select("TOOL_CALL_ARGS")
        for tab in ("Event", "State", "Messages", "Violations", "Cost", "Input"):
            one.tab(tab)
            assert axe_findings(one.page) == [], (scheme, tab)
        one.page.get_by_label("Compare with another run").select_option("s")
        expect(one.page.get_by_role("region", name="Run s")).to_be_visible()
        assert axe_findings(one.page) == [], scheme
        one.page.get_by_role("button", name="Back to the run").click()


def test_a_traced_run_is_linked_to_its_trace(serve: Callable[[Any], str], open_page: OpenPage) -> None:
    async def agent(run: Any) -> Any:
        yield "Hello"

    with tracing():
        url = serve(App(agent, store=":memory:", page=True, trace_url="/jaeger/{trace_id}"))
        httpx2.post(url, json=run_input("t", "r"), trust_env=False).raise_for_status()
        other = serve(App(agent, store=":memory:", page=True))
        httpx2.post(other, json=run_input("t", "r"), trust_env=False).raise_for_status()
    link = InspectorPage(open_page(url).page, f"{url}/#/inspect/t/r").page.get_by_role("link", name="trace ")
    expect(link).to_have_attribute("href", re.compile("^/jaeger/[0-9a-f]{32}$"))
    without = InspectorPage(open_page(other).page, f"{other}/#/inspect/t/r").page
    expect(without.get_by_role("button", name="Copy the trace id")).to_be_visible()
