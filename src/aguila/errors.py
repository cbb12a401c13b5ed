"""All exceptions that Aguila raises.

::

    AguilaError
    ├── ProtocolError            the peer violated the protocol: .rule .path .index .event .help
    │   ├── DecodeError          bytes or a value that cannot be decoded (also a ValueError)
    │   └── SequenceError        valid events in a forbidden order
    ├── EncodeError              an object of ours that cannot be encoded (also a ValueError)
    ├── IllegalStep              our call of a writer or client thread is not allowed now: .rule
    ├── PatchError               a JSON Patch does not apply; the document is unchanged
    ├── RunFailed                the run reported its own failure (RUN_ERROR): .message .code
    │   └── RunNotStored         an agent needs a stored run, and this one is not stored
    ├── StreamTruncated          the stream ended before the run did, or never started although the run may have
    ├── LimitExceeded            a response is larger or longer than the client allows: .limit
    ├── HTTPRejected             the server refused the request before any stream: .status .code .body
    ├── TransportFailed          the server is unreachable, or the connection broke before its response
    ├── AuthFailed               the application's ``auth`` failed; its exception is the cause
    ├── ToolRoundsExceeded       the agent called tools in too many rounds: .rounds
    ├── OutcomeUnknown           an effect was begun, and how it ended is not recorded: .key
    ├── StoreError               the store refused or failed
    │   ├── StoreRefusal         the run cannot begin, although the store works
    │   │   ├── ThreadBusy       the thread has another active run: .run
    │   │   ├── TooManyRuns      the scope has reached its limit of active runs
    │   │   ├── QuotaExceeded    the scope or the store holds as much as a quota allows: .quota
    │   │   ├── RunExists        the run id is already used on this thread: .run
    │   │   ├── AgentMismatch    the thread belongs to another agent: .agent
    │   │   ├── ThreadMoved      the thread has changed since the run was planned: plan it again
    │   │   └── InterruptTaken   another run has answered the interrupt, or is answering it: .interrupt_id
    │   ├── StaleLease           the run was ended or taken over by another owner
    │   ├── ThreadExists         the thread to restore exists: delete it, or replace it
    │   ├── NotFound             no such thread, run or file in this scope
    │   ├── CursorExpired        the log does not have the events after the cursor
    │   └── StoreUnavailable     the disk is full, the database is locked, or the store is closed
    └── MissingExtra             an optional dependency is not installed (also an ImportError)

A ``ProtocolError`` is the peer's fault. An ``EncodeError`` or ``IllegalStep`` is ours. A ``RunFailed`` is neither: the
run failed and reported it correctly (LIFE-21).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aguila.protocol import Event


class AguilaError(Exception):
    """The base of all exceptions that Aguila raises on purpose.

    They can be copied and pickled with their text and attributes. As with any exception, ``__cause__`` and the
    traceback are not included.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with the text, but our constructors take other arguments.
        _, args, *state = super().__reduce__()
        return (_restored, (type(self), args), *state)


def _restored(kind: type[AguilaError], args: tuple[Any, ...]) -> AguilaError:
    """Make an error without calling its constructor. Its attributes are set afterwards."""
    error = kind.__new__(kind)
    super(AguilaError, error).__init__(*args)
    return error


def rule_help(rule: str) -> str:
    """Return the link to the explanation of a rule."""
    return f"docs/rules.md#{rule.lower()}"


class ProtocolError(AguilaError):
    """The peer violated the protocol.

    ``rule`` is the rule id (``"CHK-3"``), ``path`` a JSON Pointer to the wrong value in its event or document,
    ``index`` the position of the event or frame in its stream, ``event`` the event, if there is one. ``conversation``
    is the conversation so far, if one was being built.
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

    @property
    def help(self) -> str:
        """Where the rule is explained: a link into docs/rules.md."""
        return rule_help(self.rule)

    def __str__(self) -> str:
        where = "" if self.index is None else f"event {self.index}: "
        at = f" at {self.path!r}" if self.path else ""
        return f"{where}{self.message}{at} [{self.rule}]"

    def __repr__(self) -> str:
        where = "" if self.index is None else f", index={self.index}"
        return f"{type(self).__name__}({self.message!r}, rule={self.rule!r}{where})"


class DecodeError(ProtocolError, ValueError):
    """The received data is not a valid event, message or document."""


class SequenceError(ProtocolError):
    """Valid events arrived in an order that the protocol forbids."""


class EncodeError(AguilaError, ValueError):
    """An object cannot be encoded. ``path`` is a pointer to the wrong value."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__(f"{message} at {path!r}" if path else message)
        self.message = message
        self.path = path


class IllegalStep(AguilaError):
    """A writer or client thread was called for something that the protocol forbids now. Nothing was sent."""

    def __init__(self, message: str, *, rule: str) -> None:
        super().__init__(f"{message} [{rule}]")
        self.message = message
        self.rule = rule


class PatchError(AguilaError):
    """A JSON Patch does not apply. The document is unchanged.

    ``index`` is the position of the failed operation, ``operation`` the operation, ``path`` its path. ``rule`` is
    SNAP-8 for a malformed patch, and SNAP-9 for one that does not fit the document.
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
    """The run ended with RUN_ERROR. ``message`` and ``code`` are those of the event.

    An agent may raise this to end its run with this message and code, which are shown to the user.
    """

    def __init__(self, message: str, *, code: str | None = None, event: Event | None = None) -> None:
        super().__init__(message if code is None else f"{message} ({code})")
        self.message = message
        self.code = code
        self.event = event
        self.conversation: Any = None


class RunNotStored(RunFailed):
    """The agent used a feature that needs a stored run, in a run started with ``?store=false``."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"This run is not stored, so it cannot {what}. Start it without ?store=false.", code="run_not_stored"
        )


