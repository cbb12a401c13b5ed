"""Connect to the first of several hosts that accepts writes.

asyncpg tries the hosts of a DSN one after the other, and all of them share one timeout. A host that has lost power and
does not answer would use it up, and the promoted standby would never be tried. So each host is tried by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from aguila.store.locations import OPTION_PREFIX, OPTIONS

HEAD_START = 0.3
"""Seconds after which the next host is tried, too, while the ones before have not answered."""


class Host(NamedTuple):
    """A host of a DSN. Without a port, the driver chooses it."""

    name: str
    port: int | None


def list_hosts(dsn: str) -> list[Host]:
    """Return the hosts that a DSN names, in its order; an empty list if the environment names them."""
    parts = urlsplit(dsn)
    query = parse_qs(parts.query)
    names = parts.netloc.rpartition("@")[2] or ",".join(query.get("host", []))
    ports = [int(port) if port else None for port in ",".join(query.get("port", [])).split(",")]
    hosts = [_parse_host(name) for name in names.split(",") if name]
    if len(ports) == 1:
        ports *= len(hosts)
    if len(ports) != len(hosts):
        return []  # the driver explains what is wrong
    return [Host(host.name, host.port or port) for host, port in zip(hosts, ports, strict=True)]


def _parse_host(text: str) -> Host:
    if text.startswith("["):  # an IPv6 address
        name, _, port = text[1:].partition("]")
        return Host(unquote(name), int(port[1:]) if port[1:] else None)
    name, _, port = text.partition(":")
    return Host(unquote(name), int(port) if port else None)


_UNSUPPORTED = {
    "connect_timeout": "set patience of the store, or store_patience of the app",
    "channel_binding": "the driver has none; leave it out, and use sslmode=verify-full",
    "keepalives": "set them in the operating system",
}
"""Parameters of libpq that the driver would take for settings of the server, and what to do instead."""

_ESCAPES = "in a user name or password write %40 for @, %3A for :, %2F for / and %23 for #"


def check_url(dsn: str) -> None:
    """Raise ``ValueError`` if a URL cannot work, with what to change."""
    parts = urlsplit(dsn)
    if parts.scheme not in ("postgresql", "postgres") or not dsn.startswith(f"{parts.scheme}://"):
        raise ValueError("PostgresStore needs a URL: postgresql://user@host/database")
    if "@" in parts.path or parts.fragment:  # the rest of a password that was not escaped
        raise ValueError(f"the PostgreSQL URL cannot be split into its parts; {_ESCAPES}")
    try:
        list_hosts(dsn)
    except ValueError:
        raise ValueError(f"a port of the PostgreSQL URL is not a number; {_ESCAPES}") from None
    for name in parse_qs(parts.query, keep_blank_values=True):
        if name in OPTIONS or name.startswith(OPTION_PREFIX):
            option = name.removeprefix(OPTION_PREFIX)
            raise ValueError(
                f"{name} is no parameter of PostgreSQL; pass {option}= to PostgresStore, or write "
                f"{OPTION_PREFIX}{option}= in the URL of App(store=) and --store"
            )
        if name in _UNSUPPORTED:
            raise ValueError(f"the parameter {name} of the PostgreSQL URL is not supported: {_UNSUPPORTED[name]}")


async def connect_to_first(
    hosts: Sequence[Host], connect: Callable[[Host], Awaitable[Any]], is_final: Callable[[BaseException], bool]
) -> tuple[Host, Any]:
    """Return the first host that accepts a connection, and the connection.

    Hosts are tried in their order. The next one is tried when one fails, or has not answered for ``HEAD_START``.
    Raises an error that is final, if there is one, or the last error.
    """
    left = list(hosts)
    tasks: dict[asyncio.Task[Any], Host] = {}
    errors: list[BaseException] = []
    try:
        while left or tasks:
            if left:
                host = left.pop(0)
                tasks[asyncio.ensure_future(connect(host))] = host
            done, _ = await asyncio.wait(
                tasks, timeout=HEAD_START if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                error = task.exception()
                if error is None:
                    return tasks.pop(task), task.result()
                errors.append(error)
                del tasks[task]
        raise next(filter(is_final, errors), errors[-1])
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(result, BaseException):
                result.terminate()
