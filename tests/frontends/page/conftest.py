"""Fixtures for the page in Chromium.

``make test`` runs a few of these tests, ``make frontends`` all, and with ``ARGS=--short`` all but ``test_long_*.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from aguila_process import AguilaProcess
from chat_page import ChatPage
from faults.cutting_proxy import CuttingProxy
from frontends_matrix import CHROMIUM_FLAGS
from inspector_page import InspectedThread
from navigation import Places
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from recipes import CHROMIUM, REPOSITORY, MissingTool, require_tools
from serving import Gate, serving

LONG = ["test_long_*.py"]
SHORT = ["test_walk.py", "test_inspector.py"]
collect_ignore_glob = {"all": [], "short": LONG}.get(os.environ.get("AGUILA_FRONTENDS", ""), LONG + SHORT)

expect.set_options(timeout=60_000)


@pytest.fixture(scope="session")
def built_page() -> None:
    """Build the page if its sources have changed. Without npm or Chromium: skip, or fail in CI."""
    try:
        require_tools()
    except MissingTool as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    subprocess.run([sys.executable, str(REPOSITORY / "scripts" / "build_page.py")], check=True)


@pytest.fixture(scope="module")
def browser(built_page: None) -> Iterator[Browser]:
    """Chromium, for the tests of a module: while Playwright runs, other tests cannot run an event loop."""
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
def cut(serve: object) -> Iterator[Callable[[str], CuttingProxy]]:
    """Put a proxy that can cut connections before a server, until the pages are closed."""
    with ExitStack() as proxies:
        yield lambda url: proxies.enter_context(CuttingProxy(url, lambda: None))


@pytest.fixture
def open_page(built_page: None, serve: object, cut: object, browser: Browser) -> Iterator[Callable[..., ChatPage]]:
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
def places(serve: object, open_page: Callable[..., ChatPage]) -> Iterator[Places]:
    """The places of the page, on a server of their own."""
    gate = Gate()
    with serving(Places.app(gate)) as server:
        yield Places(server, gate, open_page)
        gate.open()


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
    allowed = ("/".join(url.split("/")[:3]), "blob:")
    page.on("request", lambda request: request.url.startswith(allowed) or console.append(f"request: {request.url}"))
