"""How an app serves the files of the page; the page itself is tested in tests/frontends."""

from __future__ import annotations

import gzip
import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from serving import serving
from starlette.applications import Starlette

from aguila import Page
from aguila.server import App, Request
from aguila.server.frontends.page import files

HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
SHELL = """<!doctype html>
<meta name="aguila-base" content="./" />
<meta name="aguila-anonymous" content="all" />
<meta name="aguila-page" content="{}" />
<title>Aguila</title>
<script type="module" crossorigin src="./_page/index-1.js"></script>
"""


async def agent(run: object) -> str:
    return "Hello"


@pytest.fixture
def assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "_page").mkdir()
    (tmp_path / "index.html").write_text(SHELL)
    (tmp_path / "_page" / "index-1.js").write_text("console.log(1)")
    monkeypatch.setattr(files.PageFiles.__init__, "__defaults__", (tmp_path,))
    return tmp_path


@pytest.fixture
def client(assets: Path) -> Iterator[httpx2.Client]:
    app = App(agent, page=True, allow_anonymous=True)
    with serving(app) as server, httpx2.Client(base_url=server.url, trust_env=False) as client:
        yield client


def test_a_browser_receives_the_page_under_a_strict_policy(client: httpx2.Client) -> None:
    answer = client.get("/", headers=HTML)
    assert answer.text == SHELL
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert not any("unsafe" in sources or "http" in sources or "*" in sources for sources in policy.values())
    assert client.head("/", headers=HTML).headers["content-length"] == str(len(SHELL))


def test_the_page_knows_what_callers_without_credentials_may_not_do(assets: Path) -> None:
    with serving(App(agent, page=True)) as server:
        text = httpx2.get(server.url, headers=HTML, trust_env=False).text
    assert text == SHELL.replace('"all"', '"run"')


def test_the_options_of_the_page_are_text_in_it_and_its_logo_is_served(assets: Path, tmp_path: Path) -> None:
    logo = tmp_path / "Logo.PNG"
    logo.write_bytes(b"png")
    page = Page(title="</title><script>", welcome='"><script>', suggestions=["a", "b"], login="/login", logo=logo)
    with serving(App(agent, page=page), root_path="/api") as server:
        answer = httpx2.get(server.url + "/", headers=HTML, trust_env=False)
        (content,) = re.findall(r'<meta name="aguila-page" content="([^"]*)" />', answer.text)
        options = json.loads(html.unescape(content))
        logo_path = options.pop("logo")
        served = httpx2.get(server.url + logo_path.removeprefix("/api"), trust_env=False)
    assert options == {
        "title": "</title><script>",
        "welcome": '"><script>',
        "suggestions": ["a", "b"],
        "login": "/login",
    }
    assert answer.text.count("<script") == 1
    assert "<title>&lt;/title&gt;&lt;script&gt;</title>" in answer.text
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert re.fullmatch(r"/api/_page/logo-[0-9a-f]{12}\.png", logo_path)
    assert (served.content, served.headers["content-type"]) == (b"png", "image/png")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"title": " "}, "Page(title=' ') is not a text"),
        ({"welcome": 5}, "Page(welcome=5) is not a text"),
        ({"accent": "blue"}, "Page(accent='blue') is not a colour; use a form such as '#2450d8'"),
        ({"accent": "#12345;"}, "is not a colour"),
        ({"suggestions": "Hello"}, "use a list: suggestions=['Hello']"),
        ({"suggestions": ["Hello", ""]}, "suggestions has '', which is not a text to send"),
        ({"suggestions": ["Hello"] * 13}, "the page shows at most 12"),
        ({"login": "javascript:alert(1)"}, "is not an address to sign in at; use a path of this site such as '/login'"),
        ({"login": "//evil.example"}, "is not an address to sign in at"),
        ({"login": "login"}, "is not an address to sign in at"),
        ({"login": "https://"}, "is not an address to sign in at"),
        ({"logo": "https://cdn.example/logo.svg"}, "The page loads nothing from other hosts"),
        ({"logo": "/\\evil.example/logo.svg"}, "is not a path of this site"),
        ({"logo": Path("logo.exe")}, "is not an image; use a file with one of .svg"),
        ({"logo": Path("missing.svg")}, "Page(logo='missing.svg') does not exist"),
    ],
)
def test_options_that_the_page_cannot_show_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        Page(**options)


@pytest.mark.parametrize("address", ["https://jaeger.example/trace/{trace_id}?a=b", "/jaeger/{trace_id}"])
def test_the_page_knows_the_address_of_traces(assets: Path, address: str) -> None:
    with serving(App(agent, page=True, trace_url=address)) as server:
        text = httpx2.get(server.url, headers=HTML, trust_env=False).text
    (content,) = re.findall(r'<meta name="aguila-page" content="([^"]*)" />', text)
    assert json.loads(html.unescape(content)) == {"traceUrl": address}


