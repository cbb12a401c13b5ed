"""How often the page asks the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from chat_page import ChatPage
from playwright.sync_api import Request, Response, expect
from waiting import wait_until

from aguila.agent import Run
from aguila.server import App


async def agent(run: Run) -> None:
    await run.say(f"Answer to {run.user_text}.")


class Requests:
    """Counts the requests of a page to the server, without the files of the page."""

    def __init__(self, chat: ChatPage) -> None:
        self.chat = chat
        self.found: list[str] = []
        self.statuses: list[tuple[str, int]] = []
        chat.page.on("request", self._take)
        chat.page.on("response", self._note)

    def _take(self, request: Request) -> None:
        if "/_page/" not in request.url:
            self.found.append(f"{request.method} {self._path(request.url)}")

    def _note(self, response: Response) -> None:
        self.statuses.append((self._path(response.url), response.status))

    def _path(self, url: str) -> str:
        path = url.removeprefix(self.chat.url.rstrip("/")).partition("?")[0]
        return path.replace(self.thread, "ID") if self.thread else path

    @property
    def thread(self) -> str:
        _, _, thread = self.chat.page.url.partition("#/chat/")
        return thread


def test_a_short_session_takes_few_requests(serve: Callable[[Any], str], open_page: Callable[..., ChatPage]) -> None:
    chat = open_page(serve(App(agent, allow_anonymous=True, page=True)))
    requests = Requests(chat)
    chat.page.reload()
    for text in ("one", "two", "three"):
        chat.write(text)
        chat.sees(f"Answer to {text}.")
        chat.is_idle()
    expect(chat.page.get_by_label("Threads", exact=True).get_by_role("link", name="one")).to_contain_text("now")
    counts = Counter(requests.found)
    assert counts.pop("GET /threads") <= 3 + 2 * 3  # opened, focused, titled; each run starts and ends
    assert counts == {"GET /": 1, "GET /capabilities": 1, "POST /": 3, "PATCH /threads/ID": 1}


def test_an_idle_page_asks_every_30_seconds_and_on_focus_and_gets_304(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    chat = open_page(serve(App(agent, allow_anonymous=True, page=True)))
    chat.ask("one")
    page = chat.page
    page.clock.install(time=0)
    requests = Requests(chat)
    page.reload()
    wait_until(lambda: page.evaluate("1") and ("/threads/ID/events", 200) in requests.statuses)
    wait_until(lambda: page.evaluate("1") and ("/threads", 200) in requests.statuses)
    requests.found.clear()
    requests.statuses.clear()
    page.clock.pause_at(page.evaluate("Date.now()") + 1_000)

    def check_polled() -> None:
        answers = {("/threads", 304), ("/threads/ID/events", 200)}
        wait_until(lambda: page.evaluate("1") and set(requests.statuses) == answers)
        assert sorted(requests.found) == ["GET /threads", "GET /threads/ID/events"]
        requests.found.clear()
        requests.statuses.clear()

    while not requests.found:
        page.clock.run_for(1_000)
    check_polled()
    page.clock.run_for(28_000)
    assert requests.found == []
    page.clock.run_for(2_500)
    check_polled()
    page.evaluate("dispatchEvent(new Event('focus'))")
    page.clock.run_for(100)
    check_polled()
