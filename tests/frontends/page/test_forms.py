"""What is wrong with an answer: said at its field, before it is sent and when the server refuses it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from accessibility import axe_findings
from chat_page import ChatPage
from playwright.sync_api import Route, expect

from aguila.agent import Question, Run
from aguila.server import App

BOOKING: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2},
        "nights": {"type": "integer", "minimum": 1, "maximum": 30, "description": "How long you stay."},
        "code": {"type": "string", "pattern": "(?i)^[a-z]{3}$"},
        "extra": {"type": "array", "items": {"type": "string"}, "maxItems": 1},
        "note": {},
    },
    "required": ["city", "nights", "code"],
}


async def asks_for_a_booking(run: Run) -> None:
    await run.say(json.dumps(await run.ask("Which hotel?", schema=BOOKING), sort_keys=True))


def test_a_form_says_at_each_field_what_is_wrong_before_it_sends(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    chat = open_page(serve(App(asks_for_a_booking, allow_anonymous=True, page=True)))
    chat.write("go")
    form = chat.question()
    city, nights = form.get_by_label("city"), form.get_by_label("nights")
    form.get_by_role("button", name="Answer").click()
    expect(form.get_by_role("alert")).to_have_text("3 fields need a change.")
    expect(city).to_be_focused()
    city.fill("L")
    nights.fill("0")
    form.get_by_label("code").fill("abc")
    form.get_by_label("note").fill("{")
    for tag in ("one", "two"):
        form.get_by_role("button", name="Add to extra").click()
        form.get_by_role("textbox", name="extra").last.fill(tag)
    form.get_by_role("button", name="Answer").click()
    expect(city).to_have_accessible_description("city needs at least 2 characters.")
    expect(nights).to_have_accessible_description("How long you stay. nights must be at least 1.")
    expect(form).to_contain_text("extra has more than 1 entry.")
    expect(form).to_contain_text("This is not JSON.")
    assert axe_findings(chat.page) == []
    city.fill("Lisbon")
    expect(city).to_have_accessible_description("")
    nights.fill("2")
    form.get_by_role("button", name="Remove extra 2").click()
    expect(form.get_by_role("alert")).to_have_count(0)
    form.get_by_role("button", name="Answer").click()
    expect(form.get_by_label("note")).to_be_focused()  # it would be lost
    form.get_by_label("note").fill('"quiet"')
    form.get_by_role("button", name="Answer").click()
    chat.is_idle()
    answer = json.loads(chat.messages().locator(".markdown").last.inner_text())
    assert answer == {"city": "Lisbon", "nights": 2, "code": "abc", "extra": ["one"], "note": "quiet"}


async def asks_for_a_party(run: Run) -> None:
    text = {"type": "string"}
    members = {
        "guests": {"type": "array", "items": text, "minItems": 1},
        "name": text,
        "place": {"type": "object", "properties": {"city": text}},
        "gifts": {"type": "array", "items": text},
        "music": {"oneOf": [text, {"type": "integer"}]},
    }
    await run.ask("Who comes?", schema={"type": "object", "properties": members, "required": ["guests", "name"]})


def test_a_form_says_what_is_optional_and_what_is_json_and_leads_to_an_empty_list(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    chat = open_page(serve(App(asks_for_a_party, allow_anonymous=True, page=True)))
    chat.write("go")
    form = chat.question()
    expect(form.locator("legend")).to_have_text(["guests", "place (optional)", "gifts (optional)"])
    expect(form.get_by_role("textbox", name="music (JSON, optional)")).to_be_visible()
    form.get_by_role("button", name="Answer").click()
    add = form.get_by_role("button", name="Add to guests")
    expect(add).to_be_focused()
    expect(add).to_have_accessible_description("guests is required.")


def test_an_answer_that_the_server_refuses_keeps_its_form_and_is_explained_at_its_field(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    chat = open_page(serve(App(asks_for_a_booking, allow_anonymous=True, page=True)))
    chat.write("go")
    form = chat.question()
    form.get_by_label("city").fill("Lisbon")
    form.get_by_label("nights").fill("2")
    code = form.get_by_label("code")
    code.fill("1234")  # JavaScript has no such pattern: only the server can check it
    form.get_by_role("button", name="Answer").click()
    expect(code).to_have_accessible_description('The server refuses it: "1234" does not match "(?i)^[a-z]{3}$".')
    expect(code).to_be_focused()
    expect(form.get_by_label("city")).to_have_value("Lisbon")
    expect(form.get_by_label("nights")).to_have_value("2")
    chat.console.clear()  # the browser reports the 422
    code.fill("ABC")
    expect(code).to_have_accessible_description("")
    form.get_by_role("button", name="Answer").click()
    chat.sees('"code": "ABC"')
    expect(form).to_have_count(0)


async def asks_twice(run: Run) -> None:
    first, second = await run.ask_all(
        [
            Question(question="Which word?", schema={"type": "string", "pattern": "(?i)^[a-z]+$"}),
            Question(question="How many?", schema={"type": "integer", "minimum": 1}),
        ]
    )
    await run.say(f"{second} times {first}.")


def test_of_several_answers_the_one_that_is_refused_is_asked_again(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    chat = open_page(serve(App(asks_twice, allow_anonymous=True, page=True)))
    chat.write("go")
    first, second = chat.question().first, chat.question().last
    first.get_by_label("Answer").fill("owl 7")
    first.get_by_role("button", name="Answer").click()
    second.get_by_label("Answer").fill("3")
    second.get_by_role("button", name="Answer").click()
    chat.page.get_by_role("button", name="Send 2 answers").click()
    expect(first.get_by_label("Answer")).to_have_value("owl 7")
    expect(first).to_contain_text("The server refuses it")
    expect(second).to_contain_text("Answer: 3")
    chat.console.clear()
    first.get_by_label("Answer").fill("owl")
    first.get_by_role("button", name="Answer").click()
    chat.page.get_by_role("button", name="Send 2 answers").click()
    chat.sees("3 times owl.")


def test_an_answer_that_does_not_arrive_keeps_its_form(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    chat = open_page(serve(App(asks_for_a_booking, allow_anonymous=True, page=True)))
    chat.write("go")
    form = chat.question()
    form.get_by_label("city").fill("Lisbon")
    form.get_by_label("nights").fill("2")
    form.get_by_label("code").fill("abc")

    error = {"code": "thread_busy", "message": "Another run is in progress."}

    def refuse(route: Route) -> None:
        if route.request.method == "POST":
            route.fulfill(status=409, json={"error": error})
        else:
            route.continue_()

    chat.page.route("**/*", refuse)
    form.get_by_role("button", name="Answer").click()
    expect(chat.page.get_by_role("alert")).to_contain_text("The answer was not sent. Another run is in progress.")
    expect(form.get_by_label("city")).to_have_value("Lisbon")
    # What is written for developers is said in words.
    error.update(code="interrupt_expired", message="interrupt 'i-1' expired at 2026-01-31T12:00:00Z")
    form.get_by_role("button", name="Answer").click()
    expect(chat.page.get_by_role("alert")).to_have_text("The answer was not sent. The question has expired.")
    chat.page.unroute("**/*")
    chat.console.clear()
    form.get_by_role("button", name="Answer").click()
    chat.sees('"city": "Lisbon"')


def test_the_expiry_of_a_question_counts_down_and_then_it_can_only_be_cancelled(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    async def asks_for_an_hour(run: Run) -> None:
        expires_at = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        await run.ask_all([Question(question="Which word?", expires_at=expires_at), Question(question="Why?")])

    chat = open_page(serve(App(asks_for_an_hour, allow_anonymous=True, page=True)))
    chat.page.clock.install()
    chat.page.reload()
    chat.write("go")
    first, second = chat.question().first, chat.question().last
    expect(first).to_contain_text(re.compile(r"Expires in 59 min 5\d s\."))
    first.get_by_label("Answer").fill("owl")
    first.get_by_role("button", name="Answer").click()
    second.get_by_label("Answer").fill("It sees at night.")
    second.get_by_role("button", name="Answer").click()
    send = chat.page.get_by_role("button", name="Send 2 answers")
    expect(send).to_be_enabled()
    chat.page.clock.fast_forward("59:00")
    expect(first).to_contain_text(re.compile(r"Expires in [1-5]?\d s\."))
    chat.page.clock.fast_forward("01:00")
    expect(first.get_by_role("alert")).to_have_text("This question has expired. It can no longer be answered.")
    expect(first.get_by_role("button")).to_have_text(["Cancel the run"])
    expect(send).to_be_disabled()
    assert axe_findings(chat.page) == []
    first.get_by_role("button", name="Cancel the run").click()
    send.click()
    expect(chat.question()).to_have_count(0)


# A schema, what is typed or picked, and what the form says about it.
CHECKS: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "number", "exclusiveMaximum": 2}, "2", "Answer must be less than 2."),
    ({"type": "number", "multipleOf": 0.5}, "0.7", "Answer must be a multiple of 0.5."),
    ({"type": "integer"}, "1.5", "Answer must be a whole number."),
    ({"type": "string", "maxLength": 3}, "eagle", "Answer has more than 3 characters."),
    ({"type": "string", "pattern": "^[A-Z]+$"}, "owl", "Answer does not have the expected form (pattern ^[A-Z]+$)."),
    ({"type": "string", "format": "email"}, "ada", "Answer must be an e-mail address."),
    (
        {"type": "string", "format": "uri", "title": "Site"},
        "example",
        "Site must be an address such as https://example.com.",
    ),
    ({"type": "object", "additionalProperties": {"type": "string"}}, '{"a": 1}', "a must be text."),
    ({"type": "object", "required": ["b"]}, "{}", "b is required."),
    ({"type": "object"}, "[]", "Answer must be an object."),
    ({"anyOf": [{"type": "string", "minLength": 2}, {"type": "null"}]}, "x", "Answer needs at least 2 characters."),
    ({"$ref": "#/$defs/few", "$defs": {"few": {"type": "integer", "maximum": 3}}}, "4", "Answer must be at most 3."),
    ({"not": {"const": "no"}}, '"no"', "Answer must not be no."),
]


async def asks_all_checks(run: Run) -> None:
    await run.ask_all([Question(question=str(number), schema=schema) for number, (schema, _, _) in enumerate(CHECKS)])


def test_a_form_checks_what_a_schema_can_say(serve: Callable[[Any], str], open_page: Callable[..., ChatPage]) -> None:
    chat = open_page(serve(App(asks_all_checks, allow_anonymous=True, page=True)))
    chat.write("go")
    expect(chat.question()).to_have_count(len(CHECKS))
    for number, (schema, typed, text) in enumerate(CHECKS):
        form = chat.question().nth(number)
        form.locator("input, textarea").first.fill(typed)
        form.get_by_role("button", name="Answer").click()
        expect(form.locator("small.is-bad"), str(schema)).to_have_text(text)
