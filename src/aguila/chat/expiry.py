"""Read the expiry of an interrupt (INT-4, INT-9)."""

from __future__ import annotations

from datetime import UTC, datetime


def read_expiry(expires_at: str) -> datetime:
    """Read an ISO 8601 time; without an offset it is UTC. Raises ``ValueError``, with an example, for anything else."""
    try:
        time = datetime.fromisoformat(expires_at.strip())
    except (ValueError, AttributeError, TypeError):
        message = f"expires_at is an ISO 8601 time such as '2030-01-31T12:00:00Z', not {expires_at!r}"
        raise ValueError(message) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def is_expired(expires_at: str | None, now: datetime) -> bool:
    """Return whether an interrupt can no longer be answered. A value that is not a time never expires (INT-4)."""
    if expires_at is None:
        return False
    try:
        return read_expiry(expires_at) <= now
    except (ValueError, OverflowError):
        return False
