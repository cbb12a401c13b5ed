"""The page as users of a product see it: its own name, colours and login; and what a tab keeps."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from accessibility import axe_findings
from chat_page import ChatPage
from faults.cutting_proxy import CuttingProxy
from playwright.sync_api import expect
from serving import Gate
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from aguila import App, Page, Run
from aguila.server import Rejected, Request

LOGO = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8" width="8" height="8"><rect width="8" height="8" /></svg>'
)


async def agent(run: Run) -> None:
    await run.say(f"Hello, {run.principal or 'you'}.")


def by_cookie(request: Request) -> str | None:
    found = re.search(r"user=(\w+)", request.headers.get("cookie", ""))
    return None if found is None else found[1]


@pytest.mark.parametrize("accent", ["#ffe600", "#1b5e20", "#000"])
def test_the_page_has_the_name_the_logo_and_the_colour_of_the_app(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage], tmp_path: Path, accent: str
) -> None:
    logo = tmp_path / "logo.svg"
    logo.write_text(LOGO)
    options = Page(
        title="Acme <\"&'> Support",
        logo=logo,
        accent=accent,
        welcome="We answer **every** question.",
        suggestions=["Where is my order?", "I want my money back"],
    )
    chat = open_page(serve(App(agent, page=options, allow_anonymous=True)))
    page = chat.page
    expect(page).to_have_title("Acme <\"&'> Support")
    expect(page.get_by_role("banner")).to_contain_text("Acme <\"&'> Support")
    expect(chat.messages().locator("strong")).to_have_text("every")
    for image in page.locator("img.logo").all():
        expect(image).to_have_js_property("naturalWidth", 8)
    expect(page.get_by_label("Suggestions").get_by_role("button")).to_have_count(2)
    chat.composer().fill("so that the button is not disabled")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        assert axe_findings(page) == [], scheme
    button = page.get_by_role("button", name="Send", exact=True)
    assert button.evaluate("(it) => getComputedStyle(it).backgroundColor") != "rgb(134, 168, 255)"  # our own
    page.set_viewport_size({"width": 360, "height": 700})
    inspector = page.get_by_role("link", name="Inspector").bounding_box()
    colours = page.get_by_role("button", name="Colours").bounding_box()
    assert inspector is not None
    assert colours is not None
    assert inspector["x"] + inspector["width"] <= colours["x"]
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    chat.composer().fill("")
    page.get_by_role("button", name="Where is my order?").click()
    chat.sees("Hello, you.")


def test_a_visitor_signs_in_at_the_login_of_the_app_and_comes_back(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    async def login(request: StarletteRequest) -> Response:
        if "user" in request.query_params:
            answer = RedirectResponse(request.query_params["next"], 303)
            answer.set_cookie("user", request.query_params["user"])
            return answer
        return HTMLResponse(
            f'<form><input name="next" type="hidden" value="{request.query_params["next"]}">'
            '<label>Name <input name="user"></label><button>Sign in</button></form>'
        )

    app = App(agent, authenticate=by_cookie, page=Page(login="/login?from=chat"))
    site = Starlette(routes=[Route("/login", login), Mount("/chat", app)], lifespan=app.lifespan)
    url = serve(site)
    chat = open_page(f"{url}/chat/#/chat/my-thread")
    page = chat.page

    def sign_in(name: str) -> None:
        page.get_by_label("Name").fill(name)
        page.get_by_role("button", name="Sign in").click()

    expect(page).to_have_url(f"{url}/login?from=chat&next=%2Fchat%2F%23%2Fchat%2Fmy-thread")
    sign_in("ada")
    expect(page).to_have_url(f"{url}/chat/#/chat/my-thread")
    chat.write("hello")
    chat.sees("Hello, ada.")
    expect(page.get_by_role("button", name="Token")).to_have_count(0)
    # What is on the page stays there when the session of the app ends.
    page.context.clear_cookies()
    chat.write("still there?")
    expect(page.get_by_role("alert").filter(has_text="You have been signed out.")).to_be_visible()
    expect(chat.composer()).to_have_value("still there?")
    refused = page.get_by_text("The message was not sent. Sign in first.")
    expect(refused).to_have_text("The message was not sent. Sign in first.")
    expect(refused).to_have_attribute("title", "401 unauthenticated: Authentication required.")
    page.get_by_role("link", name="Sign in").click()
    sign_in("ada")
    chat.sees("Hello, ada.")
    # A login that does not help is not tried for ever.
    page.context.clear_cookies()
    page.reload()
    expect(page.get_by_role("alert").filter(has_text="You are not signed in.")).to_be_visible()
    expect(page).to_have_url(f"{url}/chat/#/chat/my-thread")
    chat.console[:] = [line for line in chat.console if " 401 " not in line and "404" not in line]
    chat.console[:] = [line for line in chat.console if not line.startswith(f"request: {url}/")]


def test_a_visitor_who_is_signed_out_during_a_run_is_told_that_alone_and_the_run_goes_on_after_signing_in(
    serve: Callable[[Any], str], cut: Callable[[str], CuttingProxy], open_page: Callable[..., ChatPage]
) -> None:
    gate = Gate()

    async def waits(run: Run) -> None:
        await run.say("One.")
        await gate.wait()
        await run.say("Two.")

    url = serve(App(waits, authenticate=by_cookie, page=Page(login="/login")))
    proxy = cut(url)
    chat = open_page(f"{proxy.url}/healthz")
    context, page = chat.page.context, chat.page
    context.add_cookies([{"name": "user", "value": "ada", "url": proxy.url}])
    page.goto(proxy.url)
    chat.write("go")
    chat.sees("One.")
    proxy.budget = lambda: -1
    proxy.cut_now()
    expect(page.get_by_role("status")).to_contain_text("The server cannot be reached.")
    context.clear_cookies()
    proxy.budget = lambda: None
    signed_out = page.get_by_role("alert").filter(has_text="You have been signed out.")
    expect(signed_out).to_be_visible()
    expect(page.get_by_role("status")).to_have_count(0)
    expect(chat.messages()).not_to_contain_text("Working…")
    context.add_cookies([{"name": "user", "value": "ada", "url": proxy.url}])  # as the login in another tab does
    page.evaluate("dispatchEvent(new Event('focus'))")
    expect(signed_out).to_have_count(0)
    chat.sees("Working…")
    gate.open()
    chat.sees("Two.")
    chat.is_idle()
    chat.console.clear()


@pytest.mark.parametrize("login", ["/login", None])
def test_a_narrow_window_shows_all_of_the_header_to_a_visitor_without_access(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage], tmp_path: Path, login: str | None
) -> None:
    logo = tmp_path / "logo.svg"
    logo.write_text(LOGO.replace('width="8"', 'width="80"'))
    options = Page(title="Acme Support", logo=logo, login=login)
    is_blocked = False

    def authenticate(request: Request) -> str | None:
        if is_blocked:
            raise Rejected(403, "forbidden", "This account is blocked.")
        return by_cookie(request) or ("ada" if request.headers.get("authorization") == "Bearer secret" else None)

    url = serve(App(agent, authenticate=authenticate, page=options))
    chat = open_page(f"{url}/healthz", viewport={"width": 360, "height": 700})
    context, page = chat.page.context, chat.page
    context.add_cookies([{"name": "user", "value": "ada", "url": url}])
    page.goto(url)
    chat.write("hello")
    chat.sees("Hello, ada.")

    def check() -> None:
        """Nothing of the header is outside of the window, and no part of it is on another."""
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        parts = page.locator("header.bar").locator(".logo, nav a, button:visible, .button, span.is-bad").all()
        boxes = [box for box in (part.bounding_box() for part in parts) if box is not None]
        assert len(boxes) >= 4
        for index, one in enumerate(boxes):
            assert one["x"] >= 0
            assert one["x"] + one["width"] <= 360
            for other in boxes[index + 1 :]:
                is_beside = one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
                is_above = one["y"] + one["height"] <= other["y"] or other["y"] + other["height"] <= one["y"]
                assert is_beside or is_above, (one, other)

    check()
    context.clear_cookies()
    page.evaluate("dispatchEvent(new Event('focus'))")
    if login is None:
        page.get_by_label("Bearer token").fill("secret")
        page.get_by_role("button", name="Use token").click()
        expect(page.get_by_role("dialog")).to_be_hidden()
    else:
        expect(page.get_by_role("link", name="Sign in")).to_be_visible()
    check()
    is_blocked = True
    chat.write("hello")
    expect(page.get_by_role("banner")).to_contain_text("403")
    check()
    chat.console.clear()


def test_the_token_survives_a_reload_and_no_other_tab_has_it(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    def authenticate(request: Request) -> str | None:
        return "ada" if request.headers.get("authorization") == "Bearer ada-secret" else None

    url = serve(App(agent, page=True, authenticate=authenticate))
    chat = open_page(url)
    dialog = chat.page.get_by_role("dialog")
    dialog.get_by_label("Bearer token").fill("ada-secret")
    dialog.get_by_role("button", name="Use token").click()
    chat.write("hello")
    chat.sees("Hello, ada.")
    chat.page.reload()
    chat.sees("Hello, ada.")
    expect(dialog).to_be_hidden()
    kept = "JSON.stringify([{...localStorage}, document.cookie, location.href])"
    assert "ada-secret" not in chat.page.evaluate(kept)
    other = open_page(url, context=chat.page.context)
    expect(other.page.get_by_role("dialog")).to_contain_text("401: this server requires a bearer token.")
    chat.page.get_by_role("button", name="Change token").click()
    dialog.get_by_role("button", name="Forget token").click()
    assert chat.page.evaluate("sessionStorage.length") == 0
    chat.page.reload()
    expect(dialog).to_contain_text("401: this server requires a bearer token.")
    chat.console[:] = [line for line in chat.console if " 401 " not in line]


def test_the_colours_follow_the_system_until_the_user_chooses(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    page = open_page(serve(App(agent, page=True, allow_anonymous=True)), color_scheme="dark").page
    light, dark = "rgb(255, 255, 255)", "rgb(20, 22, 27)"
    expect(page.locator("body")).to_have_css("background-color", dark)
    page.get_by_role("button", name="Colours: system").click()
    expect(page.locator("body")).to_have_css("background-color", light)
    page.reload()
    expect(page.locator("body")).to_have_css("background-color", light)
    page.get_by_role("button", name="Colours: light").click()
    page.emulate_media(color_scheme="light")
    expect(page.locator("body")).to_have_css("background-color", dark)
    page.get_by_role("button", name="Colours: dark").click()
    expect(page.locator("body")).to_have_css("background-color", light)