class StreamTruncated(AguilaError):
    """The stream ended without a terminal event: the run neither finished nor failed (TRN-7)."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.conversation: Any = None


class LimitExceeded(AguilaError):
    """A response has more events or bytes, or takes longer, than the client allows. Its run continues on the server.

    ``limit`` is the name of the client's parameter: ``max_events``, ``max_bytes`` or ``max_seconds``. It is
    ``max_bytes``, too, if the process runs out of memory before that: a lower one refuses such a response earlier.
    """

    def __init__(self, limit: str, value: float, unit: str, message: str | None = None) -> None:
        if message is None:
            message = f"the response has more than {value} {unit}; raise {limit} of the client to allow more"
        super().__init__(message)
        self.limit = limit
        self.conversation: Any = None


class HTTPRejected(AguilaError):
    """The server refused the request before any stream started (SSE-9).

    ``retry_after`` is the number of seconds to wait before a retry, if the server said so.
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
    """The server is unreachable, or the connection broke before the response was complete.

    If a run may have started, ``StreamTruncated`` is raised instead. ``was_sent`` is False if the request certainly did
    not arrive. ``is_lasting``: a retry of the same request would fail in the same way. ``is_timeout``: a timeout has
    expired.
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
    """A client's ``auth`` did not return credentials: it raised, which is the cause, or returned something else.

    A run that has started continues on the server.
    """

    def __init__(self, error: Exception) -> None:
        text = str(error)
        super().__init__(f"auth returned no credentials: {type(error).__name__}{f': {text}' if text else ''}")
        self.__cause__ = error


class ToolRoundsExceeded(AguilaError):
    """The agent called tools in more rounds than allowed.

    A client has not executed the last calls; they are pending. If an agent raises it, its run ends as cancelled.
    """

    def __init__(self, rounds: int) -> None:
        super().__init__(f"the agent still calls tools after {rounds} rounds; raise max_rounds to allow more")
        self.rounds = rounds
        self.conversation: Any = None


class OutcomeUnknown(AguilaError):
    """An earlier run began the effect ``key`` of ``run.once`` and did not record how it ended.

    The effect may have happened, completely or in part, and is not called again.
    """

    def __init__(self, key: str) -> None:
        super().__init__(
            f"once({key!r}) was begun by an earlier run, which did not record how it ended; find out whether it"
            " happened, then call once with another key, or with idempotent=True if it may happen twice"
        )
        self.key = key


class StoreError(AguilaError):
    """The store refused an operation, or could not execute it. The operation had no effect."""


class StoreRefusal(StoreError):
    """The store does not begin a run now. It works, and may begin another one."""


class ThreadBusy(StoreRefusal):
    """The thread has an active run, and a thread runs one at a time. ``run`` is the record of that run."""

    def __init__(self, message: str, *, run: Any) -> None:
        super().__init__(message)
        self.run = run


class TooManyRuns(StoreRefusal):
    """The scope has reached its limit of active runs, in all processes that share the store."""


class QuotaExceeded(StoreRefusal):
    """A scope, or the store, holds as much as a quota allows. ``quota`` is the quota: a field of ``store.Quotas``."""

    def __init__(self, message: str, *, quota: str) -> None:
        super().__init__(message)
        self.quota = quota


class RunExists(StoreRefusal):
    """The run id was used on this thread before (ENV-11). ``run`` is the record of that run."""

    def __init__(self, message: str, *, run: Any) -> None:
        super().__init__(message)
        self.run = run


class AgentMismatch(StoreRefusal):
    """The thread belongs to another agent. ``agent`` is the name of that agent."""

    def __init__(self, message: str, *, agent: str) -> None:
        self.agent = agent
        super().__init__(message)


class StaleLease(StoreError):
    """The run has ended or belongs to another owner now. Writes of the old owner are refused."""


class InterruptTaken(StoreRefusal):
    """An interrupt can be answered once. Another run has answered it, or is answering it."""

    def __init__(self, message: str, *, interrupt_id: str) -> None:
        super().__init__(message)
        self.interrupt_id = interrupt_id


class ThreadExists(StoreError):
    """A thread cannot be restored from an archive, because the store has a thread with this id."""


class ThreadMoved(StoreRefusal):
    """The thread has changed since the run was planned. Check again whether and how the run may start (INT-15)."""


class NotFound(StoreError):
    """There is no such thread, run or file in this scope. Other scopes are not mentioned."""


class CursorExpired(StoreError):
    """The log does not have the events after the cursor: they were pruned, or the cursor belongs to another log."""


class StoreUnavailable(StoreError):
    """The store cannot work now: the disk is full, the database is locked, or the store is closed."""


class MissingExtra(AguilaError, ImportError):
    """An optional feature needs a package that is not installed."""

    def __init__(self, extra: str, package: str) -> None:
        command = f"pip install 'aguila[{extra}]'"
        super().__init__(f"this needs {package}; install it with: {command} (in a clone: '.[{extra}]')")
        self.extra = extra
        self.package = package
