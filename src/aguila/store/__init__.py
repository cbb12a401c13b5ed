"""Stores: the event log and the files behind durable threads. ``base`` is the contract."""

from typing import TYPE_CHECKING, Any

from aguila.store.base import Store
from aguila.store.memory.store import MemoryStore
from aguila.store.records import (
    DEFAULT_AGENT,
    Batch,
    Blob,
    CancelRequest,
    Durability,
    InterruptRecord,
    InterruptStatus,
    Lease,
    MetadataFilter,
    NewRun,
    Outcome,
    Quotas,
    Retention,
    RunEnd,
    RunProjection,
    RunRecord,
    StoredProjection,
    ThreadSummary,
    ThreadUpdate,
    Usage,
)
from aguila.store.sqlite.store import SQLiteStore

if TYPE_CHECKING:
    from aguila.store.postgres.store import PostgresStore

__all__ = [
    "DEFAULT_AGENT",
    "Batch",
    "Blob",
    "CancelRequest",
    "Durability",
    "InterruptRecord",
    "InterruptStatus",
    "Lease",
    "MemoryStore",
    "MetadataFilter",
    "NewRun",
    "Outcome",
    "PostgresStore",
    "Quotas",
    "Retention",
    "RunEnd",
    "RunProjection",
    "RunRecord",
    "SQLiteStore",
    "Store",
    "StoredProjection",
    "ThreadSummary",
    "ThreadUpdate",
    "Usage",
]


def __getattr__(name: str) -> Any:
    if name != "PostgresStore":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from aguila.store.postgres.store import PostgresStore  # few programs need its fifteen modules

    return PostgresStore
