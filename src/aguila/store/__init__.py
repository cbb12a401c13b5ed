"""Stores: the event log and the files behind durable threads. ``base`` is the contract."""

from aguila.store.base import (
    DEFAULT_AGENT,
    Batch,
    Blob,
    CancelRequest,
    InterruptRecord,
    InterruptStatus,
    Lease,
    MetadataFilter,
    Outcome,
    Retention,
    RunEnd,
    RunProjection,
    RunRecord,
    Store,
    StoredProjection,
    ThreadSummary,
    ThreadUpdate,
)
from aguila.store.memory.store import MemoryStore
from aguila.store.postgres.store import PostgresStore
from aguila.store.sqlite.store import SQLiteStore

__all__ = [
    "DEFAULT_AGENT",
    "Batch",
    "Blob",
    "CancelRequest",
    "InterruptRecord",
    "InterruptStatus",
    "Lease",
    "MemoryStore",
    "MetadataFilter",
    "Outcome",
    "PostgresStore",
    "Retention",
    "RunEnd",
    "RunProjection",
    "RunRecord",
    "SQLiteStore",
    "Store",
    "StoredProjection",
    "ThreadSummary",
    "ThreadUpdate",
]
