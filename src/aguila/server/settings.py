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
from aguila.server.history.client_history.known_messages import UnknownHistory
from aguila.server.history.projection import HistoryMode
from aguila.server.limits import Limits
from aguila.store import Retention

Busy = Literal["auto", "reject", "queue", "replace"]
"""How a second run on a thread is handled; see ``runs.manager``."""

UndeclaredPeers = Literal["flatten", "parallel", "subagents", "meta"]
"""What a client that declares no protocol version receives besides the events that all clients read."""

_UNDECLARED_DIALECTS: Final[dict[str, Dialect]] = {
    "flatten": UNDECLARED,
    "parallel": UNDECLARED_PARALLEL,
    "subagents": UNDECLARED_WITH_SUBAGENTS,
    "meta": UNDECLARED_WITH_META,
}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How an app treats its runs. Raises ``ValueError`` for an invalid setting."""

    history: HistoryMode = "client"
    busy: Busy = "auto"
    lease: float = 30.0
    drain: float = 10.0
    coalesce: float = 0.005
    merge_deltas: bool = True
    cancel_grace: float = 5.0
    store_patience: float = 5.0
    limits: Limits = Limits()
    allow_system_messages: bool = False
    unknown_history: UnknownHistory = "keep"
    state_keys: Sequence[str] | None = None
    allowed_media: AllowedMedia = DEFAULT_MEDIA
    echo_input: bool = False
    langgraph_interrupts: bool = False
    retention: Retention | None = None
    debug: bool = False

    def __post_init__(self) -> None:
        _check_choice("history", self.history, ("client", "server"))
        _check_choice("unknown_history", self.unknown_history, ("keep", "drop"))
        _check_keys("state_keys", self.state_keys)
        _check_choice("busy", self.busy, ("auto", "reject", "queue", "replace"))
        for name in ("lease", "store_patience"):
            _check_seconds(name, getattr(self, name), may_be_zero=False)
        for name in ("drain", "coalesce", "cancel_grace"):
            _check_seconds(name, getattr(self, name))


class HTTPSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How an app treats its connections. Raises ``ValueError`` for an invalid setting."""

    on_disconnect: Literal["continue", "cancel"] = "continue"
    disconnect_grace: float = 5.0
    heartbeat: float = 15.0
    headers_allowed: Sequence[str] = ()
    undeclared_peers: UndeclaredPeers = "flatten"

    def __post_init__(self) -> None:
        _check_choice("on_disconnect", self.on_disconnect, ("continue", "cancel"))
        _check_choice("undeclared_peers", self.undeclared_peers, tuple(_UNDECLARED_DIALECTS))
        _check_seconds("heartbeat", self.heartbeat, may_be_zero=False)
        _check_seconds("disconnect_grace", self.disconnect_grace)
        check_list("headers_allowed", self.headers_allowed)

    @property
    def cancel_after(self) -> float | None:
        """Seconds after which a run without viewers is cancelled; None if it continues."""
        return self.disconnect_grace if self.on_disconnect == "cancel" else None

    @property
    def undeclared_dialect(self) -> Dialect:
        """The dialect of a client that declares no protocol version."""
        return _UNDECLARED_DIALECTS[self.undeclared_peers]


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
