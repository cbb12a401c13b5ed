"""App(allowed_media=...): agents see only references to media that it admits."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from in_process import Reader
from serving import run_input

from aguila import App
from aguila.chat.allowed_media import AllowedMedia
from aguila.codec.notices import Notice
from aguila.server import Trust

pytestmark = pytest.mark.anyio

PUBLIC = "https://example.com/a.png"
PRIVATE = "https://169.254.169.254/latest"


def image(url: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "url", "value": url}}


def file(provider: str | None) -> dict[str, Any]:
    named = {} if provider is None else {"provider": provider}
    return {"type": "image", "source": {"type": "file", "value": "f", **named}}


def user(message_id: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"id": message_id, "role": "user", "content": [{"type": "text", "text": "look"}, *parts]}


class Seen:
    """An agent that keeps the values of the sources that it sees."""

    def __init__(self) -> None:
        self.values: list[str] = []

    async def __call__(self, run: Any) -> AsyncIterator[str]:
        for message in run.messages:
            if isinstance(message.content, list):
                self.values += [part.source.value for part in message.content if part.type != "text"]
        yield "done"


async def send(app: App, *messages: dict[str, Any], thread_id: str = "t", run_id: str = "r") -> tuple[int, Any]:
    reader = Reader(app)
    body = json.dumps(run_input(thread_id, run_id, messages=list(messages))).encode()
    status = await reader.request("POST", "/", body, content_type="application/json")
    return status, json.loads(reader.body)["error"] if status >= 400 else None


@pytest.mark.parametrize("history", ["client", "server"])
@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (image(PRIVATE), "the host 169.254.169.254 is not allowed; add it with AllowedMedia"),
        (image("https://2130706433/"), "the host 127.0.0.1 is not allowed; add it with AllowedMedia"),
        (image("http://example.com/"), "URLs with http: are not allowed; add the scheme with AllowedMedia"),
        (file("openai"), "files of 'openai' are not allowed; add the provider with AllowedMedia"),
    ],
)
async def test_a_new_message_with_a_reference_that_is_not_admitted_is_refused(
    history: Any, part: dict[str, Any], reason: str
) -> None:
    agent = Seen()
    async with App(agent, history=history) as app:
        status, error = await send(app, user("m1", image(PUBLIC)), user("m2", image(PUBLIC), part))
        assert (status, error["code"], error["path"]) == (422, "media_not_allowed", "/messages/1/content/2")
        assert reason in error["message"]
        assert agent.values == []


async def test_what_is_admitted_reaches_the_agent() -> None:
    agent = Seen()
    own = AllowedMedia(schemes=["http", "https"], hosts=["*", "minio"], providers=["openai"])
    parts = [image("http://minio:9000/a"), image(PUBLIC), file("openai")]
    async with App(agent, trust=Trust(media=own)) as app:
        assert (await send(app, user("m", *parts)))[0] == 200
    assert agent.values == ["http://minio:9000/a", PUBLIC, "f"]
    agent = Seen()
    data = {"type": "image", "source": {"type": "data", "value": "AA==", "mimeType": "image/png"}}
    async with App(agent) as app:
        message = user("m", data, file(None), file("aguila"), image("data:image/png;base64,AA=="))
        assert (await send(app, message))[0] == 200
    assert len(agent.values) == 4


@pytest.mark.parametrize("history", ["client", "server"])
async def test_a_reference_in_older_messages_is_left_out_with_a_notice_and_the_thread_goes_on(history: Any) -> None:
    agent, notices = Seen(), list[Notice]()
    wide = AllowedMedia(hosts=["*", "169.254.169.254"])
    first = user("m1", image(PRIVATE), image(PUBLIC))
    async with App(agent, history=history, trust=Trust(media=wide)) as app:
        store = app.store
        assert (await send(app, first))[0] == 200
        assert agent.values == [PRIVATE, PUBLIC]
        strict = App(agent, store=store, history=history, warn=notices.append)
        async with strict:
            agent.values.clear()
            answer = {"id": "a1", "role": "assistant", "content": "done"}
            assert (await send(strict, first, answer, user("m2", image(PUBLIC)), run_id="r2"))[0] == 200
    assert agent.values == [PUBLIC, PUBLIC]
    (notice,) = [notice for notice in notices if notice.rule == "allowed-media"]
    assert notice.path == "/messages/0/content/1"
    assert "message 'm1'" in notice.message
    assert "AllowedMedia" in notice.message


async def test_a_run_that_is_not_stored_is_checked_too() -> None:
    async with App(Seen()) as app:
        reader = Reader(app)
        body = json.dumps(run_input("t", "r", messages=[user("m", image(PRIVATE))])).encode()
        assert await reader.request("POST", "/?store=false", body, content_type="application/json") == 422
