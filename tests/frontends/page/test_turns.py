"""Runs and their messages: what belongs to which run, live and in a loaded thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
from chat_page import ChatPage
from playwright.sync_api import expect

from aguila.agent import Run
from aguila.server import App


async def updates_a_plan_after_a_question(run: Run) -> None:
    plan = await run.activity("PLAN", {"steps": [{"title": "ask", "done": False}]})
    await run.ask("Shall I?", schema={"type": "string"})
    await plan.update({"steps": [{"title": "ask", "done": True}]})
    await run.say("Done.")


def test_an_activity_that_is_updated_after_a_question_is_drawn_once(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    chat = open_page(serve(App(updates_a_plan_after_a_question, allow_anonymous=True, page=True)))
    chat.write("go")
    chat.question().get_by_label("Answer").fill("yes")
    chat.question().get_by_role("button", name="Answer").click()
    chat.sees("Done.")
    chat.is_idle()
    plan = chat.page.get_by_label("Plan")
    expect(plan).to_have_count(1)
    expect(plan).to_contain_text("(done)")
    chat.page.reload()
    chat.sees("Done.")
    expect(plan).to_have_count(1)
    expect(plan).to_contain_text("(done)")


async def asks_first(run: Run) -> None:
    answer = await run.ask("Which colour?", schema={"type": "string"})
    await run.say(f"It is {answer}.")


def test_a_run_that_begins_with_a_question_stands_below_its_message(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    url = serve(App(asks_first, allow_anonymous=True, page=True))
    message = {"id": "m1", "role": "user", "content": "Paint the wall"}
    start: dict[str, Any] = {"threadId": "t1", "messages": [message], "state": {}, "tools": [], "context": []}
    with httpx2.Client(base_url=url, timeout=60, trust_env=False) as client:
        client.post("/", json=start | {"runId": "r1"})
        (interrupt,) = client.get("/threads/t1").json()["interrupts"]
        answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": "green"}
        client.post("/", json=start | {"runId": "r2", "resume": [answer]})
    chat = open_page(f"{url}/#/chat/t1")
    chat.sees("It is green.")
    parts = chat.messages().locator("> *")
    expect(parts.nth(0)).to_contain_text("Paint the wall")
    expect(parts).to_have_count(3)
    # It is edited where it was said: at the root of the thread.
    chat.user_message("Paint the wall").get_by_role("button", name="Edit").click()
    chat.page.get_by_label("Edit message").fill("Paint the door")
    chat.page.get_by_role("button", name="Send again").click()
    expect(chat.question()).to_be_visible()
    expect(chat.user_message("Paint the door")).to_contain_text("2 / 2")
