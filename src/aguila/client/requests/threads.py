"""List, rename and delete threads of a server."""

from __future__ import annotations

from typing import Any

import msgspec

from aguila.client.drivers.actions import Program
from aguila.client.requests.http_requests import fetch
from aguila.client.requests.urls import add_query, merge_headers
from aguila.client.settings import Settings
from aguila.client.transports.base import Request
from aguila.codec.json.bounded_floats import decode_json
from aguila.errors import DecodeError


class ThreadInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The description of a thread on the server, without its conversation. Times are in seconds since 1970."""

    thread_id: str
    title: str | None = None
    archived: bool = False
    metadata: dict[str, Any] | None = None
    agent: str | None = None
    created_at: float | None = None
    updated_at: float | None = None
    runs: int | None = None
    """How many runs the thread has."""
    running_run_id: str | None = None
    """The id of the run in progress."""


class _Page(msgspec.Struct):
    threads: list[ThreadInfo]
    next: str | None = None


class ThreadFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which threads to list. None selects all."""

    archived: bool | None = None
    metadata_key: str | None = None
    metadata_value: str | None = None


def list_page(
    settings: Settings, wanted: ThreadFilter, cursor: str | None
) -> Program[tuple[list[ThreadInfo], str | None]]:
    """Fetch a page of threads, last updated first, and the cursor of the next page; None after the last."""
    members = {
        "archived": None if wanted.archived is None else str(wanted.archived).lower(),
        "metadataKey": wanted.metadata_key,
        "metadataValue": wanted.metadata_value,
        "before": cursor,
    }
    url = add_query(settings.route("threads"), members)
    _, body = yield from fetch(settings, Request(method="GET", url=url, headers=settings.json_headers()))
    page = _decode(body, _Page, "a list of threads")
    return page.threads, page.next


def change_thread(settings: Settings, thread_id: str, changes: dict[str, Any]) -> Program[ThreadInfo]:
    """Change the title, the archived flag or the metadata of a thread."""
    headers = merge_headers(settings.json_headers(), {"Content-Type": "application/json"})
    url = settings.route("threads", thread_id)
    request = Request(method="PATCH", url=url, headers=headers, body=msgspec.json.encode(changes))
    _, body = yield from fetch(settings, request)
    return _decode(body, ThreadInfo, "a thread")


def remove_thread(settings: Settings, thread_id: str) -> Program[None]:
    """Delete a thread."""
    url = settings.route("threads", thread_id)
    yield from fetch(settings, Request(method="DELETE", url=url, headers=settings.json_headers()))


def _decode(body: bytes, kind: type[Any], what: str) -> Any:
    try:
        return decode_json(body, kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise DecodeError(f"the response is not {what}: {error}", rule="json") from error
