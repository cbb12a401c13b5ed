"""``aguila replay``: serve a recording as an agent, to build and test front ends without one.

Each request on a thread gets the next recorded run; after the last one, HTTP 404. Events are sent as recorded, valid or
not, with the thread and run ids of the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

import msgspec
import typer

from aguila.cli.serve import listen, run_until_signal
from aguila.client.recordings import RecordedEvent, RecordedRun, split_runs
from aguila.codec import EventDecoder
from aguila.codec.formats import Format
from aguila.codec.json.bounded_floats import decode_json
from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE, negotiate
from aguila.codec.protobuf import ProtobufEncoder
from aguila.codec.sse import SSEEncoder
from aguila.testing.plurals import counted

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


class _Ids(msgspec.Struct):
    thread_id: str = msgspec.field(name="threadId")
    run_id: str = msgspec.field(name="runId")


def runs_of(streams: Sequence[RecordedRun], format: Format) -> list[RecordedRun]:  # noqa: A002
    """Return the responses in a file: its streams. Without inputs, each run is a response."""
    return list(streams) if format in ("sse", "protobuf") else split_runs(streams)


class Replay:
    """An ASGI application that answers runs from a recording.

    ``speed`` is a factor of the recorded speed; 0 sends everything at once. ``verbatim`` keeps the recorded ids.
    """

    def __init__(self, runs: Sequence[RecordedRun], *, speed: float = 1.0, verbatim: bool = False) -> None:
        self._runs = runs
        self._speed = speed
        self._verbatim = verbatim
        self._served: dict[str, int] = {}

    async def __call__(self, scope: MutableMapping[str, Any], receive: _Receive, send: _Send) -> None:
        """Answer a request: POST / with the next run, GET /healthz."""
        if scope["type"] != "http":
            raise RuntimeError(f"a recording is served over HTTP, not {scope['type']}")
        if scope["method"] == "GET" and scope["path"].rstrip("/").endswith("/healthz"):
            await _answer(send, 200, {"status": "ok"})
            return
        if scope["method"] != "POST" or scope["path"].strip("/"):
            await _refuse(send, 404, "not_found", "a recording has one route: POST /")
            return
        try:
            ids = decode_json(await _body(receive), _Ids)
        except (msgspec.DecodeError, UnicodeError) as error:
            await _refuse(send, 422, "invalid_input", str(error))
            return
        number = self._served.get(ids.thread_id, 0)
        if number >= len(self._runs):
            message = f"this thread has played the whole recording ({counted(len(self._runs), 'run')})"
            await _refuse(send, 404, "recording_ended", message)
            return
        self._served[ids.thread_id] = number + 1
        accept = dict(scope["headers"]).get(b"accept")
        await self._play(self._runs[number], ids, negotiate(None if accept is None else accept.decode()), send)

    async def _play(self, run: RecordedRun, ids: _Ids, media_type: str, send: _Send) -> None:
        headers = [(b"content-type", media_type.encode()), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        frame = _framing(media_type)
        loop = asyncio.get_running_loop()
        began = loop.time()
        for event in run.events:
            if event.ms is not None and self._speed > 0:
                await asyncio.sleep(began + event.ms / 1000 / self._speed - loop.time())
            data = event.data if self._verbatim else _with_ids(event, ids)
            await send({"type": "http.response.body", "body": frame(data), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


_BOUNDARIES = (b'"RUN_STARTED"', b'"RUN_FINISHED"')


def _with_ids(event: RecordedEvent, ids: _Ids) -> bytes:
    """Return the event with the thread and run ids of the request."""
    if not any(name in event.data for name in _BOUNDARIES):
        return event.data
    try:
        raw = decode_json(event.data, dict[str, Any])
    except (msgspec.DecodeError, UnicodeError):
        return event.data
    if raw.get("type") not in ("RUN_STARTED", "RUN_FINISHED"):
        return event.data
    members = {"threadId": ids.thread_id, "runId": ids.run_id}
    raw |= {name: value for name, value in members.items() if name in raw}
    if isinstance(raw.get("input"), dict):
        raw["input"] |= members
    return msgspec.json.encode(raw)


def _framing(media_type: str) -> Callable[[bytes], bytes]:
    if media_type != PROTOBUF_MEDIA_TYPE:
        return SSEEncoder().encode_json
    decoder, encoder = EventDecoder(), ProtobufEncoder()
    return lambda data: b"".join([encoder.encode(event) for event in decoder.feed(data)])


async def _body(receive: _Receive) -> bytes:
    pieces: list[bytes] = []
    while True:
        message = await receive()
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


async def _refuse(send: _Send, status: int, code: str, message: str) -> None:
    await _answer(send, status, {"error": {"code": code, "message": message}})


async def _answer(send: _Send, status: int, value: Any) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": msgspec.json.encode(value)})


def serve(app: Replay, *, host: str, port: int, what: str) -> None:
    """Serve until a signal. Raise ``CannotServe``."""
    listener = listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    typer.echo(f"{what} at http://{shown}:{listener.getsockname()[1]}\n\nCtrl-C stops it.")
    run_until_signal(app, listener, lifespan="off")
