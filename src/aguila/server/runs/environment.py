"""The objects that all parts of the run manager share."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from aguila.codec.notices import Warn
from aguila.protocol import Event
from aguila.server.config.limits import Limits
from aguila.server.config.options import Settings
from aguila.server.runs.store_health import StoreHealth
from aguila.server.threads.cache import Threads
from aguila.server.threads.client.cut_history import ThreadEnd
from aguila.store import Store
from aguila.telemetry.counts import Counts


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """The store and the settings of an app, and ``owner``: the id of this process in the leases it holds."""

    store: Store
    threads: Threads
    settings: Settings
    owner: str
    store_health: StoreHealth
    thread_ends: OrderedDict[tuple[str, str], ThreadEnd]
    """The ends of the last threads whose latest run was one of this process, by scope and thread id.

    With them most requests need not read the log. An entry is valid as long as the thread has the same last event,
    which ``Store.begin`` checks.
    """
    closing: Callable[[Event], Sequence[Event]]
    """What is sent before the last event of a run."""
    warn: Warn
    loop: asyncio.AbstractEventLoop
    counts: Counts | None
    """What the instruments measure; None if nobody reads it."""

    def limited_by(self, limits: Limits) -> Environment:
        """Return this environment with the limits of a caller."""
        return replace(self, settings=msgspec.structs.replace(self.settings, limits=limits))
