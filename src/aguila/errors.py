"""The whole exception tree. No layer below it; every layer may raise from it.

::

    AguilaError
    ├── ProtocolError            the peer sent what the protocol forbids: .rule .path .index .event
    │   ├── DecodeError          bytes or a value that are not what they should be (also a ValueError)
    │   └── SequenceError        well-formed events in an order that is forbidden
    ├── EncodeError              an object of ours that cannot be written (also a ValueError)
    ├── IllegalStep              we asked a writer or a client thread for what the protocol forbids at this point: .rule
    ├── PatchError               a JSON Patch that does not apply; the document is unchanged
    ├── RunFailed                the run reported its own failure (RUN_ERROR): .message .code
    │   └── RunNotStored         an agent asked, recorded or kept something in a run that is not stored
    ├── StreamTruncated          the stream ended before the run did, or never came although the run may have begun
    ├── HTTPRejected             the server refused before any stream: .status .code .body
    ├── TransportFailed          the server could not be reached, or the connection broke before its answer
    ├── AuthFailed               the application's own ``auth`` failed; what it raised is the cause
    ├── ToolRoundsExceeded       the agent kept calling tools: .rounds
    ├── StoreError               the event log refused or could not
    │   ├── ThreadBusy           another run is on: .run
    │   ├── TooManyRuns          as many runs of the scope are on as may be
    │   ├── RunExists            the run id is taken on this thread: .run
    │   ├── AgentMismatch        the thread belongs to another agent: .agent
    │   ├── StaleLease           someone else has ended or taken over the run
    │   ├── ThreadMoved          an interrupt was raised since the run was planned: plan it again
    │   ├── InterruptTaken       an interrupt was answered, or is being answered, by another run: .interrupt_id
    │   ├── NotFound             no such thread, run or file in this scope
    │   ├── CursorExpired        the log no longer holds what the cursor asks for, or never did
    │   └── StoreUnavailable     the disk is full, the database is locked, the store is closed
    └── MissingExtra             an optional part of Aguila is not installed (also an ImportError)

A ``ProtocolError`` is the peer's fault, an ``EncodeError`` or ``IllegalStep`` is ours, and a ``RunFailed`` is
nobody's: the run failed and said so in order (LIFE-21).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aguila.protocol import Event


class AguilaError(Exception):
    """The root of everything Aguila raises on purpose.

    All can be copied and pickled, to come back from another process with their text and what they hold; as with any
    exception, ``__cause__`` and the traceback stay behind.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # Python's own would call the class with the text, which is not what our constructors take.
        _, args, *state = super().__reduce__()
        return (_restored, (type(self), args), *state)


def _restored(kind: type[AguilaError], args: tuple[Any, ...]) -> AguilaError:
    """An error with its text, without its constructor: what it holds is set after."""
    error = kind.__new__(kind)
    super(AguilaError, error).__init__(*args)
    return error


