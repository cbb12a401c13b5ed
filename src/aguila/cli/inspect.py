"""``aguila inspect``: the page in front of any AG-UI endpoint, or on a recording."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
import typer
from starlette.types import Receive, Send

from aguila.cli.check import findings_of
from aguila.cli.http_caller import CannotRun, read_stream
from aguila.cli.replay import Replay, runs_of
from aguila.cli.serve import LOCAL_HOSTS, Serving, announce_page, listen, run_until_signal, serve
from aguila.codec.formats import Format, detect_format
from aguila.frameworks import upstream
from aguila.server import App, Sends
from aguila.server.frontends.page.files import NOT_BUILT
from aguila.store import MemoryStore
from aguila.testing.plurals import counted
from aguila.testing.recordings import RecordedStream, read_streams

_HOST: Final = "127.0.0.1"


def inspect_url(url: str, *, store: str, headers: Mapping[str, str], port: int, opens_page: bool) -> None:
    """Serve a gateway to an endpoint with the page, until a signal. Raise ``CannotServe``."""
    serving = Serving(
        target=url,
        folder=str(Path.cwd()),
        store=store,
        host=_HOST,
        options={"page": True, "debug": True, "sends": Sends(merge_deltas=False)},  # each event as it was sent
        upstream_headers=dict(headers),
        inspects=True,
    )
    serve(serving, port=port, workers=1, reload=False, json_logs=False, open_page=opens_page)


def inspect_file(path: Path, *, format_: Format | None, port: int, opens_page: bool) -> None:
    """Serve a recording with the page, until a signal. Raise ``CannotRun`` or ``CannotServe``."""
    data = read_stream(path)
    found = format_ or detect_format(data, path)
    streams = read_streams(data, found)
    events = sum(len(stream.events) for stream in streams)
    if events == 0:
        raise CannotRun(f"{path} has no events; a recording is SSE, JSON lines, a JSON array or protobuf frames")
    app = RecordingApp(streams, found)
    listener = listen(_HOST, port)
    address = f"http://{_HOST}:{listener.getsockname()[1]}/?{urlencode({'recording': path.name})}#/inspect"
    typer.echo(f"{path}: {counted(events, 'event')}, at {address}")
    if app.page is not None:
        if not app.page.is_built:
            typer.echo(f"{NOT_BUILT[0].upper()}{NOT_BUILT[1:]}.")
        threading.Thread(target=announce_page, args=(app.page, address, opens_page), daemon=True).start()
    typer.echo("\nCtrl-C stops it.")
    run_until_signal(app, listener, lifespan="on")


class RecordingApp:
    """The page, the recording at ``/_recording``, and its findings at ``/_recording/check``.

    The chat of the page plays the recording.
    """

    def __init__(self, streams: Sequence[RecordedStream], format_: Format) -> None:
        self._streams = streams
        replay = upstream(Replay(runs_of(streams, format_), speed=0), client={"compat": "wide"})
        self._app = App(
            replay,
            store=MemoryStore(),  # an app without a store warns that threads are lost on exit; a recording is not
            page=True,
            sends=Sends(merge_deltas=False),
            allow_anonymous=True,
            allowed_hosts=LOCAL_HOSTS,
        )
        self.page = self._app.page

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or scope["path"] not in ("/_recording", "/_recording/check"):
            await self._app(scope, receive, send)
            return
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        if scope["method"] != "GET" or host.rsplit(":", 1)[0] not in LOCAL_HOSTS:
            await _answer(
                send, 403, b"application/json", b'{"error": {"code": "forbidden", "message": "GET from here"}}'
            )
        elif scope["path"] == "/_recording":
            await _answer(send, 200, b"application/jsonl", _as_lines(self._streams))
        else:
            await _answer(send, 200, b"application/json", msgspec.json.encode({"findings": self._findings()}))

    def _findings(self) -> list[dict[str, Any]]:
        """Return the findings. An index counts the events of its stream."""
        return [
            {"source": "run", "number": None, **msgspec.to_builtins(finding), "stream": number}
            | {"text": finding.text, "help": finding.help}
            for number, stream in enumerate(self._streams)
            for finding in findings_of(stream)
        ]


def _as_lines(streams: Sequence[RecordedStream]) -> bytes:
    """Return streams as the lines of a recording. Each begins with its input, or with null if that is unknown."""
    lines: list[bytes] = []
    for stream in streams:
        lines.append(b'{"input":%b}' % msgspec.json.encode(stream.input))
        for event in stream.events:
            data = event.data.replace(b"\n", b" ").replace(b"\r", b" ")  # between tokens: JSON texts have none
            lines.append(b'{"ms":%b,"event":%b}' % (msgspec.json.encode(event.ms), data))
    return b"\n".join(lines) + b"\n"


async def _answer(send: Send, status: int, media_type: bytes, body: bytes) -> None:
    headers = [(b"content-type", media_type), (b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
