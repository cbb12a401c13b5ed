"""The arguments of ``Store.begin`` as one value."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aguila.store.base import Lease, Quotas


class NewRun(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A run to begin, without its request; see ``Store.begin``."""

    lease: Lease
    lease_seconds: float
    fingerprint: str
    events: Sequence[bytes]
    parent_run_id: str | None
    claims: Sequence[str]
    waiting: frozenset[str] | None
    after: int | None
    max_running: int | None
    agent: str
    sent_run_id: str | None
    quotas: Quotas | None = None
