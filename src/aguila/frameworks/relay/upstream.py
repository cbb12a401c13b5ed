"""Use another AG-UI endpoint as an agent: an ASGI application in this process, or a URL.

Each run posts its input to the endpoint, with the ids of the thread and the run, and sends the events that come back.
This server owns the run: it is stored here, viewers attach here, and it ends here. Nothing is replayed. The answers to
the endpoint's interrupts go back to it as ``resume``, as the client sent them.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, Self
from urllib.parse import quote
from weakref import WeakKeyDictionary

from aguila.agent.chat_values import FILE_PROVIDER
from aguila.agent.run import Run
from aguila.chat import DataContent
from aguila.chat.own_metadata import read_own_metadata
from aguila.client import AsyncClient
from aguila.client.files import part_for
from aguila.client.settings import Auth
from aguila.client.transports.asgi import ASGIApp, ASGITransport
from aguila.codec.compat.context import SPELLING
from aguila.codec.logs import log_event
from aguila.errors import AguilaError, HTTPRejected, ProtocolError, RunFailed, StreamTruncated
from aguila.frameworks.external.agent_input import input_of
from aguila.frameworks.relay.events import Errors, Raw, Relay, RelayOptions
from aguila.frameworks.relay.upstream_check import UpstreamChecks
from aguila.offload import LARGE, offload
from aguila.protocol import (
    DataSource,
    Event,
    FileSource,
    Message,
    RunAgentInput,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    UserMessage,
    replace,
)

_log = logging.getLogger("aguila")

_CANCEL_SECONDS = 2.0
"""Seconds that the endpoint has to accept that its run is cancelled."""

_ARRAY: Any = list

_CLIENT_OPTIONS: Final = frozenset(
    {"compat", "max_size", "middleware", "options", "peer_version", "protobuf", "reconnect", "timeouts", "warn"}
)
"""Arguments of ``AsyncClient`` that a gateway can use. A transport belongs to one event loop."""


class Upstream:
    """An agent that calls another AG-UI endpoint. Make it with ``upstream``.

    Connections stay open between runs. ``App`` closes them when it stops. An agent that calls this one closes it with
    ``aclose``, or uses ``async with``.
    """

    def __init__(
        self,
        target: str | ASGIApp,
        *,
        path: str,
        headers: Iterable[str],
        auth: Auth | None,
        client: Mapping[str, Any] | None,
        thread_id: Callable[[Run], str] | None,
        options: RelayOptions,
        check: bool,
    ) -> None:
        if isinstance(headers, str):
            raise TypeError(f"headers: expected a list of names, got text; write [{headers!r}]")
        if not isinstance(target, str) and not callable(target):
            raise TypeError(f"upstream() takes a URL or an ASGI application, not {type(target).__name__}")
        if path != "/" and isinstance(target, str):
            raise TypeError("path: it is for an ASGI application; make it a part of the URL")
        unknown = {*(client or {})} - _CLIENT_OPTIONS
        if unknown:
            raise TypeError(f"client: AsyncClient has no option {min(unknown)!r} that can be given here")
        self._target = target
        self._path = path
        self._header_names = [name.lower() for name in headers]
        self._client_options: dict[str, Any] = {**(client or {}), "auth": auth}
        self._thread_id = thread_id
        self._options = options
        self._checks = UpstreamChecks() if check else None
        if self._checks is not None:  # the last middleware sees events first
            self._client_options["middleware"] = [*self._client_options.get("middleware", ()), self._checks]
        # A connection belongs to its event loop, and an agent is often made before there is one.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = WeakKeyDictionary()

    async def __call__(self, run: Run) -> AsyncGenerator[Event, None]:
        """Call the endpoint and send its events."""
        sent = await self._input(run)
        client = self._client()
        relay = Relay(run, sent, self._options, may_replay=True)
        headers = {name: run.headers[name] for name in self._header_names if name in run.headers}
        has_ended = False
        check = None if self._checks is None else self._checks.start(sent)
        try:
            async with aclosing(aiter(client.send(sent, headers=headers))) as events:
                async for event in events:
                    for each in await relay.convert(event):
                        yield each
                    if relay.is_busy():  # reader and writer apply the same patches, and are busy too
                        await asyncio.sleep(0)
            for each in relay.close():
                yield each
            has_ended = True
            if check is not None:
                await check.record(run, None, is_cut=False)
        except RunFailed:
            has_ended = True
            if check is not None:
                await check.record(run, None, is_cut=False)
            if self._options.masks_errors:
                raise
        except (ProtocolError, StreamTruncated) as error:
            if check is not None:  # a stream that breaks the order is not read further
                await check.record(run, error, is_cut=isinstance(error, ProtocolError))
            raise
        except HTTPRejected as error:
            has_ended = True
            if not _gives_up(sent) or error.status >= 500:
                raise
            # The endpoint has no such question any more. Giving up ends the run, or the thread would be stuck.
            log_event(_log, logging.WARNING, f"the upstream refused answers that give up its questions: {error}")
            outcome = RunFinishedCancelledOutcome()
            yield RunFinishedEvent(thread_id=run.thread_id, run_id=run.run_id, outcome=outcome)
        finally:
            if self._checks is not None:
                self._checks.stop(sent)
            if not has_ended:
                await self._cancel(client, sent)

    async def aclose(self) -> None:
        """Close the connections of this event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _client(self) -> AsyncClient:
        target = self._target
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            if isinstance(target, str):
                client = AsyncClient(target, **self._client_options)
            else:
                url = f"http://localhost/{quote(self._path.lstrip('/'))}"
                client = AsyncClient(url, transport=ASGITransport(target), **self._client_options)
            self._clients[loop] = client
        return client

    async def _input(self, run: Run) -> RunAgentInput:
        """Return the input to send: that of the run, with the changes of a calling agent."""
        thread_id = run.thread_id if self._thread_id is None else self._thread_id(run)
        return input_of(run, thread_id, [await _with_data(message, run) for message in run.messages])

    async def _cancel(self, client: AsyncClient, sent: RunAgentInput) -> None:
        """Cancel the run of an endpoint that continues it without a connection, as Aguila does."""
        if not client.settings.server_sends_ids:
            return
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):
                await client.thread(sent.thread_id).cancel(sent.run_id)
        except (AguilaError, TimeoutError) as error:
            log_event(_log, logging.INFO, f"the run of the upstream was not cancelled: {error}")