class ProtocolError(AguilaError):
    """The peer broke the protocol.

    ``rule`` is the id of the rule in the protocol digest (``"CHK-3"``), ``path`` a JSON Pointer to the
    offending value within its event or document, ``index`` the position of the event or frame in its stream,
    ``event`` the event itself where there is one. What was delivered before stays delivered: where a
    conversation was being built, it is in ``conversation``.
    """

    def __init__(
        self,
        message: str,
        *,
        rule: str,
        path: str = "",
        index: int | None = None,
        event: Event | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.rule = rule
        self.path = path
        self.index = index
        self.event = event
        self.conversation: Any = None

    def __str__(self) -> str:
        where = "" if self.index is None else f"event {self.index}: "
        at = f" at {self.path!r}" if self.path else ""
        return f"{where}{self.message}{at} [{self.rule}]"

    def __repr__(self) -> str:
        where = "" if self.index is None else f", index={self.index}"
        return f"{type(self).__name__}({self.message!r}, rule={self.rule!r}{where})"


class DecodeError(ProtocolError, ValueError):
    """What arrived is not a well-formed event, message or document."""


class SequenceError(ProtocolError):
    """Well-formed events arrived in an order that the protocol forbids."""


class EncodeError(AguilaError, ValueError):
    """An object cannot be written as it is; ``path`` points to what is wrong with it."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(f"{message} at {path!r}" if path else message)
        self.message = message
        self.path = path


class IllegalStep(AguilaError):
    """A writer, or a client's thread, was asked for what the protocol forbids at this point. Nothing was sent."""

    def __init__(self, message: str, *, rule: str) -> None:
        super().__init__(f"{message} [{rule}]")
        self.message = message
        self.rule = rule


class PatchError(AguilaError):
    """A JSON Patch does not apply. The document it was meant for is unchanged.

    ``index`` is the operation that failed, ``operation`` that operation, ``path`` its path. ``rule`` is SNAP-8 for a
    malformed patch, which is an error wherever it comes from, and SNAP-9 for one that does not fit the document.
    """

    def __init__(
        self,
        message: str,
        *,
        index: int | None = None,
        operation: Any = None,
        path: str = "",
        rule: str = "SNAP-9",
    ) -> None:
        super().__init__(message if index is None else f"operation {index}: {message}")
        self.message = message
        self.index = index
        self.operation = operation
        self.path = path
        self.rule = rule


class RunFailed(AguilaError):
    """The run ended with RUN_ERROR. ``message`` and ``code`` are the producer's words.

    An agent that raises one of its own ends its run with these words: they are for the user.
    """

    def __init__(self, message: str, *, code: str | None = None, event: Event | None = None) -> None:
        super().__init__(message if code is None else f"{message} ({code})")
        self.message = message
        self.code = code
        self.event = event
        self.conversation: Any = None


class RunNotStored(RunFailed):
    """The agent tried what needs a stored run, in a run that was started with ``?store=false``."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"This run is not stored, so it cannot {what}. Start it without ?store=false.", code="run_not_stored"
        )


class StreamTruncated(AguilaError):
    """The stream ended without a terminal event: the run neither succeeded nor failed (TRN-7)."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.conversation: Any = None


class HTTPRejected(AguilaError):
    """The server refused the request before any stream began (SSE-9).

    ``retry_after`` is how many seconds to wait before asking again, if it said so.
    """

    def __init__(
        self,
        status: int,
        *,
        code: str | None = None,
        message: str = "",
        body: Any = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"HTTP {status}" + (f" {code}" if code else "") + (f": {message}" if message else ""))
        self.status = status
        self.code = code
        self.message = message
        self.body = body
        self.retry_after = retry_after


class TransportFailed(AguilaError):
    """The server could not be reached, or the connection broke before the answer was complete.

    A run that may have begun does not end with this, but with ``StreamTruncated``.
    ``was_sent`` is False if the request certainly did not get there; ``is_lasting`` says that another try, of the same
    request, would end in the same way; ``is_timeout`` that the time ran out in which something had to come.
    """

    def __init__(
        self, message: str, *, was_sent: bool = True, is_lasting: bool = False, is_timeout: bool = False
    ) -> None:
        super().__init__(message)
        self.message = message
        self.was_sent = was_sent
        self.is_lasting = is_lasting
        self.is_timeout = is_timeout


class AuthFailed(AguilaError):
    """A client's ``auth`` could not give credentials: it raised, which is the cause, or gave what is none.

    A run that had begun goes on at the server.
    """

    def __init__(self, error: Exception) -> None:
        text = str(error)
        super().__init__(f"auth gave no credentials: {type(error).__name__}{f': {text}' if text else ''}")
        self.__cause__ = error


class ToolRoundsExceeded(AguilaError):
    """The agent called tools in more rounds than were allowed.

    A client has not executed the last calls; they are pending. An agent that raises it ends its run as cancelled.
    """

    def __init__(self, rounds: int) -> None:
        super().__init__(f"the agent still calls tools after {rounds} rounds; max_rounds allows more")
        self.rounds = rounds
        self.conversation: Any = None


class StoreError(AguilaError):
    """The event log refused an operation, or could not carry it out. Nothing of the operation was done."""


class ThreadBusy(StoreError):
    """A run is going on, and a thread has one at a time. ``run`` is its record."""

    def __init__(self, message: str, *, run: Any) -> None:
        super().__init__(message)
        self.run = run


class TooManyRuns(StoreError):
    """As many runs of this scope are on as may be, in all processes that share the store: one has to end first."""


class RunExists(StoreError):
    """The run id was used on this thread before (ENV-11). ``run`` is the record of that run."""

    def __init__(self, message: str, *, run: Any) -> None:
        super().__init__(message)
        self.run = run


class AgentMismatch(StoreError):
    """The thread belongs to another agent. ``agent`` is the name of that agent."""

    def __init__(self, message: str, *, agent: str) -> None:
        self.agent = agent
        super().__init__(message)


class StaleLease(StoreError):
    """The run is closed, or belongs to another owner now: what this owner still wanted to write is refused."""


class InterruptTaken(StoreError):
    """An interrupt can be answered once; another run has answered it or is about to."""

    def __init__(self, message: str, *, interrupt_id: str) -> None:
        super().__init__(message)
        self.interrupt_id = interrupt_id


class ThreadMoved(StoreError):
    """An interrupt was raised after the run was planned: whether it may still begin has to be asked again (INT-15)."""


class NotFound(StoreError):
    """There is no such thread, run or file in this scope; whether another scope has one is not said."""


class CursorExpired(StoreError):
    """The log does not hold what comes after the cursor: it was pruned, or the cursor is not of this log."""


class StoreUnavailable(StoreError):
    """The store cannot work now: disk full, database locked, or closed."""


class MissingExtra(AguilaError, ImportError):
    """An optional part of Aguila needs a package that is not installed."""

    def __init__(self, extra: str, package: str) -> None:
        super().__init__(f"this needs {package}: install it with  pip install 'aguila[{extra}]'")
        self.extra = extra
        self.package = package
