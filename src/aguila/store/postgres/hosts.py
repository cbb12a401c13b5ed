"""Connect to the first of several hosts that accepts writes.

libpq tries hosts one after the other, each until its timeout. Behind a host that has lost power, the promoted standby
would be tried too late. So the next host is tried, too, when one has not answered for ``HEAD_START``.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping, Sequence
from threading import Lock, Thread
from typing import Any, Protocol, TypeVar

HEAD_START = 0.3
"""Seconds after which the next host is tried, too, while the ones before have not answered."""

Settings = Mapping[str, Any]
"""Connection parameters of libpq."""


class Closable(Protocol):
    """A connection."""

    def close(self) -> None:
        """Close it."""
        ...


C = TypeVar("C", bound=Closable)


def split_hosts(settings: Settings) -> list[Settings]:
    """Return the parameters of each host that they name; the parameters themselves if they name at most one."""
    lists = {name: str(settings[name]).split(",") for name in ("host", "hostaddr", "port") if settings.get(name)}
    count = max((len(lists[name]) for name in ("host", "hostaddr") if name in lists), default=1)
    if count < 2 or any(len(values) not in (1, count) for values in lists.values()):
        return [settings]  # libpq explains what is wrong
    return [
        {**settings, **{name: values[n if len(values) > 1 else 0] for name, values in lists.items()}}
        for n in range(count)
    ]


def connect_to_first(
    hosts: Sequence[Settings], connect: Callable[[Settings], C], is_final: Callable[[Exception], bool]
) -> tuple[int, C]:
    """Return the index of the first host that accepts a connection, and the connection.

    Hosts are tried in their order. The next one is tried when one fails, or has not answered for ``HEAD_START``.
    Raises an error that is final, if there is one, or the last error.
    """
    outcomes: queue.SimpleQueue[tuple[int, C | Exception]] = queue.SimpleQueue()
    lock = Lock()
    is_decided = False

    def attempt(number: int) -> None:
        try:
            outcome: C | Exception = connect(hosts[number])
        except Exception as error:  # noqa: BLE001 - it is raised to the caller if no host works
            outcome = error
        with lock:
            if not is_decided:
                outcomes.put((number, outcome))
            elif not isinstance(outcome, Exception):
                outcome.close()

    errors: list[Exception] = []
    started = 0
    try:
        while len(errors) < len(hosts):
            if started < len(hosts):
                Thread(target=attempt, args=(started,), name="aguila-store-connect", daemon=True).start()
                started += 1
            try:
                number, outcome = outcomes.get(timeout=HEAD_START if started < len(hosts) else None)
            except queue.Empty:
                continue
            if not isinstance(outcome, Exception):
                return number, outcome
            errors.append(outcome)
        raise next(filter(is_final, errors), errors[-1])
    finally:
        with lock:
            is_decided = True
        while not outcomes.empty():
            _, late = outcomes.get()
            if not isinstance(late, Exception):
                late.close()