@pytest.mark.parametrize("address", ["https://jaeger.example/trace", "javascript:alert('{trace_id}')", "", 5])
def test_an_address_that_is_not_of_a_trace_is_refused(address: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"App(trace_url={address!r}) is not the address of a trace")):
        App(agent, trace_url=address)


def test_anything_else_than_a_page_is_refused() -> None:
    wrong: Any = "yes"
    with pytest.raises(TypeError, match="neither True, False, None nor a Page"):
        App(agent, page=wrong)


def test_other_clients_of_the_root_see_what_they_see_without_a_page(client: httpx2.Client) -> None:
    assert client.get("/").status_code == 405
    assert client.get("/", headers={"accept": "application/json"}).json()["error"]["code"] == "method_not_allowed"
    hydrated = client.get("/?threadId=t", headers=HTML)
    assert hydrated.json()["messages"] == []
    with serving(App(agent)) as server:
        assert httpx2.get(server.url, headers=HTML, trust_env=False).status_code == 405


def test_assets_are_cached_for_good_and_compressed(client: httpx2.Client) -> None:
    with client.stream("GET", "/_page/index-1.js", headers={"accept-encoding": "gzip"}) as answer:
        assert gzip.decompress(b"".join(answer.iter_raw())) == b"console.log(1)"
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["content-type"] == "text/javascript"
    assert client.get("/_page/index-1.js", headers={"accept-encoding": "identity"}).content == b"console.log(1)"


@pytest.mark.parametrize(
    "name", ["nothing.js", "..%2Findex.html", "%2e%2e/index.html", ".hidden", "", "index-1.js/more"]
)
def test_only_built_assets_are_served(client: httpx2.Client, name: str) -> None:
    assert client.get(f"/_page/{name}").status_code == 404


def test_the_shell_is_public_and_data_is_not(assets: Path) -> None:
    def authenticate(request: Request) -> str | None:
        return "ada" if request.headers.get("authorization") == "Bearer ada" else None

    app = App(agent, page=True, authenticate=authenticate)
    with serving(app) as server, httpx2.Client(base_url=server.url, trust_env=False) as client:
        assert client.get("/", headers=HTML).status_code == client.get("/_page/index-1.js").status_code == 200
        assert client.get("/threads").status_code == 401
        assert client.get("/threads", headers={"authorization": "Bearer ada"}).status_code == 200


def test_a_foreign_host_gets_no_page(assets: Path) -> None:
    with serving(App(agent, page=True, allowed_hosts=["127.0.0.1"])) as server:
        answer = httpx2.get(server.url, headers={**HTML, "host": "evil.example"}, trust_env=False)
        assert answer.json()["error"]["code"] == "foreign_host"


def test_below_a_root_path_the_page_knows_where_it_is(assets: Path) -> None:
    with serving(App(agent, page=True), root_path="/api") as server:
        text = httpx2.get(server.url + "/", headers=HTML, trust_env=False).text
    assert 'content="/api/"' in text
    assert 'src="/api/_page/index-1.js"' in text


@pytest.mark.parametrize("path", ["/agent", "/agent/"])
def test_mounted_the_page_knows_where_it_is_with_and_without_a_slash(assets: Path, path: str) -> None:
    app = App(agent, page=True)
    site = Starlette(lifespan=app.lifespan)
    app.mount_on(site, "/agent")
    with serving(site) as server:
        text = httpx2.get(server.url + path, headers=HTML, trust_env=False).text
        assert 'content="/agent/"' in text
        assert 'src="/agent/_page/index-1.js"' in text
        assert httpx2.get(server.url + "/agent/_page/index-1.js", trust_env=False).status_code == 200


def test_the_page_of_one_agent_calls_the_routes_of_that_agent(assets: Path) -> None:
    with serving(App({"default": agent, "other": agent}, page=True)) as server:
        text = httpx2.get(server.url + "/agents/other", headers=HTML, trust_env=False).text
    assert 'content="/agents/other/"' in text
    assert 'src="/_page/index-1.js"' in text


def test_before_it_is_built_the_page_says_so_and_then_shows_itself(client: httpx2.Client, assets: Path) -> None:
    (assets / "index.html").rename(assets / "later.html")
    missing = client.get("/", headers=HTML)
    assert missing.status_code == 503
    assert "make web" in missing.text
    (assets / "later.html").rename(assets / "index.html")
    assert client.get("/", headers=HTML).text == SHELL
