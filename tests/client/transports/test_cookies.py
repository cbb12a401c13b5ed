"""Cookies: no transport stores those of responses, and those that the user passes are sent."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from scripted_server import Answer, Asked, ScriptedServer, run_of

from aguila import AsyncClient, Client
from aguila.client.transports.aiohttp import AiohttpTransport
from aguila.client.transports.httpx2 import AsyncHTTPX2Transport

pytestmark = pytest.mark.anyio


def with_cookie(asked: Asked) -> Answer:
    answer = run_of()(asked)
    answer.headers["Set-Cookie"] = "session=of-the-first-user; Path=/"
    return answer


TRANSPORTS = {"httpx2": AsyncHTTPX2Transport, "aiohttp": AiohttpTransport}


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_users_of_a_shared_client_do_not_get_each_others_cookies(transport: str) -> None:
    with ScriptedServer(with_cookie, with_cookie, with_cookie) as server:
        async with AsyncClient(server.url, transport=TRANSPORTS[transport]()) as client:
            for user in ("first", "second", "third"):
                await client.thread(user).run("hello")
        assert [asked.headers.get("cookie") for asked in server.requests] == [None] * 3


def test_the_sync_client_stores_no_cookies() -> None:
    with ScriptedServer(with_cookie, with_cookie) as server:
        with Client(server.url) as client:
            for user in ("first", "second"):
                client.thread(user).run("hello").result()
        assert [asked.headers.get("cookie") for asked in server.requests] == [None] * 2


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_cookies_that_the_user_passes_are_sent(transport: str) -> None:
    make: Any = TRANSPORTS[transport]
    with ScriptedServer(with_cookie, with_cookie) as server:
        async with AsyncClient(server.url, transport=make(cookies={"mine": "1"})) as client:
            for user in ("first", "second"):
                await client.thread(user).run("hello")
        assert [asked.headers.get("cookie") for asked in server.requests] == ["mine=1"] * 2


async def test_a_client_of_the_user_keeps_its_cookies() -> None:
    with ScriptedServer(with_cookie, with_cookie) as server:
        async with httpx2.AsyncClient() as own:
            client = AsyncClient(server.url, transport=AsyncHTTPX2Transport(own))
            for user in ("first", "second"):
                await client.thread(user).run("hello")
        assert [asked.headers.get("cookie") for asked in server.requests] == [None, "session=of-the-first-user"]
