"""The errors with which every store refuses a call, so that all stores explain a refusal in the same words."""

from __future__ import annotations

from aguila.errors import (
    AgentMismatch,
    InterruptTaken,
    NotFound,
    QuotaExceeded,
    RunExists,
    StaleLease,
    StoreUnavailable,
    ThreadBusy,
    ThreadExists,
    ThreadMoved,
    TooManyRuns,
)
from aguila.store.records import Lease, RunRecord


def not_open() -> StoreUnavailable:
    """Make the error for a store that is not open."""
    return StoreUnavailable("the store is not open; call open() first")


def no_thread(thread_id: str) -> NotFound:
    """Make the error for a thread that the scope does not have."""
    return NotFound(f"no thread {thread_id!r}")


def no_run(thread_id: str, run_id: str) -> NotFound:
    """Make the error for a run that the thread does not have."""
    return NotFound(f"no run {run_id!r} on thread {thread_id!r}")


def no_blob(blob_id: str) -> NotFound:
    """Make the error for a file that the scope does not have."""
    return NotFound(f"no file {blob_id!r}")


def agent_mismatch(thread_id: str, agent: str) -> AgentMismatch:
    """Make the error for a thread that belongs to another agent."""
    return AgentMismatch(f"thread {thread_id!r} belongs to agent {agent!r}; use another thread id", agent=agent)


def run_exists(run: RunRecord) -> RunExists:
    """Make the error for a run id that was used before (ENV-11)."""
    return RunExists(f"run {run.run_id!r} exists on thread {run.thread_id!r}; use a new run id", run=run)


def thread_busy(run: RunRecord) -> ThreadBusy:
    """Make the error for a thread that has an open run."""
    return ThreadBusy(f"thread {run.thread_id!r} is busy with run {run.run_id!r}; wait for its end", run=run)


def thread_exists(thread_id: str) -> ThreadExists:
    """Make the error for a thread to restore that exists."""
    return ThreadExists(f"thread {thread_id!r} exists; delete it, or replace it")


def too_many_runs(running: int) -> TooManyRuns:
    """Make the error for a scope that has as many open runs as it may have."""
    return TooManyRuns(f"{running} runs of this scope are open, which is the maximum; wait for one to end")


def quota_exceeded(quota: str) -> QuotaExceeded:
    """Make the error for a scope or a store that is full."""
    holder = "scope" if quota.endswith("_per_scope") else "store"
    return QuotaExceeded(f"the {holder} holds as much as the quota {quota} allows; remove something", quota=quota)


def thread_moved(interrupt_id: str) -> ThreadMoved:
    """Make the error for an interrupt that was raised after the caller planned its run (INT-15)."""
    return ThreadMoved(f"interrupt {interrupt_id!r} was raised after the run was planned; plan the run again")


def thread_continued(thread_id: str) -> ThreadMoved:
    """Make the error for a log that has changed since the caller planned its run."""
    return ThreadMoved(f"thread {thread_id!r} has changed since the run was planned; plan the run again")


def interrupt_not_open(interrupt_id: str) -> InterruptTaken:
    """Make the error for an interrupt that a run cannot claim."""
    return InterruptTaken(f"interrupt {interrupt_id!r} is not open", interrupt_id=interrupt_id)


def interrupt_not_claimed(interrupt_id: str, run_id: str) -> InterruptTaken:
    """Make the error for an interrupt that a run cannot settle."""
    return InterruptTaken(f"run {run_id!r} has not claimed interrupt {interrupt_id!r}", interrupt_id=interrupt_id)


def stale_lease(lease: Lease) -> StaleLease:
    """Make the error for a lease whose run is closed or was taken over."""
    return StaleLease(f"run {lease.run_id!r} is closed or has another owner; {lease.owner!r} cannot write to it")
