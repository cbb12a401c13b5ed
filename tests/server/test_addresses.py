"""Limits per address: which callers count, and a warning about proxies that are not trusted."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aguila import App
from aguila.server import Limits, Quota


async def agent(run: Any) -> Any:
    yield "Hello"


async def post(app: App, number: int, client: tuple[str, int] | None, *headers: tuple[bytes, bytes]) -> int:
    body = b'{"threadId": "t%d", "runId": "r", "messages": []}' % number
    statuses: list[int] = []

    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if not messages:
            await asyncio.Event().wait()  # the client stays until the response has ended
        return messages.pop()

    async def send(message: Any) -> None:
        if "status" in message:
            statuses.append(message["status"])

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "root_path": "", "client": client}
    given = [(b"host", b"localhost"), (b"content-type", b"application/json"), *headers]
    await app({**scope, "headers": given}, receive, send)
    return statuses[0]


@pytest.mark.parametrize(
    ("client", "is_counted"),
    [
        (("203.0.113.9", 1), True),
        (("2001:db8::7", 1), True),
        (("::ffff:203.0.113.9", 1), True),
        (("127.0.0.1", 1), False),
        (("127.0.0.2", 1), False),
        (("::ffff:127.0.0.1", 1), False),
        (("::1", 1), False),
        (("", 0), False),  # a Unix socket
        (None, False),
    ],
)
@pytest.mark.anyio
async def test_all_addresses_of_this_machine_are_exempt_and_no_others(client: Any, is_counted: bool) -> None:
    app = App(agent, store=":memory:", limits=Limits(per_address=Quota(threads=1)))
    async with app:
        statuses = [await post(app, number, client) for number in range(2)]
    assert statuses == [200, 429 if is_counted else 200]


@pytest.mark.parametrize(
    ("client", "forwarded", "named"),
    [
        (("10.0.0.5", 1), b"203.0.113.9", "10.0.0.5"),
        (("127.0.0.1", 1), b"203.0.113.9", "127.0.0.1"),
        (None, b"203.0.113.9", "a Unix socket"),
        (("203.0.113.9", 0), b"203.0.113.9", None),  # a trusted proxy: the server has replaced the address
        (("203.0.113.9", 4711), b"198.51.100.1, 203.0.113.9:4711", None),
        (("2001:db8::7", 4711), b"[2001:db8::7]:4711", None),
    ],
)
@pytest.mark.anyio
async def test_a_proxy_that_is_not_trusted_is_reported_once(
    client: Any, forwarded: bytes, named: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(agent, store=":memory:")
    with caplog.at_level(logging.WARNING, "aguila.server"):
        async with app:
            for number in range(2):
                await post(app, number, client, (b"x-forwarded-for", forwarded))
    found = [one.getMessage() for one in caplog.records if "X-Forwarded-For" in one.getMessage()]
    assert len(found) == (0 if named is None else 1)
    assert all(f"a request from {named} has X-Forwarded-For" in one for one in found)
    assert all("--forwarded-allow-ips" in one for one in found)