def upstream(
    target: str | ASGIApp,
    *,
    path: str = "/",
    headers: Iterable[str] = (),
    auth: Auth | None = None,
    client: Mapping[str, Any] | None = None,
    thread_id: Callable[[Run], str] | None = None,
    raw: Raw = "drop",
    state_keys: Collection[str] | None = None,
    errors: Errors = "mask",
    check: bool = False,
) -> Upstream:
    """Make an agent of another AG-UI endpoint, so that its runs become durable: ``App(upstream(url))``.

    ``target`` is a URL, or an ASGI application in this process. ``path`` is where the application has its endpoint.
    ``headers`` are the names of request headers to pass on; the ``App`` must let agents see them with
    ``headers_allowed``. ``auth`` is a bearer token, headers, or a function that returns either. ``client`` are other
    arguments of ``AsyncClient``, such as ``timeouts``. ``thread_id`` maps threads, for an endpoint that keeps threads
    and cannot tell tenants apart. ``raw="keep"`` sends RAW events and ``rawEvent``. ``state_keys`` are the top-level
    keys of the state that clients get; the default is all but those that begin with ``_ag_ui``. ``errors="pass"`` sends
    the endpoint's error texts. ``check`` records the violations of the endpoint, for
    ``GET /threads/{id}/runs/{run}/check``.

    Raise TypeError or ValueError for an invalid argument.
    """
    options = RelayOptions(raw=raw, state_keys=state_keys, errors=errors)
    return Upstream(
        target, path=path, headers=headers, auth=auth, client=client, thread_id=thread_id, options=options, check=check
    )


def _gives_up(sent: RunAgentInput) -> bool:
    return bool(sent.resume) and all(entry.status == "cancelled" for entry in sent.resume or ())


async def _with_data(message: Message, run: Run) -> Message:
    """Return the message with the bytes of files that were uploaded here: the endpoint cannot load them."""
    parts: Any = getattr(message, "content", None)
    if not isinstance(parts, _ARRAY) or not any(map(_is_own_file, parts)):
        return message
    content: Sequence[Any] = [await _part_with_data(part, run) if _is_own_file(part) else part for part in parts]
    return replace(message, content=content)  # type: ignore[type-var]


async def _part_with_data(part: Any, run: Run) -> Any:
    data, mime_type = None, part.source.mime_type
    if mime_type is not None:
        data = await run.file(part)
    else:  # a chat content has the type of the upload
        (message,) = await run.chat_messages([UserMessage(content=[part])])
        if isinstance(content := message.contents[0], DataContent):
            data, mime_type = content.data, content.media_type
    if data is None:  # the failure has been reported
        return part
    value = (await offload(base64.b64encode, data) if len(data) > LARGE else base64.b64encode(data)).decode()
    source = DataSource(value=value, mime_type=mime_type)
    if part.source.mime_type is None and read_own_metadata(part.metadata).get(SPELLING) == "binary":
        # Without a type, a binary part was read as a document: the file's type decides the kind.
        kind: Any = type(part_for(source, mime_type))
        return kind(source=source, id=part.id, metadata=part.metadata)
    return replace(part, source=source)


def _is_own_file(part: Any) -> bool:
    source = getattr(part, "source", None)
    return isinstance(source, FileSource) and source.provider in (None, FILE_PROVIDER)
