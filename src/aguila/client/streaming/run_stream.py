"""Follow one run to its end, over as many connections as it takes.

A broken stream is resumed so that every event is consumed exactly once:

- The cursor is the id of the last consumed event. If that event had an id of its own, the log after it
  (``GET /threads/{id}/events``) continues with the next event. Events that the server repeats are dropped.
- If no event was consumed, the client looks for the run by its id. If our server does not know it, and has sent ids
  before, the request is sent again with the same run id. If no request got through, the run never started:
  ``TransportFailed``.
- A stream that joins a run starts with the thread so far. Without a cursor it can be requested again.
- If the log does not have the cursor any more (410), because the run has ended and was compacted, the client joins the
  thread (``POST /connect``). Then the run starts again from its beginning, and its messages come as a snapshot.
- Anything else is ``StreamTruncated``: to guess where to resume would lose or repeat events.

A server may replay earlier runs before the requested one (IN-1). A stream that ends without the requested run is
incomplete, unless the server gave the run an id of its own. A run that starts after the requested one is not consumed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aguila.client.drivers.actions import Close, Compute, Head, Program, Read, Sleep
from aguila.client.middleware import Chain
from aguila.client.requests.http_requests import explain_failure, open_response, read_body, rejection
from aguila.client.requests.read_limits import ReadLimits
from aguila.client.requests.urls import merge_headers
from aguila.client.streaming.frame_consumer import FrameConsumer
from aguila.client.streaming.response_reader import ResponseReader, is_unspecific, reader_for
from aguila.client.transports.base import Request
from aguila.codec.negotiate import SSE_MEDIA_TYPE
from aguila.codec.notices import Notice
from aguila.codec.sse import Frame
from aguila.errors import AguilaError, HTTPRejected, LimitExceeded, ProtocolError, StreamTruncated, TransportFailed
from aguila.offload import LARGE
from aguila.stream import Consumer

if TYPE_CHECKING:
    from aguila.client.settings import Settings
    from aguila.telemetry.spans import RunSpan

_MAX_BODY = 1 << 20  # bytes of a response that is not a stream
_RETRIABLE = frozenset({408, 425, 429, 500, 502, 503, 504})
_NOT_STARTED = frozenset({429, 503})  # the request was not carried out, and Retry-After says when to send it again
_FROM_PROXIES = frozenset(
    {502, 504}
)  # a proxy did not reach the server, or lost it; the run id makes it safe to repeat
_LOG_HEADERS: dict[str, str | None] = {"Accept": SSE_MEDIA_TYPE, "Content-Type": None}


class RunStream:
    """The stream of one run."""

    def __init__(
        self,
        settings: Settings,
        consumer: Consumer,
        chain: Chain,
        *,
        thread_id: str,
        run_id: str | None,
        on_accepted: Callable[[], None],
        restart: Callable[[], Consumer] | None = None,
        rehydrate: Callable[[], Consumer] | None = None,
        span: RunSpan | None = None,
    ) -> None:
        """``restart`` returns a fresh consumer, for a stream that may be requested again from its beginning.

        ``rehydrate`` returns one for a run that was compacted, with the conversation before the run. Requests carry
        ``span`` to the server.
        """
        self.run_id = run_id
        self._settings = settings
        self._restart = restart
        self._rehydrate = rehydrate
        self._chain = chain
        self._span = span
        self._thread_id = thread_id
        self._on_accepted = on_accepted
        self._is_new_frame: Callable[[Frame], bool] | None = None  # set while the server may repeat events
        self._repeated = 0
        self._may_have_started = False
        self._unspecific: Head | None = None  # head of a response that may not be a stream, until its first event
        self._attempts = 0
        self._limits = ReadLimits(settings)
        self._known_runs = len(consumer.conversation.runs)
        self._use(consumer)

    def _use(self, consumer: Consumer) -> None:
        """Read everything from here on with this consumer."""
        self._received = FrameConsumer(self._settings, consumer, self._chain, self.run_id)

    def follow(self, request: Request) -> Program[None]:
        """Send the request and deliver the events. Raise every error that can end a run, except its own RUN_ERROR."""
        try:
            yield from self._follow(request)
        except LimitExceeded as error:
            yield Close()
            error.conversation = self._received.consumer.conversation
            raise

    def _follow(self, request: Request) -> Program[None]:
        dropped: AguilaError | None
        try:
            reader = yield from self._open_when_accepted(request)
        except TransportFailed as error:
            if not error.was_sent and (not self._settings.server_sends_ids or self._settings.reconnect is None):
                raise
            dropped = error
            self._may_have_started = error.was_sent
        else:
            dropped = yield from self._read(reader)
        while not self._received.is_complete:
            substitute = None if dropped is not None else self._substitute_run_id()
            consumed = self._received.consumed
            try:
                reader = yield from self._reconnect(request, dropped)
            except StreamTruncated as error:
                # A server that was not reached may still have the requested run, so no other run is accepted.
                if substitute is None or isinstance(error.__cause__, TransportFailed):
                    raise
                return self._accept_substitute(substitute)
            dropped = yield from self._read(reader)
            if substitute is not None and dropped is None and consumed == self._received.consumed:
                return self._accept_substitute(substitute)
        return None

    # Which run it is

    def _substitute_run_id(self) -> str | None:
        """Return the only run of a stream that ended without the requested run, if it can be that run.

        Servers that choose their own run ids break IN-3. A run that the thread already had is a replayed one.
        """
        consumer = self._received.consumer
        runs = consumer.conversation.runs
        earlier, new = runs[: self._known_runs], runs[self._known_runs :]
        if not consumer.is_ended or len(new) != 1 or any(run.run_id == new[0].run_id for run in earlier):
            return None
        return new[0].run_id

    def _accept_substitute(self, run_id: str) -> None:
        message = f"the server ran {run_id!r} instead of the requested run {self.run_id!r}: it is accepted as that run"
        self._settings.warn(Notice(rule="IN-3", message=message))
        self.run_id = run_id

    # Opening

    def _open_when_accepted(self, request: Request) -> Program[ResponseReader]:
        """Send the request, and again after a ``Retry-After`` that the policy obeys, or if a proxy lost the server."""
        policy, attempts = self._settings.reconnect, 0
        while True:
            try:
                return (yield from self._open(request))
            except HTTPRejected as error:
                if policy is None or attempts >= policy.attempts or error.status not in _NOT_STARTED | _FROM_PROXIES:
                    raise
                pause = policy.asked_pause(error)
                if error.retry_after is None and error.status in _FROM_PROXIES:
                    pause = policy.delay(attempts, self._settings.random())
                if pause is None:
                    raise
            yield from self._sleep(pause)
            attempts += 1

    def _sleep(self, seconds: float) -> Program[None]:
        """Wait before the next attempt. Raise ``LimitExceeded`` if the run has no time left for one."""
        yield Sleep(self._limits.shorten(seconds))
        self._limits.check_time()

    def _open(self, request: Request) -> Program[ResponseReader]:
        settings = self._settings
        if self._span is None:
            head = yield from open_response(settings, request, "first_event", self._limits)
        else:
            with self._span.sending(request.headers) as headers:
                request = replace(request, headers=headers)
                head = yield from open_response(settings, request, "first_event", self._limits)
        reader = None
        content_type = head.headers.get("content-type")
        is_success = 200 <= head.status < 300
        if is_success:
            expected = SSE_MEDIA_TYPE if is_unspecific(content_type) else content_type
            reader = reader_for(expected, warn=settings.warn, max_size=settings.max_size)
        if reader is None:
            body = yield from read_body(settings, request, self._limits)
            raise self._not_a_stream(head, body) if is_success else rejection(head, body, settings.now())
        self._may_have_started = True
        self._unspecific = head if is_unspecific(content_type) else None
        if self._unspecific is None:
            self._on_accepted()
        return reader

    def _not_a_stream(self, head: Head, body: bytes) -> HTTPRejected:
        found = head.headers.get("content-type", "a response without a content type")
        return rejection(head, body, self._settings.now(), f"expected a stream of events, got {found}")

    # Reading

    def _read(self, reader: ResponseReader) -> Program[AguilaError | None]:
        """Deliver the events of one connection. Return the error that broke it; None if it ended in order."""
        received, limits = self._received, self._limits
        limits.connect()
        unread = bytearray()  # the body of a response that may not be a stream
        while True:
            wait = limits.next_wait(has_events=received.consumed > 0, has_ended=received.has_run_ended)
            try:
                if wait <= 0:
                    raise TransportFailed("", is_timeout=True)
                data: bytes = yield Read(wait)
            except TransportFailed as error:
                yield Close()
                limits.check_time()
                is_late = error.is_timeout and limits.name == "linger"
                return None if is_late else explain_failure(error, limits.name, self._settings.timeouts)
            parse = partial(reader.feed, data) if data else partial(self._last_frames, reader)
            is_large = reader.is_slow and reader.buffered + len(data) > LARGE
            frames: list[Frame] = (yield Compute(parse)) if is_large else parse()
            received.count(len(data), len(frames))
            if self._unspecific is not None:
                if len(unread) < _MAX_BODY:
                    unread += data
                self._judge_unspecific(self._unspecific, frames, None if data else bytes(unread))
            if frames and self._is_new_frame is not None:
                frames = self._without_repeated(frames, self._is_new_frame)
            if frames:
                yield from received.deliver(frames)
                if received.failure is not None:
                    raise received.failure
                if self._restart is None or received.cursor.can_resume:  # the same beginning again is not progress
                    self._attempts = 0
                if received.is_done:
                    yield Close()
                    return None
            if reader.error is not None:
                raise reader.error
            if not data:
                yield Close()
                return None

    def _last_frames(self, reader: ResponseReader) -> list[Frame]:
        try:
            return reader.close()
        except StreamTruncated as error:
            if self._received.is_complete:
                raise ProtocolError(f"after the run had ended, {error}", rule="LIFE-16") from None
            return []

    def _judge_unspecific(self, head: Head, frames: list[Frame], body: bytes | None) -> None:
        """Accept a response without a specific content type at its first event (SSE-3). ``body`` is set at its end."""
        if frames:
            found = head.headers.get("content-type", "missing")
            message = f"the response is read as {SSE_MEDIA_TYPE}, although its content type is {found}"
            self._settings.warn(Notice(rule="SSE-3", message=message))
            self._unspecific = None
            self._on_accepted()
        elif body is not None:
            raise self._not_a_stream(head, body)

    def _without_repeated(self, frames: list[Frame], is_new: Callable[[Frame], bool]) -> list[Frame]:
        """Drop the frames that the server repeats, although it was asked for those after the cursor."""
        for index, frame in enumerate(frames):
            if is_new(frame):
                self._is_new_frame = None
                return frames[index:]
            if not self._repeated:
                after = self._received.cursor.id
                message = f"the server repeated events, although it was asked for those after {after!r}"
                self._settings.warn(Notice(rule="SSE-13", message=f"{message}: they are dropped"))
            self._repeated += 1
        return []

    # Reconnecting

    def _reconnect(self, request: Request, dropped: AguilaError | None) -> Program[ResponseReader]:
        """Open the rest of the stream. Raise ``StreamTruncated`` if that is impossible, or fails too often."""
        policy, settings, first = self._settings.reconnect, self._settings, dropped
        while True:
            if policy is None or not self._can_reconnect(dropped):
                raise self._truncated(dropped)
            if self._attempts >= policy.attempts:
                raise self._final_error(dropped, f"; gave up after {self._attempts} attempts")
            if isinstance(dropped, TransportFailed) and dropped.is_lasting:
                raise self._final_error(dropped)
            delay = policy.delay(self._attempts, settings.random())
            yield from self._sleep(max(policy.asked_pause(dropped) or 0.0, delay))
            self._attempts += 1
            self._received.is_resumed = True
            try:
                return (yield from self._open_rest(request))
            except TransportFailed as error:
                dropped = error
            except HTTPRejected as error:
                if error.status not in _RETRIABLE:
                    # The refusal of a server that may not have this route explains nothing.
                    raise self._final_error(error if settings.server_sends_ids else first)  # noqa: B904 - it has its cause, or is this very error
                dropped = error

    def _open_rest(self, request: Request) -> Program[ResponseReader]:
        """Open the missing part: the log after the cursor, the stream from its beginning, or the run."""
        if self._received.consumed and self._received.cursor.can_resume:
            self._is_new_frame, self._repeated = self._received.cursor.new_frame_test(), 0
            try:
                return (yield from self._open(self._log_request(request)))
            except HTTPRejected as error:
                if error.status != 410 or self._rehydrate is None:
                    raise
                return (yield from self._join_again(request, error, self._rehydrate))
        if self._restart is not None:
            self._use(self._restart())
            return (yield from self._open(request))
        return (yield from self._find_or_send_again(request, self.run_id))

    def _join_again(
        self, request: Request, gone: HTTPRejected, rehydrate: Callable[[], Consumer]
    ) -> Program[ResponseReader]:
        """Join the thread, because its log does not have the cursor any more. Raise ``gone`` if that is refused."""
        try:
            reader = yield from self._open(replace(request, url=self._settings.route("connect")))
        except HTTPRejected:
            raise gone from None
        self._is_new_frame = None
        self._use(rehydrate())
        return reader

    def _can_reconnect(self, dropped: AguilaError | None) -> bool:
        """Return whether a request exists that cannot lose or repeat an event, or start a run twice."""
        if self._received.consumed and not self._received.cursor.can_resume and self._restart is None:
            return False
        if self._settings.server_sends_ids:
            return True
        # An unknown server is asked only if the connection broke: not after a timeout, and not after a regular end.
        return dropped is not None and not (isinstance(dropped, TransportFailed) and dropped.is_timeout)

    def _find_or_send_again(self, request: Request, run_id: str | None) -> Program[ResponseReader]:
        """Look for a run without any consumed event on the server; if it is not there, send the request again."""
        if run_id is not None:
            try:
                return (yield from self._open(self._run_request(request, run_id)))
            except HTTPRejected as error:
                # A 404 of an unknown server can mean anything, even if it looks like ours.
                if error.status != 404 or error.code != "not_found" or not self._settings.server_sends_ids:
                    raise
        self._received.is_resumed = False
        try:
            return (yield from self._open(request))
        except TransportFailed as error:
            self._may_have_started = self._may_have_started or error.was_sent
            raise
        except HTTPRejected as error:
            may_have_started = error.status >= 500 and error.status not in _NOT_STARTED
            self._may_have_started = self._may_have_started or may_have_started
            raise

    def _log_request(self, request: Request) -> Request:
        headers = merge_headers(request.headers, {**_LOG_HEADERS, "Last-Event-ID": self._received.cursor.id})
        url = self._settings.stream_route("threads", self._thread_id, "events")
        return Request(method="GET", url=url, headers=headers)

    def _run_request(self, request: Request, run_id: str) -> Request:
        url = self._settings.stream_route("threads", self._thread_id, "runs", run_id, "events")
        return Request(method="GET", url=url, headers=merge_headers(request.headers, _LOG_HEADERS))

    # Errors

    def _final_error(self, dropped: AguilaError | None, more: str = "") -> AguilaError:
        """Return the error of a run that cannot be resumed: it was cut off, or it never started."""
        if self._may_have_started or dropped is None:
            return self._truncated(dropped, more)
        if isinstance(dropped, HTTPRejected) or not more:
            return dropped
        error = TransportFailed(f"{dropped}{more}", was_sent=False)
        error.__cause__ = dropped
        return error

    def _truncated(self, dropped: AguilaError | None, more: str = "") -> StreamTruncated:
        why = "it ended without a terminal event" if dropped is None else str(dropped)
        has_begun = self._received.consumed or dropped is None
        what = "the run was cut off" if has_begun else "no event of the run arrived, and it may have started"
        error = StreamTruncated(f"{what}: {why}{more}")
        error.conversation = self._received.consumer.conversation
        error.__cause__ = dropped
        return error
