"""Layer: client. One run as it comes over the wire: opened, read, and taken up again where it was dropped.

Below: ``incoming`` (framing), ``aguila.stream.consume`` (meaning), ``effects`` (what is asked of the twins). Above:
``thread``. Nothing here waits or connects by itself.

How a dropped stream is taken up again, exactly once:

- The cursor is the id of the last event consumed. It is good if that event had an id of its own: then the log after it
  (``GET /threads/{id}/events``) goes on with the next event, and the same consumer reads on. What a server sends again
  all the same, up to the cursor, is not consumed again.
- If nothing was consumed, the run itself is asked for, by its id. A server of ours says whether it has it; if it never
  got it, and this server gave ids before, it is asked for it again, under the same run id. If no request got through,
  there is no run, and the failure is what it is: ``TransportFailed``.
- To join a run is to be told the thread as it is. So it can be begun anew where there is no cursor yet.
- Anything else is ``StreamTruncated``: to read on from a guess would lose events or double them.

Which run it is: the one that was asked for, after any that are replayed (IN-1). A stream that ends after others only
has not brought it, unless the server gave it an id of its own. A run that begins after it is not ours, and is not
taken in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from aguila.client.drivers.effects import Close, Compute, Head, Program, Read, Sleep
from aguila.client.middleware import Chain
from aguila.client.requests.http_requests import Limit, explain_failure, open_response, read_body, rejection
from aguila.client.requests.urls import merge_headers
from aguila.client.streaming.cursor import Cursor
from aguila.client.streaming.response_reader import Reader, is_vague, reader_for
from aguila.client.transports.base import Request
from aguila.codec import EventDecoder
from aguila.codec.dialects import predates_subagents, strip_subagents
from aguila.codec.negotiate import SSE_MEDIA_TYPE
from aguila.codec.notices import Notice
from aguila.codec.sse import Frame
from aguila.errors import AguilaError, HTTPRejected, ProtocolError, StreamTruncated, TransportFailed
from aguila.offload import LARGE
from aguila.protocol import Event, RunErrorEvent, RunFinishedEvent, RunStartedEvent
from aguila.stream import Consumer
from aguila.stream.consumer import Raw

if TYPE_CHECKING:
    from aguila.client.settings import Settings

T = TypeVar("T")

_MAX_BODY = 1 << 20  # of an answer that is no stream
_IDLE: Limit = "idle"
_FIRST_EVENT: Limit = "first_event"
_WORTH_RETRYING = frozenset({408, 425, 429, 500, 502, 503, 504})
_NOT_NOW = frozenset({429, 503})  # the request was not carried out, and Retry-After says when it may be


class RunStream:
    """One run, followed to its end over as many connections as it takes."""

    def __init__(
        self,
        settings: Settings,
        consumer: Consumer,
        chain: Chain,
        *,
        thread_id: str,
        run_id: str | None,
        accepted: Callable[[], None],
        begin_anew: Callable[[], Consumer] | None = None,
    ) -> None:
        """``begin_anew`` is for a stream that may be asked for again at any time: a consumer that has seen nothing."""
        self.run_id = run_id
        self._settings = settings
        self._begin_anew = begin_anew
        self._chain = chain
        self._thread_id = thread_id
        self._accepted = accepted
        self._is_new: Callable[[Frame], bool] | None = None  # while events may come again
        self._repeated = 0
        self._may_have_begun = False
        self._vague: Head | None = None  # of an answer that does not say what it is, until it has an event
        self._attempts = 0
        self._is_resumed = False
        self._is_lingering = False  # the run has ended, its stream has not
        self._is_done = False  # nothing that may still come is wanted
        self._broken: Exception | None = None
        self._runs_before = len(consumer.conversation.runs)
        self._begin(consumer)

    def _begin(self, consumer: Consumer) -> None:
        """From here on everything is read by this consumer."""
        settings = self._settings
        old_peer = predates_subagents(settings.peer_version)
        self._consumer = consumer
        self._cursor = Cursor()
        self._fed = 0
        self._last_run_id: str | None = None
        consumer.on_run_started = self._check_begin
        self._boundary = (
            EventDecoder(compat=settings.compat, warn=settings.warn, max_size=settings.max_size) if old_peer else None
        )

    def follow(self, request: Request) -> Program[None]:
        """Send the request and deliver its events. Raises all that can end a run but a RUN_ERROR of its own."""
        dropped: AguilaError | None
        try:
            reader = yield from self._open_when_possible(request)
        except TransportFailed as error:
            if not error.was_sent and (not self._settings.server.sends_ids or self._settings.reconnect is None):
                raise
            dropped = error
            self._may_have_begun = error.was_sent
        else:
            dropped = yield from self._read(reader)
        while not self._is_ended:
            stranger = None if dropped is not None else self._stranger()
            fed = self._fed
            try:
                reader = yield from self._come_back(request, dropped)
            except StreamTruncated as error:
                # Nobody to ask, or nobody who knows of more. A server that could not be asked may well.
                if stranger is None or isinstance(error.__cause__, TransportFailed):
                    raise
                return self._adopt(stranger)
            dropped = yield from self._read(reader)
            if stranger is not None and dropped is None and fed == self._fed:
                return self._adopt(stranger)
        return None

    @property
    def _is_ended(self) -> bool:
        """Whether the run that was asked for has ended; a replayed one before it says nothing about it (TRN-7)."""
        return self._consumer.is_ended and self._is_ours()

    def _stranger(self) -> str | None:
        """The one run of a stream that ended in order without the run that was asked for, if it can be that run.

        Servers that make their own run ids break IN-3 and mean well. One that was seen before is a replayed one.
        """
        runs = self._consumer.conversation.runs
        earlier, new = runs[: self._runs_before], runs[self._runs_before :]
        if not self._consumer.is_ended or len(new) != 1 or any(run.run_id == new[0].run_id for run in earlier):
            return None
        return new[0].run_id

    def _adopt(self, run_id: str) -> None:
        message = f"the run {self.run_id!r} was asked for, and the stream has the run {run_id!r} in its place"
        self._settings.warn(Notice(rule="IN-3", message=f"{message}: it is taken for it"))
        self.run_id = run_id

    def _check_begin(self, event: RunStartedEvent) -> None:
        """A run is about to be taken in. Raises ``_AnotherRun`` after the one that was asked for (IN-1)."""
        if self._consumer.is_ended and self._last_run_id == self.run_id and event.run_id != self.run_id:
            message = f"the run {event.run_id!r} began after the one that was asked for, which has to be the last"
            self._settings.warn(Notice(rule="IN-1", message=f"{message}: it is passed over", event_type="RUN_STARTED"))
            raise _AnotherRun

    def _open_when_possible(self, request: Request) -> Program[Reader]:
        """Send the request, again if the server asks for that and soon enough."""
        policy, attempts = self._settings.reconnect, 0
        while True:
            try:
                return (yield from self._open(request))
            except HTTPRejected as error:
                if policy is None or attempts >= policy.attempts or error.status not in _NOT_NOW:
                    raise
                pause = policy.asked_pause(error)
                if pause is None:
                    raise
            yield Sleep(pause)
            attempts += 1

    def _open(self, request: Request) -> Program[Reader]:
        settings = self._settings
        head = yield from open_response(settings, request, "first_event")
        reader = None
        found = head.headers.get("content-type")
        if 200 <= head.status < 300:
            expected = SSE_MEDIA_TYPE if is_vague(found) else found
            reader = reader_for(expected, warn=settings.warn, max_size=settings.max_size)
        if reader is None:
            body = yield from read_body(settings, request)
            if 200 <= head.status < 300:
                raise self._no_stream(head, body)
            raise rejection(head, body, settings.now())
        self._may_have_begun = True
        self._vague = head if is_vague(found) else None
        if self._vague is None:
            self._accepted()
        return reader

    def _no_stream(self, head: Head, body: bytes) -> HTTPRejected:
        found = head.headers.get("content-type", "an answer without a content type")
        return rejection(head, body, self._settings.now(), f"expected a stream of events, got {found}")

    def _read(self, reader: Reader) -> Program[AguilaError | None]:
        """Deliver what one connection brings. Gives what broke it, None if it ended in order."""
        timeouts = self._settings.timeouts
        is_plain = not self._chain and self._boundary is None
        clock = self._settings.clock
        deadline = None if timeouts.first_event is None or self._fed else clock() + timeouts.first_event
        wait, limit = timeouts.idle, _IDLE
        unread = bytearray()  # of an answer that may be no stream at all
        end: float | None = None  # of waiting for a late RUN_ERROR (LIFE-15), whatever else comes
        while True:
            if end is not None:
                wait = end - clock() if timeouts.idle is None else min(end - clock(), timeouts.idle)
                if wait <= 0:
                    yield Close()
                    return None
            elif deadline is not None:
                left = deadline - clock()
                if left <= 0:
                    yield Close()
                    return explain_failure(TransportFailed("", is_timeout=True), "first_event", timeouts)
                is_idle = timeouts.idle is not None and timeouts.idle < left
                wait, limit = (timeouts.idle, _IDLE) if is_idle else (left, _FIRST_EVENT)
            try:
                data: bytes = yield Read(wait)
            except TransportFailed as error:
                yield Close()
                return explain_failure(error, limit, timeouts)
            # What is held is copied a few times when it ends, and then decoded: not where it takes everybody's time.
            is_large = reader.held + len(data) > LARGE
            if is_large and data:
                frames = yield from _computed(partial(reader.feed, data))
            else:
                frames = reader.feed(data) if data else self._rest(reader)
            if self._vague is not None:
                if len(unread) < _MAX_BODY:
                    unread += data
                self._judge(self._vague, frames, bytes(unread) if not data else b"", is_over=not data)
            if frames and self._is_new is not None:
                frames = self._not_repeated(frames, self._is_new)
            if frames:
                deadline, self._is_lingering = None, False
                if is_large and is_plain:
                    yield from self._large_taken_in(frames)
                else:
                    yield self._taken_in(frames) if is_plain else self._changed_and_taken_in(frames)
                if self._broken is not None:
                    raise self._broken
                if self._is_done:
                    yield Close()
                    return None
                wait, limit = timeouts.idle, _IDLE
                end = None if timeouts.linger is None or not self._is_lingering else clock() + timeouts.linger
            if reader.error is not None:
                raise reader.error
            if not data:
                yield Close()
                return None

    def _judge(self, head: Head, frames: list[Frame], body: bytes, *, is_over: bool) -> None:
        """Take an answer that does not say what it is for a stream as soon as it has an event (SSE-3)."""
        if frames:
            found = head.headers.get("content-type", "nothing")
            message = f"the answer is read as {SSE_MEDIA_TYPE}, although its content type is {found}"
            self._settings.warn(Notice(rule="SSE-3", message=message))
            self._vague = None
            self._accepted()
        elif is_over:
            raise self._no_stream(head, body)

    # Events are for the caller, who may leave after any of them. So they are taken in one by one, each when the caller
    # asks for it, by an iterator that the twins are given; what goes wrong there is raised by ``_read``, who made it.

    def _taken_in(self, frames: list[Frame]) -> Iterator[Event]:
        """The events of frames that nobody wants to see before."""
        try:
            yield from self._consumer.feed_all([frame.data for frame in frames], self._is_over)
        except _AnotherRun:
            self._is_done = True
            return
        except Exception as error:  # noqa: BLE001 - raised again by whoever made this
            self._broken = error
            return
        self._count(frames)

    def _large_taken_in(self, frames: list[Frame]) -> Program[None]:
        """Deliver frames of which some are large."""
        for frame in frames:
            if len(frame.data) > LARGE:
                events = yield from _computed(partial(self._consumer.decode, frame.data))
                yield self._read_taken_in(frame, events)
            else:
                yield self._taken_in([frame])
            if self._broken is not None or self._is_done:
                return

    def _read_taken_in(self, frame: Frame, events: Sequence[Event]) -> Iterator[Event]:
        """The events of a frame that was read already."""
        try:
            for event in self._consumer.apply(events):
                yield event
                if event.__class__ in _BOUNDARIES:
                    self._is_over(event)
        except _AnotherRun:
            self._is_done = True
            return
        except Exception as error:  # noqa: BLE001 - raised again by whoever made this
            self._broken = error
            return
        self._count([frame])

    def _changed_and_taken_in(self, frames: list[Frame]) -> Iterator[Event]:
        """The same with middleware, and with what is known of an older peer."""
        try:
            for frame in frames:
                is_over = False
                for raw in self._changed(frame.data):
                    for event in self._consumer.feed(raw):
                        yield event
                        is_over = event.__class__ in _BOUNDARIES and self._is_over(event)
                self._count([frame])
                if is_over:
                    return
        except _AnotherRun:
            self._is_done = True
        except Exception as error:  # noqa: BLE001 - raised again by whoever made this
            self._broken = error

    def _count(self, frames: list[Frame]) -> None:
        """Frames were taken in. Not before: a cut while they are asks for them again."""
        self._fed += len(frames)
        if self._cursor.advance(frames):
            self._settings.server.sends_ids = True
        if self._begin_anew is None or self._cursor.is_covered:  # what comes again and again is no progress
            self._attempts = 0

    def _not_repeated(self, frames: list[Frame], is_new: Callable[[Frame], bool]) -> list[Frame]:
        """Frames of a log that was asked for from the cursor on, without those that are not after it."""
        for index, frame in enumerate(frames):
            if is_new(frame):
                self._is_new = None
                return frames[index:]
            if not self._repeated:
                message = f"the server sent events again, although it was asked to go on after {self._cursor.id!r}"
                self._settings.warn(Notice(rule="SSE-13", message=f"{message}: they are passed over"))
            self._repeated += 1
        return []

    def _changed(self, data: bytes) -> Iterator[Raw]:
        """What middleware, and what is known of an older peer, make of an event (PROC-7, ERA-4)."""
        for raw in self._chain.event(data) if self._chain else (data,):
            if self._boundary is None:
                yield raw
                continue
            for event in self._boundary.feed(raw):
                stripped = strip_subagents(event, self._settings.warn)
                if stripped is not None:
                    yield stripped

    def _rest(self, reader: Reader) -> list[Frame]:
        try:
            return reader.close()
        except StreamTruncated as error:
            if self._is_ended:
                raise ProtocolError(f"after the run had ended, {error}", rule="LIFE-16") from None
            return []

    def _is_over(self, event: Any) -> bool:
        """Whether nothing after this boundary event is to be read.

        The run that was asked for may be over, a replayed one before it is not (IN-1). A late RUN_ERROR may follow it
        where it was asked for (LIFE-15); the log, which it is taken up from, may go on with other runs.
        """
        if event.__class__ is RunStartedEvent:
            self._last_run_id = event.run_id
            self._is_lingering = False
        else:
            self._is_lingering = self._is_ours()
            self._is_done = self._is_resumed and self._is_lingering
        return self._is_done

    def _is_ours(self) -> bool:
        return self.run_id is None or self._last_run_id is None or self._last_run_id == self.run_id

    def _come_back(self, request: Request, dropped: AguilaError | None) -> Program[Reader]:
        """Find the stream again. Raises ``StreamTruncated`` if that cannot be, or not soon enough."""
        policy, settings, first = self._settings.reconnect, self._settings, dropped
        while True:
            if policy is None or not self._can_come_back(dropped):
                raise self._truncated(dropped)
            if self._attempts >= policy.attempts:
                raise self._given_up(dropped, f"; gave up after {self._attempts} attempts")
            if isinstance(dropped, TransportFailed) and dropped.is_lasting:
                raise self._given_up(dropped)
            yield Sleep(max(policy.asked_pause(dropped) or 0.0, policy.delay(self._attempts, settings.random())))
            self._attempts += 1
            self._is_resumed = True
            try:
                if self._fed and self._cursor.is_covered:
                    self._is_new, self._repeated = self._cursor.is_new(), 0
                    return (yield from self._open(self._log_request(request)))
                if self._begin_anew is not None:
                    self._is_resumed = False
                    self._begin(self._begin_anew())
                    return (yield from self._open(request))
                return (yield from self._open_again(request, self.run_id))
            except TransportFailed as error:
                dropped = error
            except HTTPRejected as error:
                if error.status not in _WORTH_RETRYING:
                    # A refusal by who may never have heard of such a thing explains nothing.
                    raise self._given_up(error if settings.server.sends_ids else first)  # noqa: B904 - it has its cause, or is this very error
                dropped = error

    def _can_come_back(self, dropped: AguilaError | None) -> bool:
        """Whether there is something to ask for that cannot lose an event, double one, or begin a run twice."""
        if self._fed and not self._cursor.is_covered and self._begin_anew is None:
            return False
        if self._settings.server.sends_ids:
            return True
        # Whose server it is we do not know. To ask does no harm; but one that is silent, or has said all, is not asked.
        return dropped is not None and not (isinstance(dropped, TransportFailed) and dropped.is_timeout)

    def _open_again(self, request: Request, run_id: str | None) -> Program[Reader]:
        """Nothing of the run was seen: look whether the server has it, ask for it again if not."""
        if run_id is not None:
            try:
                return (yield from self._open(self._run_request(request, run_id)))
            except HTTPRejected as error:
                # Ours says so; anyone's 404 may mean anything, also one that looks like ours, if that is all we know.
                if error.status != 404 or error.code != "not_found" or not self._settings.server.sends_ids:
                    raise
        self._is_resumed = False
        try:
            return (yield from self._open(request))
        except TransportFailed as error:
            self._may_have_begun = self._may_have_begun or error.was_sent
            raise
        except HTTPRejected as error:
            self._may_have_begun = self._may_have_begun or (error.status >= 500 and error.status not in _NOT_NOW)
            raise

    def _log_request(self, request: Request) -> Request:
        headers = merge_headers(request.headers, {**_READ_ON, "Last-Event-ID": self._cursor.id})
        url = self._settings.stream_route("threads", self._thread_id, "events")
        return Request(method="GET", url=url, headers=headers)

    def _run_request(self, request: Request, run_id: str) -> Request:
        url = self._settings.stream_route("threads", self._thread_id, "runs", run_id, "events")
        return Request(method="GET", url=url, headers=merge_headers(request.headers, _READ_ON))

    def _given_up(self, dropped: AguilaError | None, more: str = "") -> AguilaError:
        """How a run ends that there is no more hope for: cut off, or never begun."""
        if self._may_have_begun or dropped is None:
            return self._truncated(dropped, more)
        if isinstance(dropped, HTTPRejected) or not more:
            return dropped
        error = TransportFailed(f"{dropped}{more}", was_sent=False)
        error.__cause__ = dropped
        return error

    def _truncated(self, dropped: AguilaError | None, more: str = "") -> StreamTruncated:
        why = "it ended without a terminal event" if dropped is None else str(dropped)
        what = (
            "the run was cut off" if self._fed or dropped is None else "nothing came of the run, which may have begun"
        )
        error = StreamTruncated(f"{what}: {why}{more}")
        error.conversation = self._consumer.conversation
        error.__cause__ = dropped
        return error


class _AnotherRun(Exception):
    """A run began that was not asked for: nothing of it is taken in, and the stream is left."""


def _computed(work: Callable[[], T]) -> Program[T]:
    """Have something done that takes long. What it raises is raised here, and not by who does it."""
    failure: Exception | None = None

    def attempt() -> T | None:
        nonlocal failure
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - raised below
            failure = error
            return None

    result = yield Compute(attempt)
    if failure is not None:
        raise failure
    return result


_BOUNDARIES: frozenset[Any] = frozenset({RunStartedEvent, RunFinishedEvent, RunErrorEvent})

_READ_ON: dict[str, str | None] = {"Accept": SSE_MEDIA_TYPE, "Content-Type": None}
