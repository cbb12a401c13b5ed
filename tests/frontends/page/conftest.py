"""Fixtures for the page in Chromium, for ``make frontends``; with ``ARGS=--short`` it runs ``test_walk.py`` only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

WHICH = os.environ.get("AGUILA_FRONTENDS", "")
"""``short`` or ``all``; without it, as in ``make test``, nothing here is collected: it needs a browser."""

collect_ignore_glob = {"all": [], "short": ["test_long_*.py"]}.get(WHICH, ["test_*.py"])

if WHICH:
    from aguila_process import AguilaProcess
    from chat_page import ChatPage
    from frontends_matrix import CHROMIUM_FLAGS
    from inspector_page import InspectedThread
    from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
    from recipes import CHROMIUM, REPOSITORY
    from serving import serving

    expect.set_options(timeout=60_000)

    @pytest.fixture(scope="session")
    def built_page() -> None:
        """Build the page if its sources have changed."""
        if shutil.which("npm") is None:
            pytest.fail("npm is not installed; the page cannot be built")
        subprocess.run([sys.executable, str(REPOSITORY / "scripts" / "build_page.py")], check=True)

    @pytest.fixture(scope="session")
    def browser() -> Iterator[Browser]:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS)
            yield browser
            browser.close()

    @pytest.fixture(scope="module")
    def server(built_page: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AguilaProcess]:
        """The demo in a process of its own, for all tests of a module: each has its own threads."""
        server = AguilaProcess(tmp_path_factory.mktemp("server"), None)
        yield server
        server.stop()

    @pytest.fixture
    def serve() -> Iterator[Callable[[Any], str]]:
        """Serve an app on a free port, until the pages are closed. Returns its address."""
        with ExitStack() as servers:
            yield lambda app: servers.enter_context(serving(app)).url

    @pytest.fixture
    def open_page(built_page: None, serve: object, browser: Browser) -> Iterator[Callable[..., ChatPage]]:
        """Open the page of a server in a browser of its own. Its console must stay clean to the end of the test."""
        contexts: list[BrowserContext] = []
        console: list[str] = []

        def open_page(url: str, *, context: BrowserContext | None = None, **options: Any) -> ChatPage:
            if context is None:
                context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
                contexts.append(context)
            page = context.new_page()
            watch(page, url, console)
            page.goto(url)
            return ChatPage(page, url, console)

        yield open_page
        for context in contexts:
            context.close()
        assert console == []

    @pytest.fixture
    def thread(server: AguilaProcess, open_page: Callable[..., ChatPage]) -> InspectedThread:
        """A thread to be inspected."""
        return InspectedThread(server, open_page)

    def watch(page: Page, url: str, console: list[str]) -> None:
        """Record messages of the console, and requests to other hosts."""
        page.set_default_timeout(60_000)
        # Playwright catches file choosers from some time after the first listener.
        page.on("filechooser", lambda _: None)
        page.on("console", lambda message: console.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: console.append(f"pageerror: {error}"))
        allowed = (url.partition("#")[0].rstrip("/"), "blob:")
        page.on("request", lambda request: request.url.startswith(allowed) or console.append(f"request: {request.url}"))
