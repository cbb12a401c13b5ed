"""A transport that calls an ASGI application in this process, for tests and embedding.

The application waits while the response is not read, as on a slow connection. Closing a response early disconnects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import unquote, urlsplit

from aguila.client.transports.base import Request
from aguila.errors import TransportFailed

Message = MutableMapping[str, Any]
ASGIApp = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]


_DISCONNECT_SECONDS = 1.0
"""Seconds for an application to notice that its client has disconnected."""


class ASGITransport:
    """Send requests to an ASGI application. Its lifespan starts with the first request and ends with the transport.

    An exception of the application before the response raises ``TransportFailed``. A later one cuts the response off,
    as a server would.
    """

    def __init__(self, app: ASGIApp, *, lifespan: bool = True, client: tuple[str, int] = ("127.0.0.1", 1)) -> None:
        self._app = app
        self._client = client
        self._lifespan = _Lifespan(app) if lifespan else None

    async def send(self, request: Request) -> _Response:
        """Send a request. See ``AsyncTransport``."""
        if self._lifespan is not None:
            await self._lifespan.start()
        url = urlsplit(request.url)
        host = url.hostname or "localhost"
        port = url.port or (443 if url.scheme == "https" else 80)
        headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in request.headers.items()]
        headers.append((b"host", url.netloc.encode()))
        if request.body is not None:
            headers.append((b"content-length", b"%d" % len(request.body)))
        scope: dict[str, Any] = {
            "type": "http",
            # The version that uvicorn declares. From 2.4 on, Starlette waits for an error of send() instead of the
            # disconnect, and leaves the iterator of its response open.
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": url.scheme,
            "path": unquote(url.path) or "/",
            "raw_path": (url.path or "/").encode(),
            "query_string": url.query.encode(),
            "root_path": "",
            "headers": headers,
            "client": self._client,
            "server": (host, port),
        }
        return await _Response.open(self._app, scope, request.body or b"")

    async def close(self) -> None:
        """End the lifespan. See ``AsyncTransport``."""
        if self._lifespan is not None:
            await self._lifespan.stop()


class _Response:
    """A response and the task that produces it. The buffer holds one piece."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self._begun = asyncio.Event()
        self._gone = asyncio.Event()
        self._free = asyncio.Event()
        self._free.set()
        self._full = asyncio.Event()
        self._piece = b""
        self._is_complete = False
        self._failure: BaseException | None = None
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, app: ASGIApp, scope: MutableMapping[str, Any], body: bytes) -> _Response:
        response = cls()
        response._task = asyncio.create_task(response._run(app, scope, body), name="asgi request")
        try:
            await response._begun.wait()
        except asyncio.CancelledError:
            await response.close()
            raise
        if not response.status:
            await response.close()
            problem = f"the application sent no response: {response._failure!r}"
            raise TransportFailed(problem, was_sent=False, is_lasting=True) from response._failure
        return response

    async def read(self) -> bytes:
        await self._full.wait()
        piece, self._piece = self._piece, b""
        if piece:
            if not self._is_complete:
                self._full.clear()
                self._free.set()
            return piece
        if self._failure is not None:
            raise TransportFailed(f"the application broke off its response: {self._failure!r}") from self._failure
        return b""

    async def close(self) -> None:
        self._gone.set()
        self._free.set()  # a blocked send continues, so that the application can notice the disconnect
        task, self._task = self._task, None
        if task is None:
            return
        _, deaf = await asyncio.wait({task}, timeout=_DISCONNECT_SECONDS)
        if deaf:
            task.cancel()
            await asyncio.wait({task})

    async def _run(self, app: ASGIApp, scope: MutableMapping[str, Any], body: bytes) -> None:
        was_asked = False

        async def receive() -> Message:
            nonlocal was_asked
            if not was_asked:
                was_asked = True
                return {"type": "http.request", "body": body, "more_body": False}
            await self._gone.wait()
            return {"type": "http.disconnect"}

        try:
            await app(scope, receive, self._send)
            if not self._is_complete:
                self._failure = RuntimeError("it returned before its response was complete")
        except Exception as error:  # noqa: BLE001 - any exception cuts the response off
            self._failure = error
        finally:
            self._begun.set()
            self._is_complete = True
            self._full.set()

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {
                name.decode("latin-1").lower(): value.decode("latin-1") for name, value in message.get("headers", ())
            }
        elif message["type"] == "http.response.body":
            self._begun.set()
            await self._free.wait()
            if self._gone.is_set():
                return
            self._is_complete = not message.get("more_body", False)
            self._piece = message.get("body", b"")
            if self._piece or self._is_complete:
                self._free.clear()
                self._full.set()


class _Lifespan:
    """The lifespan of an application, in a task of its own. An application may not support it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._answers: asyncio.Queue[Message] = asyncio.Queue()
        self._is_started = False

    async def start(self) -> None:
        if self._is_started:
            return
        async with self._lock:
            if self._is_started:
                return
            self._task = asyncio.create_task(self._run(), name="asgi lifespan")
            answer = await self._ask("lifespan.startup")
            if answer["type"] == "lifespan.startup.failed":
                problem = f"the application did not start: {answer.get('message', '')}"
                raise TransportFailed(problem, was_sent=False, is_lasting=True)
            self._is_started = True

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is None:
            return
        if not task.done():
            await self._ask("lifespan.shutdown")
        await task
        self._is_started = False

    async def _ask(self, what: str) -> Message:
        await self._inbox.put({"type": what})
        return await self._answers.get()

    async def _run(self) -> None:
        scope: dict[str, Any] = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        try:
            await self._app(scope, self._inbox.get, self._answers.put)
        except Exception:  # noqa: BLE001 - by the specification, any exception means that lifespan is not supported
            await self._answers.put({"type": "lifespan.unsupported"})
        else:
            await self._answers.put({"type": "lifespan.ended"})
