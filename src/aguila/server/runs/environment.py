"""The objects that all parts of the run manager share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aguila.codec.notices import Warn
from aguila.server.history.client_history.cut_history import ThreadEnds
from aguila.server.history.projection import Projections
from aguila.server.quotas import StorageQuotas
from aguila.server.settings import Settings
from aguila.server.store_health import StoreHealth
from aguila.store import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """The store and the settings of an app, and ``owner``: the id of this process in the leases it holds."""

    store: Store
    projections: Projections
    settings: Settings
    owner: str
    store_health: StoreHealth
    thread_ends: ThreadEnds
    quotas: StorageQuotas
    warn: Warn
    loop: asyncio.AbstractEventLoop
