"""The page while the server or the network fails, and afterwards."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from aguila_process import AguilaProcess
from chat_page import ChatPage
from faults.cutting_proxy import CuttingProxy
from playwright.sync_api import expect
from starlette.applications import Starlette
from stores.long_run import THREAD, long_run, store_events

from aguila.agent import Run
from aguila.cli.demo import agent as demo
from aguila.cli.demo import png
from aguila.protocol.parts import AudioPart, DataSource, DocumentPart, ImagePart, UrlSource, VideoPart
from aguila.server import App


def test_a_server_that_is_killed_and_restarted_during_a_run(
    server: AguilaProcess, open_page: Callable[..., ChatPage]
) -> None:
    chat = open_page(server.url)
    chat.write("slow please")
    chat.sees("1 2 3 4 5")
    server.kill()
    expect(chat.page.get_by_role("status")).to_contain_text("The server cannot be reached.")
    server.start()
    expect(chat.page.get_by_role("status")).to_have_count(0)
    expect(chat.messages().get_by_role("alert")).to_contain_text("run_lost")
    chat.is_idle()
    chat.write("text please")
    chat.sees("sees it grow")
    chat.console.clear()  # the browser reports requests that found no server


def test_a_message_that_is_sent_without_a_server_arrives_once_when_it_is_back(
    server: AguilaProcess, open_page: Callable[..., ChatPage]
) -> None:
    chat = open_page(server.url)
    chat.ask("text please")
    server.kill()
    chat.write("steps please")
    expect(chat.page.get_by_role("status")).to_contain_text("The server cannot be reached.")
    server.start()
    chat.sees("two sources")
    chat.is_idle()
    assert len(server.get(f"/threads/{chat.thread_id}")["runs"]) == 2
    chat.console.clear()


def test_connections_that_break_lose_and_repeat_nothing(
    server: AguilaProcess, cut: Callable[[str], CuttingProxy], open_page: Callable[..., ChatPage]
) -> None:
    proxy = cut(server.url)
    chat = open_page(proxy.url)
    chat.write("slow please")
    for last in (5, 20, 60):
        chat.sees(" ".join(map(str, range(1, last + 1))))
        proxy.cut_now()
    chat.sees(" ".join(map(str, range(1, 80))))
    chat.stop()
    chat.is_idle()
    chat.console.clear()


def test_a_thread_that_is_deleted_elsewhere_is_gone(server: AguilaProcess, open_page: Callable[..., ChatPage]) -> None:
    chat = open_page(server.url)
    chat.ask("text please")
    other = open_page(chat.page.url, context=chat.page.context)
    other.sees("sees it grow")
    other.page.get_by_role("button", name="Delete", exact=True).click()
    other.page.get_by_role("button", name="Delete thread").click()
    expect(chat.page.get_by_role("alert")).to_contain_text("The thread was deleted.")
    expect(chat.messages()).not_to_contain_text("sees it grow")
    chat.console.clear()  # the browser reports the 404


DROP = """
([bytes, kind]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], `${kind}.png`, { type: "image/png" }));
  const event = kind === "drop" ? new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true })
    : new ClipboardEvent(kind, { clipboardData: data, bubbles: true, cancelable: true });
  document.querySelector(kind === "drop" ? "main" : "main textarea").dispatchEvent(event);
}
"""


@pytest.mark.parametrize("kind", ["drop", "paste"])
def test_an_image_that_is_dropped_or_pasted_is_uploaded_and_answered(
    server: AguilaProcess, open_page: Callable[..., ChatPage], kind: str
) -> None:
    chat = open_page(server.url)
    chat.page.evaluate(DROP, [list(png(5, 7, (200, 0, 0))), kind])
    expect(chat.page.get_by_label("Attachments").get_by_text("ready")).to_be_visible()
    chat.write("What image is this?")
    chat.sees("You sent a PNG image, 5 by 7")
    expect(chat.page.get_by_alt_text(f"{kind}.png")).to_have_js_property("naturalWidth", 5)


def test_media_of_every_kind_are_shown_in_place(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    async def agent(run: Run) -> None:
        call = await run.tool_call("media", {})
        data = base64.b64encode(png(3, 3, (0, 0, 0))).decode()
        source = DataSource(value=data, mime_type="image/png")
        elsewhere = UrlSource(value="https://example.com/film.mp4")
        parts = [
            ImagePart(source=source),
            AudioPart(source=source),
            VideoPart(source=source),
            DocumentPart(source=source),
        ]
        await call.result([*parts, VideoPart(source=elsewhere)])

    chat = open_page(serve(App(agent, allow_anonymous=True, page=True)))
    chat.ask("go")
    result = chat.page.get_by_label("Result")
    expect(result.locator("img, audio, video")).to_have_count(3)
    expect(result.get_by_role("link", name="Document")).to_have_attribute("download", "Document")
    expect(result.get_by_role("link", name="Video")).to_have_attribute("href", "https://example.com/film.mp4")


def test_threads_are_renamed_archived_and_listed(server: AguilaProcess, open_page: Callable[..., ChatPage]) -> None:
    chat = open_page(server.url)
    chat.ask("help please")
    threads = chat.page.get_by_label("Threads", exact=True)
    expect(threads.get_by_role("link", name="help please")).to_be_visible()
    chat.page.get_by_role("button", name="Rename").click()
    chat.page.get_by_label("Title", exact=True).fill("Eagles")
    chat.page.get_by_role("button", name="Save").click()
    expect(threads.get_by_role("link", name="Eagles")).to_be_visible()
    chat.page.get_by_role("button", name="Archive", exact=True).click()
    expect(threads.get_by_role("link", name="Eagles")).to_have_count(0)
    chat.page.get_by_label("Archived").check()
    expect(threads.get_by_role("link", name="Eagles")).to_be_visible()


def test_the_page_works_below_a_mount_path(serve: Callable[[Any], str], open_page: Callable[..., ChatPage]) -> None:
    app = App(demo, allow_anonymous=True, page=True)
    site = Starlette(lifespan=app.lifespan)
    app.mount_on(site, "/some/agent")
    url = serve(site)
    for path in ("/some/agent", "/some/agent/"):
        chat = open_page(url + path)
        chat.ask("generative please")
        expect(chat.page.get_by_label("Surface").get_by_text("Book the flight?").first).to_be_visible()
        chat.page.reload()
        chat.sees("Three ways to say what to draw.")


def test_of_a_long_thread_the_end_is_drawn_and_more_on_demand(
    tmp_path: Path, serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    with ThreadPoolExecutor() as thread:  # this one has Playwright's event loop
        thread.submit(store_events, tmp_path / "threads.db", list(long_run(10_000))).result()
    url = serve(App(demo, store=str(tmp_path / "threads.db"), allow_anonymous=True, page=True))
    chat = open_page(f"{url}/#/chat/{THREAD}")
    chat.sees("found 199")
    expect(chat.messages()).not_to_contain_text(re.compile(r"found 10(?!\d)"))
    earlier = chat.page.get_by_role("button", name="Show earlier messages")
    while earlier.is_visible():
        earlier.click()
    chat.sees("found 0")
    chat.write("text please")
    chat.sees("sees it grow")
