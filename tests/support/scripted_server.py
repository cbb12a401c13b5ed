"""An HTTP/1.1 server on a real socket with scripted answers, also those that correct servers never send.

``ScriptedServer`` runs in a thread of its own, so that both twins of the client can talk to it. Each request takes the
next answer of its script and is kept in ``requests``. Answers are bytes on the wire and are not checked.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from builders import run_finished_json, run_started_json
from waiting import DEADLINE, let_tasks_run

SSE = "text/event-stream"


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    closed: threading.Event = field(default_factory=threading.Event)
    """Set when the client has gone away, or the answer is complete."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    """``pieces`` are written one by one; an Event among them is waited for first. ``cut`` ends the body abruptly."""

    pieces: Iterable[bytes | threading.Event] = ()
    status: int = 200
    content_type: str | None = SSE
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    before_head: bool = False
    """With ``cut``: hang up without any answer."""


def frame(event: dict[str, Any], id: int | str | None = None) -> bytes:
    head = b"" if id is None else f"id: {id}\n".encode()
    return head + b"data: " + json.dumps(event).encode() + b"\n\n"


def frames(events: Iterable[dict[str, Any]], first_id: int | None = None) -> bytes:
    return b"".join(frame(e, None if first_id is None else first_id + i) for i, e in enumerate(events))


Script = list[Answer | Callable[[Asked], Answer]]


def run_of(*events: dict[str, Any], first_id: int | None = None, **finish: Any) -> Callable[[Asked], Answer]:
    """Answer with a run of these events, under the requested ids."""

    def answer(asked: Asked) -> Answer:
        run, thread = asked.json["runId"], asked.json["threadId"]
        return Answer(
            [frames([run_started_json(run, thread), *events, run_finished_json(run, thread, **finish)], first_id)]
        )

    return answer


class ScriptedServer:
    def __init__(self, *script: Answer | Callable[[Asked], Answer]) -> None:
        self.script: Script = list(script)
        self.requests: list[Asked] = []
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._main, name="scripted")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        assert self._ready.wait(DEADLINE)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(DEADLINE)

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                while await self._one(reader, writer):
                    pass
            except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                writer.transport.abort()  # the peer is gone
            finally:
                writer.close()
                with suppress(ConnectionError, asyncio.CancelledError):
                    await writer.wait_closed()
                tasks.discard(task)

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        await let_tasks_run()  # a connection that was accepted just now has no task yet, and would stay open
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        asked = Asked(method, path, headers, body)
        self.requests.append(asked)
        if not self.script:
            answer = Answer([b'{"error":{"code":"not_found"}}'], status=404, content_type="application/json")
        else:
            found = self.script.pop(0)
            answer = found(asked) if callable(found) else found
        try:
            return await self._write(answer, asked, reader, writer)
        finally:
            asked.closed.set()

    async def _write(
        self, answer: Answer, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        if answer.cut and answer.before_head:
            writer.transport.abort()
            return False
        lines = [f"HTTP/1.1 {answer.status} X", "Transfer-Encoding: chunked"]
        if answer.content_type is not None:
            lines.append(f"Content-Type: {answer.content_type}")
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        gone = asyncio.ensure_future(reader.read(1))
        try:
            for piece in answer.pieces:
                if isinstance(piece, threading.Event):
                    await writer.drain()
                    waiting = asyncio.ensure_future(asyncio.to_thread(piece.wait, DEADLINE))
                    try:
                        await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
                    except asyncio.CancelledError:
                        piece.set()
                        await waiting
                        raise
                    if gone.done():
                        asked.closed.set()
                        piece.set()
                        await waiting
                        return False
                elif piece:
                    writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    await writer.drain()
            if answer.cut:
                await asyncio.sleep(0)
                writer.close()
                return False
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        finally:
            if not gone.done():
                gone.cancel()
                await asyncio.gather(gone, return_exceptions=True)
        return True
