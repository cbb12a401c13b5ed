"""The errors of PostgreSQL and its driver, as errors of a store."""

from __future__ import annotations

import psycopg
from psycopg import errors

from aguila.errors import NotFound, StoreUnavailable

_OUTAGES = (
    "08",  # connection exception
    "23505",  # two processes made one thread at the same time: repeated, the call finds it
    "25006",  # read-only transaction: a standby, or a primary that is being replaced
    "25P03",  # this process was suspended within a transaction
    "40001",  # serialisation failure
    "40P01",  # deadlock
    "53",  # insufficient resources: too many connections, disk full
    "55P03",  # lock not available
    "57",  # operator intervention: shutdown, starting up, terminated
    "58",  # system error
)
"""The SQLSTATEs (or their classes) of errors that are not the fault of the statement."""

_REFUSED = ("password", "authentication", "does not exist", "pg_hba.conf", "is not permitted to log in")
"""Words in the refusal of a connection that no repetition mends: libpq gives it no SQLSTATE.

A server that speaks another language is asked again for as long as the store waits for one that is away.
"""

_PERMISSIONS = (
    "grant the role of the store SELECT, INSERT, UPDATE and DELETE on the tables of its schema and USAGE on the schema "
    "and its sequences; to create the schema it needs CREATE on the database; see Permissions in docs/scaling.md"
)

_ADVICE = {
    "25006": "this server is a standby; name all hosts in the URL, with target_session_attrs=read-write",
    "42501": _PERMISSIONS,
    "53300": "raise max_connections, or lower aguila_pool: a process uses that many and three more",
}
"""What to do about an error, by its SQLSTATE."""

_CONNECTING = {
    "password authentication failed": "check the user and the password of the URL, or PGPASSWORD and ~/.pgpass",
    "no password supplied": "give the password in the URL, in PGPASSWORD or in ~/.pgpass",
    "pg_hba.conf": "allow this address, user and database in pg_hba.conf of the server",
    'database "': "create the database, or name another one in the URL",
    "too many": _ADVICE["53300"],
    "remaining connection slots": _ADVICE["53300"],
    "Connection refused": "check the host and the port of the URL, and whether the server runs",
    "resolve host": "check the host of the URL",
    "session is read-only": _ADVICE["25006"],
    "timeout expired": "check the host of the URL, and whether a firewall drops packets to it",
}
"""What to do about a connection that failed, by words of the message."""


def is_outage(error: BaseException) -> bool:
    """Return whether the server or the network caused an error, so that the call may succeed later."""
    if isinstance(error, psycopg.Error):
        if error.sqlstate is not None:
            return error.sqlstate.startswith(_OUTAGES)
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not is_refused(error)
    return isinstance(error, OSError)  # TimeoutError is one


def is_refused(error: BaseException) -> bool:
    """Return whether a server refused a connection in a way that no repetition mends."""
    if not isinstance(error, psycopg.OperationalError) or error.sqlstate is not None:
        return False
    text = str(error)
    return "FATAL:" in text and any(word in text for word in _REFUSED)


def unavailable(error: BaseException) -> StoreUnavailable:
    """Convert an error to ``StoreUnavailable``, with what to do about it."""
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    reason = str(error).split("\n", 1)[0].removeprefix("connection failed: ") or type(error).__name__
    if state is not None:
        advice = _ADVICE.get(state)
    else:
        advice = next((advice for words, advice in _CONNECTING.items() if words in str(error)), None)
    return StoreUnavailable(
        f"PostgreSQL: {reason}{'' if state is None else f' ({state})'}{'' if advice is None else f'; {advice}'}"
    )


def convert(error: Exception, *, writes: bool) -> Exception:
    """Return the exception to raise for an error that is no outage. ``writes``: the call stores its arguments."""
    if is_refused(error) or isinstance(error, errors.InsufficientPrivilege):
        return unavailable(error)
    if isinstance(error, errors.UndefinedTable | errors.UndefinedColumn | errors.InvalidSchemaName):
        return StoreUnavailable(
            f"the schema was changed or removed: {_first_line(error)}; if a newer Aguila has changed it, restart with "
            "that version; otherwise run aguila store migrate with the URL of this store"
        )
    is_unstorable = isinstance(error, errors.CharacterNotInRepertoire | errors.ProgramLimitExceeded)
    if is_unstorable or isinstance(error, UnicodeEncodeError):
        message = f"PostgreSQL cannot store a value: {_first_line(error)}"
        return ValueError(message) if writes else NotFound(message)
    return error


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
