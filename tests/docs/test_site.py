"""``make docs``: the site has every document, its links lead somewhere, and it loads nothing from other hosts.

With AGUILA_SITE=all every page is checked with axe, not only those that have each kind of content.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from accessibility import axe_findings
from frontends_matrix import CHROMIUM_FLAGS
from playwright.sync_api import Browser, expect, sync_playwright
from recipes import CHROMIUM, MissingTool, require_tools

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "scripts" / "build_documentation.py"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built anew. The build fails on a warning and on a broken link."""
    folder = tmp_path_factory.mktemp("documentation")
    done = subprocess.run([sys.executable, str(BUILD), str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stdout + done.stderr
    return folder / "site"


def test_every_document_is_a_page_in_the_navigation(site: Path) -> None:
    navigation = (site.parent / "zensical.toml").read_text().partition("[[project.nav]]")[2]
    documents = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in documents if f'"{page.replace("README", "index")}"' not in navigation] == []


@pytest.mark.parametrize(
    ("html", "finding"),
    [
        ('<a href="none/">', "page.html: none/ is no file of the site"),
        ('<a href="#none">', "page.html: #none is no anchor of page.html"),
        ('<img src="none.png">', "page.html: none.png is no file of the site"),
        ('<script src="https://example.com/a.js">', "page.html loads https://example.com/a.js"),
        ('<a href="https://example.com/">', None),
        ('<a href="#here"><p id="here">', None),
    ],
)
def test_a_broken_link_and_a_foreign_script_are_found(
    html: str, finding: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BUILD.parent))
    from documentation.links import broken_links

    (tmp_path / "404.html").write_text("")
    (tmp_path / "page.html").write_text(html)
    assert broken_links(tmp_path) == ([] if finding is None else [finding])


def test_every_example_is_listed_and_in_the_navigation(site: Path) -> None:
    page = (site / "examples" / "index.html").read_text()
    navigation = (site.parent / "zensical.toml").read_text()
    names = [path.name for path in (ROOT / "examples").glob("*.py")]
    assert [name for name in names if f"{name}/" not in page or f"source/examples/{name}.md" not in navigation] == []


def test_a_page_says_nothing_about_the_script_that_wrote_it(site: Path) -> None:
    assert [path for path in site.rglob("*.md") if re.search("^<!--", path.read_text(), re.MULTILINE)] == []


def test_llms_txt_lists_the_markdown_of_every_page(site: Path) -> None:
    listed = re.findall(r"\]\((.+?)\)", (site / "llms.txt").read_text())
    full = (site / "llms-full.txt").read_text()
    assert {"index.md", "errors.md", "reference/http.md", "reference/server.md"} <= set(listed)
    assert [path for path in listed if not (site / path).is_file()] == []
    assert "### run_exists" in full


def test_the_references_have_what_the_code_has(site: Path) -> None:
    from aguila import App
    from aguila.cli.commands import commands

    http = (site / "reference" / "http.md").read_text()
    app = App(lambda run: None, store=":memory:")
    routes = [f"{method.upper()} {path}" for path, item in app.openapi()["paths"].items() for method in item]
    assert [
        route for route in routes if not route.split()[1].startswith("/agents/{") and f"## {route}\n" not in http
    ] == []
    shown = (site / "reference" / "commands.md").read_text()
    names = [command.name or command.callback.__name__ for command in commands.registered_commands if command.callback]
    assert [name for name in names if f"## aguila {name}\n" not in shown] == []
    assert "## App\n" in (site / "reference" / "server.md").read_text()


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Files, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        require_tools()
    except MissingTool as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


SAMPLE = ["", "how-to/ask-for-approval/", "reference/http/", "reference/client/", "errors/", "clients/", "stores/"]


def pages_of(site: Path) -> list[str]:
    """Return the pages to check, without those that show source code."""
    if os.environ.get("AGUILA_SITE") != "all":
        return SAMPLE
    found = [f"{path.parent.relative_to(site).as_posix()}/" for path in sorted(site.rglob("index.html"))]
    return [path for path in found if not path.startswith("source/")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible_and_load_nothing_from_elsewhere(
    browser: Browser, site: Path, address: str, scheme: str
) -> None:
    page = browser.new_page(color_scheme="light" if scheme == "light" else "dark")
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    findings: dict[str, list[str]] = {}
    for path in pages_of(site):
        page.goto(address + path, wait_until="networkidle")
        findings[path] = axe_findings(page)
    assert {path: found for path, found in findings.items() if found} == {}
    page.close()
    assert [url for url in requested if not url.startswith((address, "data:", "blob:"))] == []


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("run_exists", "/errors/?h=run_exists#run_exists"),
        ("approval", "/how-to/ask-for-approval/?h=approval"),
        ("delete user data", "/how-to/export-and-erase-data/?h=delete+user+data"),
        ("OpenTelemetry collector", "/telemetry/?h=OpenTelemetry+collector"),
    ],
)
def test_the_search_finds_the_page_of_a_task_first_without_a_server(
    browser: Browser, address: str, words: str, first: str
) -> None:
    page = browser.new_page(reduced_motion="reduce")
    page.goto(address, wait_until="networkidle")
    page.keyboard.press("Control+k")
    page.locator("input[role=combobox]").fill(words, timeout=60_000)
    expect(page.locator("ol a").first).to_have_attribute("href", re.compile(re.escape(first) + "$"), timeout=60_000)
    assert axe_findings(page) == []
    page.close()
