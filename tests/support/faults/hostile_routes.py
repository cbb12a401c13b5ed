"""Hostile requests for every route of an app with all front ends: common ones for all, and bodies for some.

A route that is not here fails ``test_every_route_has_hostile_cases``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

HEAD = 60_000
"""Bytes that a head may have besides its usual headers."""


class Hostile(NamedTuple):
    """A request. ``size`` is the number of bytes that it sends."""

    name: str
    method: str
    path: str
    body: bytes = b""
    headers: bytes = b""

    @property
    def size(self) -> int:
        return len(self.path) + len(self.body) + len(self.headers)


OBJECTS: dict[str, Any] = {
    "nested arrays": lambda size: b"[" * (size // 2) + b"]" * (size // 2),
    "nested objects": lambda size: b'{"a":' * (size // 6) + b"1" + b"}" * (size // 6),
    "many members": lambda size: b"{" + b",".join(b'"%d":0' % i for i in range(size // 10)) + b"}",
    "a long string": lambda size: b'{"runId": "' + b"x" * size + b'"}',
    "escapes": lambda size: b'{"agentId": "' + b"\\u0041" * (size // 6) + b'"}',
    "floats": lambda size: b"[" + b",".join([b"9e307"] * (size // 6)) + b"]",
    "no JSON": lambda size: b"\x00\xff" * (size // 2),
}
"""Bodies of about this size for every route that reads a body."""

METADATA: dict[str, Any] = {
    "metadata of many members": lambda size: json.dumps({"metadata": {str(i): i for i in range(size // 12)}}).encode(),
    "nested metadata": lambda size: b'{"metadata": {"a": ' + b"[" * (size // 2) + b"]" * (size // 2) + b"}}",
    "metadata at its limit": lambda size: json.dumps({"metadata": {"a": [[]] * 4_000}}).encode(),
    "a long title": lambda size: json.dumps({"title": "x" * size, "name": "x" * size}).encode(),
}
ENVELOPES: dict[str, Any] = {
    "a long path": lambda size: _envelope("resource/request", path="/threads/" + "%41" * (size // 3), httpMethod="GET"),
    "many parameters": lambda size: _envelope(
        "resource/request", path="/threads?" + "a&" * (size // 2), httpMethod="GET"
    ),
    "a path at its limit": lambda size: _envelope(
        "resource/request", path="/threads?" + "a=%41&" * 99 + "b" * 7_000, httpMethod="GET"
    ),
    "a long agent": lambda size: _envelope("agent/run", agentId="x" * size, body={}),
    "a long text body": lambda size: _envelope("agent/run", agentId="echo", body="\\" * (size // 2)),
    "a large inner body": lambda size: _envelope("agent/run", agentId="echo", body={"a": [[]] * (size // 4)}),
}
UPLOADS: dict[str, Any] = {
    "a form of many parts": lambda size: b"--b\r\n\r\n" * (size // 7),
    "a form with a long header": lambda size: b"--b\r\nX: " + b"y" * size,
}

_BODIES: dict[str, dict[str, Any]] = {
    "PATCH /threads/{id}": METADATA,
    "PATCH /copilotkit/threads/{id}": METADATA,
    "POST /copilotkit": ENVELOPES,
    "POST /files": UPLOADS,
}
"""Further bodies of some routes."""

QUERIES: dict[str, bytes] = {
    "GET /": b"threadId=",
    "GET /threads": b"metadataKey=",
    "GET /probe": b"silence=",
    "GET /threads/{id}/events": b"after=",
    "GET /threads/{id}/runs/{id}/events": b"after=",
    "GET /threads/{id}": b"run=",
    "GET /copilotkit/threads": b"cursor=",
    "GET /copilotkit/threads/{id}/messages": b"agentId=",
    "GET /copilotkit/threads/{id}/events": b"agentId=",
    "GET /copilotkit/threads/{id}/state": b"agentId=",
    "POST /files": b"filename=",
    "GET /admin/runs": b"olderThan=",
    "GET /admin/scopes": b"scope=",
}
"""A parameter that a route reads."""

ROUTES = (
    *(
        "POST /",
        "GET /",
        "POST /connect",
        "GET /capabilities",
        "GET /threads",
        "GET /agents",
        "GET /probe",
        "GET /healthz",
        "GET /readyz",
        "GET /openapi.json",
        "GET /metrics",
    ),
    *("GET /threads/{id}", "PATCH /threads/{id}", "DELETE /threads/{id}", "POST /threads/{id}/cancel"),
    *("GET /threads/{id}/events", "GET /threads/{id}/runs/{id}", "GET /threads/{id}/runs/{id}/events"),
    *("GET /threads/{id}/runs/{id}/input", "GET /threads/{id}/runs/{id}/check"),
    *("POST /threads/{id}/runs/{id}/cancel", "POST /files", "GET /files/{id}", "DELETE /files/{id}"),
    *("GET /data", "DELETE /data"),
    *("GET /admin/runs", "GET /admin/scopes", "POST /admin/scopes/{id}/threads/{id}/runs/{id}/cancel"),
    *("GET / (page)", "GET /_page/{id}"),
    *("POST /copilotkit", "GET /copilotkit/info", "POST /copilotkit/agent/{id}/run", "GET /copilotkit/threads"),
    *("POST /copilotkit/agent/{id}/suggest", "POST /copilotkit/agent/{id}/connect"),
    *("POST /copilotkit/agent/{id}/stop/{id}", "POST /copilotkit/threads/clear", "PATCH /copilotkit/threads/{id}"),
    *("DELETE /copilotkit/threads/{id}", "POST /copilotkit/threads/{id}/archive"),
    *("GET /copilotkit/threads/{id}/messages", "GET /copilotkit/threads/{id}/events"),
    *("GET /copilotkit/threads/{id}/state", "POST /copilotkit/transcribe"),
)
"""The routes that are attacked."""


def cases(route: str, size: int) -> Iterator[Hostile]:
    """Yield the hostile requests for a route. Those of the head have at most ``HEAD`` bytes, bodies about ``size``."""
    method, path = route.removesuffix(" (page)").split(" ")
    accept = b"Accept: text/html\r\n" if route.endswith("(page)") else b""
    usual = path.replace("agent/{id}", "agent/echo").replace("{id}", "t")
    if "{id}" in path:
        yield Hostile("a long id", method, path.replace("{id}", "x" * (HEAD // path.count("{id}"))))
        yield Hostile(
            "an escaped id", method, path.replace("{id}", "%F0%9F%98%80" * (HEAD // 12 // path.count("{id}")))
        )
        yield Hostile("an id that is not UTF-8", method, path.replace("{id}", "%FF" * 1000))
    yield Hostile("many slashes", method, usual + "/" * HEAD)
    yield Hostile("many parameters", method, usual + "?" + "a&" * (HEAD // 2))
    name = QUERIES.get(route, b"limit=").decode()
    yield Hostile("a long parameter", method, f"{usual}?{name}{'9' * HEAD}", headers=accept)
    for header in ("Accept", "Content-Disposition", "Origin", "Last-Event-ID", "Cookie", "If-None-Match", "Range"):
        yield Hostile(
            header, method, usual, headers=accept + header.encode() + b': a="' + b'\\",;=' * (HEAD // 5) + b"\r\n"
        )
    yield Hostile("a flood of headers", method, usual, headers=b"X: y\r\n" * 2_000)
    if method in ("POST", "PATCH", "DELETE"):
        for what, make in {**OBJECTS, **_BODIES.get(route, {})}.items():
            yield Hostile(what, method, usual, body=make(size))
    if route == "POST /files":
        form = b"Content-Type: multipart/form-data; boundary=b\r\n"
        for what, make in UPLOADS.items():
            yield Hostile(f"{what}, as one", method, usual, body=make(size), headers=form)


def _envelope(method: str, body: Any = None, **params: Any) -> bytes:
    return json.dumps({"method": method, "params": params, "body": body}).encode()


def describe(route: str) -> str:
    """Return the hostile cases of a route in short, as in the table of SECURITY.md."""
    found = ["ids"] if "{id}" in route else []
    found += ["slashes, parameters and headers", f"`{QUERIES.get(route, b'limit=').decode()}`"]
    if not route.startswith("GET "):
        found += ["JSON bodies", *_BODIES.get(route, {})]
    return "; ".join(found)
