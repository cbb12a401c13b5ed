"""Interrupts as forms: every kind of schema, several at once, rejections, and what the server says about an answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from accessibility import axe_findings
from chat_page import ChatPage
from playwright.sync_api import expect

from aguila.agent import Question, Run
from aguila.server import App

ADDRESS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "zip": {"type": "string"}},
    "required": ["city"],
}
EVERY_KIND: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name"},
        "age": {"type": "integer", "minimum": 0},
        "height": {"type": "number"},
        "colour": {"enum": ["red", "green", "blue"]},
        "size": {"oneOf": [{"const": 1, "title": "small"}, {"const": 2, "title": "large"}]},
        "agreed": {"type": "boolean", "description": "The terms are long."},
        "address": {"$ref": "#/$defs/address"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "stops": {"type": "array", "items": {"$ref": "#/$defs/address"}},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "extra": {},
    },
    "required": ["name", "age", "height", "colour", "size", "agreed", "address", "tags", "stops"],
    "$defs": {"address": ADDRESS},
}


async def asks_every_kind(run: Run) -> None:
    answer = await run.ask("Tell me all.", schema=EVERY_KIND)
    await run.say(json.dumps(answer, sort_keys=True))


def test_a_form_has_a_field_for_every_kind_of_schema(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    url = serve(App(asks_every_kind, allow_anonymous=True, page=True))
    chat = open_page(url)
    chat.write("go")
    form = chat.question()
    form.get_by_role("button", name="Answer").click()
    expect(form.get_by_role("alert")).to_contain_text("6 fields need a change.")
    expect(form.get_by_label("Your name")).to_have_accessible_description("Your name is required.")
    form.get_by_label("Your name").fill("Ada")
    form.get_by_label("age").fill("36")
    form.get_by_label("height").fill("1.7")
    form.get_by_label("colour").select_option("green")
    form.get_by_label("size").select_option("large")
    form.get_by_label("agreed").check()
    address = form.get_by_role("group", name="address")
    address.get_by_label("city").fill("London")
    for tag in ("math", "birds", "none"):
        form.get_by_role("button", name="Add to tags").click()
        form.get_by_role("group", name="tags").get_by_role("textbox").last.fill(tag)
    form.get_by_role("button", name="Remove tags 3").click()
    form.get_by_role("button", name="Add to stops").click()
    form.get_by_role("group", name="stops 1").get_by_label("city").fill("Turin")
    form.get_by_label("extra").fill('{"any": [1, null]}')
    for scheme in ("light", "dark"):
        chat.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        assert axe_findings(chat.page) == [], scheme
    form.get_by_role("button", name="Answer").click()
    chat.is_idle()
    expected = {
        "name": "Ada",
        "age": 36,
        "height": 1.7,
        "colour": "green",
        "size": 2,
        "agreed": True,
        "address": {"city": "London"},
        "tags": ["math", "birds"],
        "stops": [{"city": "Turin"}],
        "extra": {"any": [1, None]},
    }
    answered = chat.messages().locator(".markdown").last.inner_text()
    assert json.loads(answered) == expected


async def asks_several(run: Run) -> None:
    first, second = await run.ask_all(
        [Question(question="Which colour?"), Question(question="How many?", schema={"type": "integer"})]
    )
    await run.say(f"{second} in {first}.")


def test_several_questions_are_answered_together(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    url = serve(App(asks_several, allow_anonymous=True, page=True))
    chat = open_page(url)
    chat.write("go")
    expect(chat.question()).to_have_count(2)
    send = chat.page.get_by_role("button", name="Send 2 answers")
    expect(send).to_be_disabled()
    chat.question().first.get_by_label("Answer").fill("green")
    chat.question().first.get_by_role("button", name="Answer").click()
    expect(chat.page.get_by_text("1 left to answer")).to_be_visible()
    chat.question().last.get_by_label("Answer").fill("7")
    chat.question().last.get_by_role("button", name="Answer").click()
    send.click()
    chat.sees("7 in green.")


async def asks_for_approval(run: Run) -> None:
    approval = await run.approve("send_mail", {"to": "ada@example.com"})
    await approval.call.result("sent" if approval else "not sent")
    await run.say("Approved." if approval else f"Rejected: {approval.reason}")


def test_a_call_is_rejected_with_a_reason(serve: Callable[[Any], str], open_page: Callable[..., ChatPage]) -> None:
    url = serve(App(asks_for_approval, allow_anonymous=True, page=True))
    chat = open_page(url)
    chat.write("go")
    chat.question().get_by_role("button", name="Reject…").click()
    chat.question().get_by_label("Reason").fill("Too early.")
    chat.question().get_by_role("button", name="Reject", exact=True).click()
    chat.sees("Rejected: Too early.")


ARGUMENTS: dict[str, Any] = {
    "to": "ada@example.com",
    "copies": 2,
    "urgent": False,
    "body": "Dear Ada,\nhello.",
    "tags": ["birds"],
    "reply_to": None,
}


async def asks_with_many_arguments(run: Run) -> None:
    approval = await run.approve("send_mail", ARGUMENTS)
    await approval.call.result("sent" if approval else "not sent")
    await run.say(json.dumps(approval.arguments, sort_keys=True))


def test_arguments_are_edited_in_fields_and_as_json(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    chat = open_page(serve(App(asks_with_many_arguments, allow_anonymous=True, page=True)))
    chat.write("go")
    form = chat.question()
    form.get_by_label("to", exact=True).fill("grace@example.com")
    expect(form.get_by_role("button", name="Approve with changes")).to_be_visible()
    form.get_by_label("to", exact=True).fill("ada@example.com")
    expect(form.get_by_role("button", name="Approve", exact=True)).to_be_visible()
    form.get_by_label("copies").fill("")
    expect(form).to_contain_text("copies is required")
    expect(form.get_by_role("button", name="Approve")).to_be_disabled()
    form.get_by_label("copies").fill("3")
    form.get_by_label("urgent").check()
    form.get_by_label("body").fill("Dear Grace")
    form.get_by_label("tags").fill('["birds", "owls"]')
    form.get_by_label("Edit as JSON").check()
    arguments = form.get_by_label("Arguments")
    edited = json.loads(arguments.input_value())
    assert edited == ARGUMENTS | {"copies": 3, "urgent": True, "body": "Dear Grace", "tags": ["birds", "owls"]}
    arguments.fill("{")
    expect(form).to_contain_text("This is not JSON.")
    arguments.fill(json.dumps(edited | {"more": 1}))
    form.get_by_role("button", name="Approve with changes").click()
    chat.is_idle()
    assert json.loads(chat.messages().locator(".markdown").last.inner_text()) == edited | {"more": 1}


async def asks_without_a_schema(run: Run) -> None:
    first = await run.ask("Say something.")
    second = await run.ask("Send something.")
    await run.say(f"{type(first).__name__} and {type(second).__name__}")


def test_an_answer_without_a_schema_is_text_or_json(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    chat = open_page(serve(App(asks_without_a_schema, allow_anonymous=True, page=True)))
    chat.write("go")
    chat.question().get_by_label("Answer").fill('{"a": 1}')
    chat.question().get_by_role("button", name="Answer").click()
    expect(chat.question()).to_contain_text("Send something.")
    chat.question().get_by_label("Send as JSON").check()
    chat.question().get_by_label("Answer").fill('{"a": 1}')
    chat.question().get_by_role("button", name="Answer").click()
    chat.sees("str and dict")
