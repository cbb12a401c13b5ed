"""Admission of runs: how many a process, a scope and an address may have at once, and what they may store."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import msgspec

from aguila.errors import QuotaExceeded
from aguila.server.config.errors import Rejected, draining_error
from aguila.server.config.limits import Limits, Quota
from aguila.server.runs.start_request import StartRequest
from aguila.store import Quotas

_HOUR: Final = 3600.0
_MAX_ADDRESSES: Final = 100_000
_KINDS: Final = ("threads", "files", "bytes")


class Admission:
    """Counts the admitted runs, from before they begin until they have ended.

    Loopback addresses have no limits: they are this machine, or a proxy that does not tell its clients apart.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._scopes: dict[str, int] = {}
        self._addresses: dict[str, int] = {}
        self._empty: asyncio.Future[None] | None = None
        self.total = 0
        self.hourly = HourlyQuotas(limits.per_address)
        self.draining: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when no new runs are admitted any more."""

    def admit(self, request: StartRequest) -> Place:
        """Count the run of a request, before it begins: several requests may start at once. Raises ``Rejected``."""
        limits, scope, address = self._limits, request.scope, request.address
        if self.draining.done():
            raise draining_error()
        if address is not None and self._addresses.get(address, 0) >= limits.runs_per_address:
            raise _too_many_runs("address", "runs_per_address", limits.runs_per_address)
        place = Place(scope, address, len(request.body) if request.is_stored else 0)
        if address is not None and request.is_stored and (hourly := self.hourly.refusal(address)) is not None:
            raise hourly
        if self._scopes.get(scope, 0) >= request.limits.runs_per_scope:
            raise too_many_of_scope(request.limits)
        if self.total >= limits.runs:
            raise _too_many_runs("server", "runs", limits.runs)
        self.total += 1
        self._scopes[scope] = self._scopes.get(scope, 0) + 1
        if address is not None:
            self._addresses[address] = self._addresses.get(address, 0) + 1
            if place.size:
                self.hourly.count(address, size=place.size, threads=1)
        return place

    def settle(self, place: Place) -> None:
        """Give back what a start has reserved and not used: the place, unless a run keeps it."""
        if place.address is not None and place.size:
            size, threads = 0 if place.is_kept else place.size, 0 if place.is_new_thread else 1
            self.hourly.give_back(place.address, size=size, threads=threads)
        if not place.is_kept:
            self.release(place)

    def release(self, place: Place, *, is_read: bool = True) -> None:
        """Stop counting a run that has ended, or did not begin. Its scope and address count until it ``is_read``."""
        if not place.has_ended:
            place.has_ended = True
            self.total -= 1
            if not self.total and self._empty is not None:
                self.stop_waiting()
        for counts, key in ((self._scopes, place.scope), (self._addresses, place.address)) if is_read else ():
            if key is not None:
                counts[key] -= 1
                if not counts[key]:
                    del counts[key]

    async def wait_until_empty(self, seconds: float) -> None:
        """Wait until no admitted run is left, at most this long."""
        if self.total:
            self._empty = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._empty], timeout=seconds)

    def stop_waiting(self) -> None:
        """End a ``wait_until_empty`` early."""
        if self._empty is not None and not self._empty.done():
            self._empty.set_result(None)


class Place(msgspec.Struct, eq=False):
    """The place of one run. A request has it until its run begins, then the run until its end."""

    scope: str
    address: str | None
    size: int
    """The bytes that were counted for the address."""
    is_kept: bool = False
    """Whether a run has it."""
    is_new_thread: bool = False
    has_ended: bool = False


def too_many_of_scope(limits: Limits) -> Rejected:
    """Return the refusal of a run because its scope has as many as these limits allow."""
    return _too_many_runs("scope", "runs_per_scope", limits.runs_per_scope)


def _too_many_runs(holder: str, name: str, most: int) -> Rejected:
    message = (
        f"this {holder} has as many runs in progress or waiting as Limits.{name} allows ({most}); "
        "wait until one has ended, then try again"
    )
    return Rejected(429, "too_many_runs", message, headers={"retry-after": "1"})


def anonymous_quota(limits: Limits) -> Quota:
    """Return the quota of the scope that all callers without credentials share."""
    first, second = limits.per_scope, limits.anonymous
    return Quota(**{kind: _least(getattr(first, kind), getattr(second, kind)) for kind in _KINDS})


def storage_quotas(scope: Quota, total: Quota) -> Quotas | None:
    """Return what a store compares with its usage; None if there is no limit."""
    members = {f"{kind}_per_scope": getattr(scope, kind) for kind in _KINDS}
    members |= {kind: getattr(total, kind) for kind in _KINDS}
    return None if all(most is None for most in members.values()) else Quotas(**members)


def refuse_storage(error: QuotaExceeded, quotas: Quotas | None, principal: Any, limits: Limits) -> Rejected:
    """Return the response (507) to a run or an upload that a store has refused, for a caller with these quotas."""
    kind, _, is_of_scope = error.quota.partition("_")
    most = getattr(quotas, error.quota)
    holder, name = ("this scope", "per_scope") if is_of_scope else ("the server", "total")
    if is_of_scope and principal is None and most == getattr(limits.anonymous, kind):
        name = "anonymous"
    message = (
        f"{holder} stores as many {kind} as Limits.{name}.{kind} allows ({most}); "
        "delete threads or files, let App(retention=...) remove old ones, or raise the limit"
    )
    return Rejected(507, "quota_exceeded", message)


def _least(first: int | None, second: int | None) -> int | None:
    return min((most for most in (first, second) if most is not None), default=None)


class _Hour(msgspec.Struct):
    """What an address has sent since ``began``."""

    began: float
    bytes: int = 0
    threads: int = 0
    files: int = 0


class HourlyQuotas:
    """Counts the bytes, new threads and files that each address without credentials has sent within an hour.

    It counts in this process. Loopback addresses are not counted, see ``Admission``.
    """

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        self._hours: dict[str, _Hour] = {}  # the one that began first comes first

    def refusal(self, address: str, *, own_files: int = 0) -> Rejected | None:
        """Return why an address may not start a run or upload a file now, or None.

        ``own_files`` are files of the request that were counted before.
        """
        hour = self._find(address)
        if hour is None:
            return None
        for kind in _KINDS:
            most = getattr(self._quota, kind)
            used = hour.files - own_files if kind == "files" else getattr(hour, kind)
            if most is not None and used >= most:
                seconds = max(1, int(hour.began + _HOUR - time.monotonic()))
                message = (
                    f"this address has sent as many {kind} within an hour as Limits.per_address.{kind} allows "
                    f"({most}); try again in {seconds} seconds"
                )
                return Rejected(429, "quota_exceeded", message, headers={"retry-after": str(seconds)})
        return None

    def count(self, address: str, *, size: int, threads: int = 0, files: int = 0) -> None:
        """Count a request before it is stored, so that parallel requests cannot exceed a quota."""
        hour = self._find(address)
        if hour is None:
            hour = self._hours[address] = _Hour(time.monotonic())
            if len(self._hours) > _MAX_ADDRESSES:
                del self._hours[next(iter(self._hours))]
        hour.bytes += size
        hour.threads += threads
        hour.files += files

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
