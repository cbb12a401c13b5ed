"""The settings of an app, checked when it is made. ``App`` documents each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from aguila.chat.allowed_media import DEFAULT_MEDIA, AllowedMedia
from aguila.codec.dialects import (
    UNDECLARED,
    UNDECLARED_PARALLEL,
    UNDECLARED_WITH_META,
    UNDECLARED_WITH_SUBAGENTS,
    Dialect,
)
from aguila.server.config.limits import Limits
from aguila.store import Retention

HistoryMode = Literal["client", "server"]
"""Which side keeps the messages: the client, which sends all of them, or the server, which adds the new ones."""

UnknownHistory = Literal["keep", "drop"]
"""Whether assistant and tool messages of clients that the log does not have are kept."""

Busy = Literal["auto", "reject", "queue", "replace"]
"""How a second run on a thread is handled."""

UndeclaredPeers = Literal["flatten", "parallel", "subagents", "meta"]
"""What a client that declares no protocol version receives besides the events that all clients read."""

_UNDECLARED_DIALECTS: Final[dict[str, Dialect]] = {
    "flatten": UNDECLARED,
    "parallel": UNDECLARED_PARALLEL,
    "subagents": UNDECLARED_WITH_SUBAGENTS,
    "meta": UNDECLARED_WITH_META,
}


def check_list(name: str, value: Sequence[str] | None) -> None:
    """Raise ``ValueError`` for a string, which would be read as a list of letters."""
    if isinstance(value, str):
        raise ValueError(f"{name} is the string {value!r}; use a list: {name}=[{value!r}]")


def _check_keys(name: str, value: Sequence[str] | None) -> None:
    check_list(name, value)
    keys: object = value  # the caller may be untyped
    if keys is not None and not (isinstance(keys, Sequence) and all(isinstance(key, str) for key in keys)):
        raise ValueError(f"{name} is {keys!r}; use a list of top-level keys of the state, or None to allow all")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; use one of {', '.join(map(repr, choices))}")


def _check_seconds(name: str, value: float, *, may_be_zero: bool = True) -> None:
    if not (value >= 0 if may_be_zero else value > 0):  # NaN is neither
        raise ValueError(f"{name} is {value!r}; use a number of seconds{'' if may_be_zero else ' above 0'}")


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """How long the parts of a run may take, in seconds. Raises ``ValueError`` for an invalid time.

    ``lease``: how long a run survives if its process does not renew the lease.
    ``cancel_grace``: how long a cancelled agent may clean up.
    ``store_patience``: how long events may wait for a failing store.
    """

    lease: float = 30.0
    cancel_grace: float = 5.0
    store_patience: float = 5.0

    def __post_init__(self) -> None:
        _check_seconds("lease", self.lease, may_be_zero=False)
        _check_seconds("cancel_grace", self.cancel_grace)
        _check_seconds("store_patience", self.store_patience, may_be_zero=False)


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """Which input of clients reaches agents. Raises ``ValueError`` for an invalid setting.

    ``system_messages``: whether system and developer messages do.
    ``unknown_history``: with ``"drop"``, assistant and tool messages that no run has sent do not.
    ``state_keys``: the top-level keys of the state that clients may change; None allows all.
    ``media``: which references to media do; by default data, uploads, and public hosts with https.
    """

    system_messages: bool = False
    unknown_history: UnknownHistory = "keep"
    state_keys: Sequence[str] | None = None
    media: AllowedMedia = DEFAULT_MEDIA

    def __post_init__(self) -> None:
        _check_choice("unknown_history", self.unknown_history, ("keep", "drop"))
        _check_keys("state_keys", self.state_keys)


class Sends(msgspec.Struct, frozen=True, kw_only=True):
    """How events are stored and sent. Raises ``ValueError`` for an invalid setting.

    ``merge_deltas``: send buffered deltas of the same text, reasoning or arguments as one.
    ``echo_input``: put the input on RUN_STARTED.
    ``undeclared_peers``: what a client that declares no protocol version receives. ``"flatten"`` makes the output of
    subagents the agent's own, and sends one text and one tool call at a time, because front ends mix parallel ones.
    ``"parallel"`` flattens only. ``"subagents"`` sends SUBAGENT_* events, which clients before 0.0.59 refuse, one text
    and one call at a time. ``"meta"`` is ``"flatten"``, with META events as META, which no published client reads.
    """

    merge_deltas: bool = True
    echo_input: bool = False
    undeclared_peers: UndeclaredPeers = "flatten"

    def __post_init__(self) -> None:
        _check_choice("undeclared_peers", self.undeclared_peers, tuple(_UNDECLARED_DIALECTS))

    @property
    def undeclared_dialect(self) -> Dialect:
        """The dialect of a client that declares no protocol version."""
        return _UNDECLARED_DIALECTS[self.undeclared_peers]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How an app treats its runs and connections. Raises ``ValueError`` or ``TypeError`` for an invalid setting."""

    history: HistoryMode = "client"
    busy: Busy = "auto"
    cancel_unwatched_after: float | None = None
    drain: float = 10.0
    heartbeat: float = 15.0
    timing: Timing = Timing()
    trust: Trust = Trust()
    sends: Sends = Sends()
    limits: Limits = Limits()
    retention: Retention | None = None
    headers_allowed: Sequence[str] = ()
    debug: bool = False

    def __post_init__(self) -> None:
        _check_choice("history", self.history, ("client", "server"))
        _check_choice("busy", self.busy, ("auto", "reject", "queue", "replace"))
        if self.cancel_unwatched_after is not None:
            _check_seconds("cancel_unwatched_after", self.cancel_unwatched_after)
        _check_seconds("drain", self.drain)
        _check_seconds("heartbeat", self.heartbeat, may_be_zero=False)
        check_list("headers_allowed", self.headers_allowed)
        for name, group in (("timing", Timing), ("trust", Trust), ("sends", Sends), ("limits", Limits)):
            if not isinstance(value := getattr(self, name), group):
                raise TypeError(f"{name} is {value!r}; use {name}={group.__name__}(...)")
