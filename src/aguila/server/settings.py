"""Layer: server. How the runs of an app are treated, as ``App`` was told.

Below: ``limits``. Above: ``runs`` and ``keeper``.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from aguila.server.history.projection import HistoryMode
from aguila.server.limits import Limits
from aguila.store import Retention

Busy = Literal["auto", "reject", "queue", "replace"]
"""What becomes of a second run on a thread; see ``runs``."""

UndeclaredPeers = Literal["flatten", "subagents", "meta"]
"""What a client that declares no protocol version gets of subagents; see ``App``."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How runs are treated; see ``App``."""

    history: HistoryMode = "client"
    busy: Busy = "auto"
    lease: float = 30.0
    drain: float = 10.0
    coalesce: float = 0.005
    cancel_grace: float = 5.0
    store_patience: float = 5.0
    limits: Limits = Limits()
    allow_system_messages: bool = False
    echo_input: bool = False
    one_text_at_a_time: bool = False
    langgraph_interrupts: bool = False
    retention: Retention | None = None
    debug: bool = False

    @property
    def max_held(self) -> int | None:
        """The bytes that a run may hold back to send one text at a time; None if it does not."""
        return self.limits.held if self.one_text_at_a_time else None
