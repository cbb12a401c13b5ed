"""What was typed and not sent is kept for its user, and for nobody else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from chat_page import ChatPage
from playwright.sync_api import expect
from serving import Gate
from starlette.applications import Starlette
from starlette.requests import Request as StarletteRequest
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from aguila import App, Page, Run
from aguila.server import Request

QUESTION = {
    "type": "object",
    "properties": {"colour": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["colour"],
}


class Site:
    """An app with a login, whose agent asks, and a page in which nobody is signed in yet."""

    def __init__(self, serve: Callable[[Any], str], open_page: Callable[..., ChatPage]) -> None:
        self.gate = Gate()

        async def agent(run: Run) -> None:
            if run.user_text == "ask":
                answer = await run.ask("Which colour?", schema=QUESTION)
                await run.say(f"You chose {answer['colour']}.")
            elif run.user_text == "pay":
                payment = await run.approve("pay", {"amount": 5})
                await run.say(f"Paid {payment.arguments['amount']}.")
            elif run.user_text == "secret":
                properties = {"pin": {"type": "string", "format": "password"}}
                await run.ask("Which PIN?", schema={"type": "object", "properties": properties})
            elif run.user_text == "slow":
                await self.gate.wait()
            await run.say(f"Hello, {run.principal}.")

        def authenticate(request: Request) -> str | None:
            found = re.search(r"user=(\w+)", request.headers.get("cookie", ""))
            return None if found is None else found[1]

        async def login(request: StarletteRequest) -> Response:
            if "user" in request.query_params:
                answer = RedirectResponse("/chat/" + request.query_params.get("at", ""), 303)
                answer.set_cookie("user", request.query_params["user"])
                return answer
            return HTMLResponse("<h1>Login</h1>")

        app = App(agent, authenticate=authenticate, page=Page(login="/login"))
        self.url = serve(Starlette(routes=[Route("/login", login), Mount("/chat", app)], lifespan=app.lifespan))
        self.chat = open_page(f"{self.url}/login?user=ada")

    def end_session(self) -> None:
        """End the session of the user: the page goes to the login, or shows a link to it the second time."""
        page = self.chat.page
        page.context.clear_cookies()
        page.reload()
        login = page.get_by_role("heading", name="Login")
        expect(login.or_(page.get_by_role("link", name="Sign in"))).to_be_visible()

    def sign_in(self, name: str, thread: str | None = None) -> None:
        self.chat.page.goto(f"{self.url}/login?user={name}")
        expect(self.chat.composer()).to_be_visible()
        if thread is not None:
            self.chat.page.goto(f"{self.url}/chat/#/chat/{thread}")


@pytest.fixture
def site(serve: Callable[[Any], str], open_page: Callable[..., ChatPage]) -> Iterator[Site]:
    site = Site(serve, open_page)
    yield site
    site.gate.open()
    console = site.chat.console
    console[:] = [line for line in console if not re.search(r" 40[14] |^request: |autocomplete", line)]


def test_another_user_of_the_tab_sees_no_draft_and_no_waiting_message(site: Site) -> None:
    chat = site.chat
    chat.write("slow")
    site.gate.await_reached()
    chat.write("a waiting secret")
    waiting = chat.page.get_by_role("region", name="Waiting messages")
    expect(waiting).to_contain_text("a waiting secret")
    chat.composer().fill("a drafted secret")
    thread = chat.thread_id
    site.end_session()
    site.sign_in("ada", thread)
    expect(chat.composer()).to_have_value("a drafted secret")
    expect(waiting).to_contain_text("a waiting secret")
    chat.page.get_by_role("link", name="New thread").click()
    chat.composer().fill("a new secret")
    site.end_session()
    site.sign_in("bob")
    expect(chat.page.get_by_text("No threads yet.")).to_be_visible()
    expect(chat.composer()).to_have_value("")
    chat.page.wait_for_function("!JSON.stringify({...sessionStorage}).includes('secret')")
    with chat.page.expect_console_message(lambda message: " 404 " in message.text):  # it is not a thread of bob's
        chat.page.goto(f"{site.url}/chat/#/chat/{thread}")
    expect(chat.composer()).to_have_value("")
    expect(waiting).to_have_count(0)


def test_a_user_who_signs_in_elsewhere_ends_what_the_tab_shows(site: Site) -> None:
    chat = site.chat
    chat.write("hello")
    chat.sees("Hello, ada.")
    chat.composer().fill("a drafted secret")
    chat.attach("secret.txt", "text/plain", b"eagles")
    chat.page.context.add_cookies([{"name": "user", "value": "bob", "url": site.url}])
    chat.page.evaluate("dispatchEvent(new Event('focus'))")
    expect(chat.composer()).to_have_value("")
    expect(chat.page.get_by_label("Attachments")).to_have_count(0)
    chat.page.wait_for_function("!JSON.stringify({...sessionStorage}).includes('secret')")


def test_another_token_sees_no_draft_and_the_same_user_sees_it(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    async def agent(run: Run) -> None:
        await run.say(f"Hello, {run.principal}.")

    def authenticate(request: Request) -> str | None:
        found = re.match(r"Bearer (\w+)-\d", request.headers.get("authorization", ""))
        return None if found is None else found[1]

    chat = open_page(serve(App(agent, page=True, authenticate=authenticate)))
    dialog = chat.page.get_by_role("dialog")

    def use(token: str) -> None:
        if not dialog.is_visible():
            chat.page.get_by_role("button", name="Change token").click()
        dialog.get_by_label("Bearer token").fill(token)
        dialog.get_by_role("button", name="Use token").click()

    expect(dialog).to_be_visible()
    use("ada-1")
    chat.write("hello")
    chat.sees("Hello, ada.")
    chat.composer().fill("a drafted secret")
    use("ada-2")
    expect(chat.composer()).to_have_value("a drafted secret")
    use("bob-1")
    expect(chat.page.get_by_text("No threads yet.")).to_be_visible()
    expect(chat.composer()).to_have_value("")
    chat.page.wait_for_function("!JSON.stringify({...sessionStorage}).includes('secret')")
    chat.console[:] = [line for line in chat.console if not re.search(r" 40[14] ", line)]


def test_what_was_typed_into_a_question_is_kept_until_it_is_answered(site: Site) -> None:
    chat = site.chat
    chat.write("ask")
    colour = chat.question().get_by_label("colour")
    colour.fill("dark green")
    chat.question().get_by_label("count").fill("3")
    thread = chat.thread_id
    chat.page.reload()
    expect(colour).to_have_value("dark green")
    expect(chat.question().get_by_label("count")).to_have_value("3")
    chat.new_thread()
    chat.page.go_back()
    expect(colour).to_have_value("dark green")
    site.end_session()
    site.sign_in("ada", thread)
    expect(colour).to_have_value("dark green")
    chat.question().get_by_role("button", name="Answer").click()
    chat.sees("You chose dark green.")
    assert "dark green" not in chat.page.evaluate("JSON.stringify({...sessionStorage})")


def test_changed_arguments_and_a_reason_are_kept_after_a_reload(site: Site) -> None:
    chat = site.chat
    chat.write("pay")
    chat.question().get_by_label("amount").fill("7")
    chat.page.reload()
    expect(chat.question().get_by_label("amount")).to_have_value("7")
    chat.question().get_by_role("button", name="Reject…").click()
    chat.question().get_by_label("Reason").fill("too much")
    chat.page.reload()
    expect(chat.question().get_by_label("Reason")).to_have_value("too much")
    chat.question().get_by_role("button", name="Back").click()
    chat.question().get_by_role("button", name="Approve with changes").click()
    chat.sees("Paid 7.")


def test_a_password_is_never_stored(site: Site) -> None:
    chat = site.chat
    chat.write("secret")
    chat.question().get_by_label("pin").fill("4711")
    expect(chat.question().get_by_label("pin")).to_have_value("4711")
    assert "4711" not in chat.page.evaluate("JSON.stringify({...sessionStorage})")


def test_an_edit_is_kept_and_a_message_with_a_file_is_edited_without_a_new_line(site: Site) -> None:
    chat = site.chat
    chat.attach("note.txt", "text/plain", b"eagles")
    chat.write("what is that")
    chat.sees("Hello, ada.")
    chat.is_idle()
    chat.page.get_by_role("button", name="Edit").click()
    edit = chat.page.get_by_label("Edit message")
    expect(edit).to_have_value("what is that")
    edit.fill("what is this")
    chat.page.reload()
    expect(edit).to_have_value("what is this")
    chat.new_thread()
    chat.page.go_back()
    expect(edit).to_have_value("what is this")
    chat.page.get_by_role("button", name="Send again").click()
    expect(chat.user_message("what is this")).to_be_visible()
    expect(edit).to_have_count(0)


def test_attachments_are_kept_after_a_reload_and_in_another_thread(site: Site) -> None:
    chat = site.chat
    chat.attach("note.txt", "text/plain", b"eagles")
    chat.page.reload()
    attachments = chat.page.get_by_label("Attachments")
    expect(attachments).to_contain_text("note.txt")
    chat.write("hello")
    chat.sees("Hello, ada.")
    expect(chat.user_message("hello")).to_contain_text("note.txt")
    expect(attachments).to_have_count(0)
    chat.attach("other.txt", "text/plain", b"owls")
    chat.new_thread()
    expect(attachments).to_have_count(0)
    chat.page.go_back()
    expect(attachments).to_contain_text("other.txt")
