"""Quotas of storage: what a scope, all scopes and one address without credentials may store."""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec

from aguila.errors import QuotaExceeded
from aguila.server.errors import Rejected
from aguila.server.limits import Limits
from aguila.store import Quotas

_ANONYMOUS: Final = {
    "threads_per_scope": "anonymous_threads",
    "files_per_scope": "anonymous_files",
    "bytes_per_scope": "anonymous_bytes",
}
"""The quotas of the scope that all callers without credentials share."""

_HOUR: Final = 3600.0
_MAX_ADDRESSES: Final = 100_000


class StorageQuotas:
    """The quotas of an app. Its store compares them with its usage."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        members = {name: getattr(limits, name) for name in Quotas.__struct_fields__}
        anonymous = {
            name: min((most for most in (members[name], getattr(limits, other)) if most is not None), default=None)
            for name, other in _ANONYMOUS.items()
        }
        self._of_scope = _quotas(members)
        self._of_anonymous = _quotas({**members, **anonymous})

    def find(self, principal: Any) -> Quotas | None:
        """Return the quotas for a caller; None if there are none. A caller without credentials has no principal."""
        return self._of_anonymous if principal is None else self._of_scope

    def refusal(self, error: QuotaExceeded, principal: Any) -> Rejected:
        """Return the response (507) to a run or an upload that a store has refused."""
        name, limits = error.quota, self._limits
        other = _ANONYMOUS.get(name)
        if principal is None and other is not None:
            most = getattr(limits, other)
            if most is not None and (getattr(limits, name) is None or most <= getattr(limits, name)):
                name = other
        holder = "the server" if error.quota in ("threads", "files", "bytes") else "this scope"
        kind = error.quota.partition("_")[0]
        message = (
            f"{holder} stores as many {kind} as Limits.{name} allows ({getattr(limits, name)}); "
            "delete threads or files, let App(retention=...) remove old ones, or raise the limit"
        )
        return Rejected(507, "quota_exceeded", message)


def _quotas(members: dict[str, int | None]) -> Quotas | None:
    return None if all(most is None for most in members.values()) else Quotas(**members)


class _Hour(msgspec.Struct):
    """The bytes and threads that an address has sent since ``began``."""

    began: float
    bytes: int = 0
    threads: int = 0


class PeerQuotas:
    """Counts the bytes and new threads that each address without credentials has sent within an hour.

    It counts in this process. Loopback addresses are not counted, see ``PeerRuns``.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._hours: dict[str, _Hour] = {}  # the one that began first comes first

    def refusal(self, address: str) -> Rejected | None:
        """Return why an address may not start a run or upload a file now, or None."""
        hour = self._find(address)
        if hour is None:
            return None
        for name, used in (("bytes_per_peer", hour.bytes), ("threads_per_peer", hour.threads)):
            most = getattr(self._limits, name)
            if most is not None and used >= most:
                seconds = max(1, int(hour.began + _HOUR - time.monotonic()))
                kind = name.partition("_")[0]
                message = (
                    f"this address has sent as many {kind} within an hour as Limits.{name} allows ({most}); "
                    f"try again in {seconds} seconds"
                )
                return Rejected(429, "quota_exceeded", message, headers={"retry-after": str(seconds)})
        return None

    def count(self, address: str, *, size: int, threads: int = 0) -> None:
        """Count a request before it is stored, so that parallel requests cannot exceed a quota."""
        hour = self._find(address)
        if hour is None:
            hour = self._hours[address] = _Hour(time.monotonic())
            if len(self._hours) > _MAX_ADDRESSES:
                del self._hours[next(iter(self._hours))]
        hour.bytes += size
        hour.threads += threads

    def give_back(self, address: str, *, size: int = 0, threads: int = 0) -> None:
        """Subtract bytes and threads that a request reserved and did not store."""
        hour = self._find(address)
        if hour is not None:  # otherwise its hour has ended
            hour.bytes = max(0, hour.bytes - size)
            hour.threads = max(0, hour.threads - threads)

    def _find(self, address: str) -> _Hour | None:
        hour = self._hours.get(address)
        if hour is not None and hour.began + _HOUR <= time.monotonic():
            del self._hours[address]
            return None
        return hour
