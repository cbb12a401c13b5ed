"""``aguila runs``: list the runs of a store, and cancel those in progress, also those of running servers."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from aguila.cli.output.transcript import escape_controls
from aguila.cli.threads import CannotUse, format_time, iterate_summaries, opened, run
from aguila.errors import NotFound
from aguila.store import Cancel, RunKey, RunRecord, Store, Want
from aguila.testing.plurals import counted

_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(text: str) -> float:
    """Return the seconds of a duration such as ``90``, ``15m`` or ``1.5h``. Raises ``CannotUse``."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd]?)", text)
    if found is None:
        raise CannotUse(f"--older-than is {text!r}; use a number and s, m, h or d, such as 90s, 15m or 1h")
    return float(found[1]) * _SECONDS[found[2]]


def list_runs(location: str, scope: str | None, older_than: str | None, *, running: bool, as_json: bool) -> None:
    """Print a line for each run."""
    seconds = 0.0 if older_than is None else parse_duration(older_than)
    describe = _run_json if as_json else _run_line

    async def print_all() -> None:
        async with opened(location) as store:
            async for record in _runs(store, scope, running=running):
                if time.time() - record.started_at >= seconds:
                    sys.stdout.write(describe(record) + "\n")

    run(print_all())


async def _runs(store: Store, scope: str | None, *, running: bool) -> AsyncIterator[RunRecord]:
    """Iterate over the runs in progress; or over all runs, thread by thread."""
    if running:
        for record in await store.open_runs(scope):
            yield record
        return
    async for one, summary in iterate_summaries(store, scope):
        try:
            thread = await store.thread(one, summary.thread_id, Want(runs=True))
        except NotFound:
            continue  # the thread was deleted meanwhile
        for record in thread.runs:
            yield record


def _status(record: RunRecord) -> str:
    if record.outcome is not None:
        return record.outcome
    return "cancelling" if record.cancel_requested else "running"


def _run_line(record: RunRecord) -> str:
    agent = [] if record.agent == "default" else [f"agent {record.agent}"]
    seconds = (record.ended_at or time.time()) - record.started_at
    events = counted(record.last - record.first + 1, "event")
    parts = [format_time(record.started_at), record.run_id, _status(record), f"{seconds:.0f} s", events]
    return escape_controls("  ".join([*parts, f"thread {record.thread_id}", f"scope {record.scope!r}", *agent]))


def _run_json(record: RunRecord) -> str:
    names = ("scope", "thread_id", "run_id", "agent", "started_at", "ended_at", "first", "last")
    fields = {name: getattr(record, name) for name in names}
    return msgspec.json.encode({**fields, "status": _status(record)}).decode()


def cancel(location: str, scope: str | None, thread_id: str | None, wanted: Sequence[str]) -> int:
    """Ask the servers of runs to cancel them; return how many. Raise ``CannotUse`` if one is not in progress."""

    async def cancel_all() -> int:
        async with opened(location) as store:
            running = await store.open_runs(scope)
            found = [_find(running, thread_id, run_id) for run_id in dict.fromkeys(wanted)]
            for key in found:
                await store.tell(key, Cancel())
            return len(found)

    return run(cancel_all())


def _find(running: Sequence[RunRecord], thread_id: str | None, run_id: str) -> RunKey:
    """Return the run in progress with this id. Raise ``CannotUse`` if there is none, or if there are several."""
    found = [one.key for one in running if one.run_id == run_id and thread_id in (None, one.thread_id)]
    if not found:
        raise CannotUse(f"no run {run_id!r} is in progress; aguila runs list --running shows those that are")
    if len(found) > 1:
        places = ", ".join(f"{key.thread_id!r} (scope {key.scope!r})" for key in found)
        raise CannotUse(f"run {run_id!r} is in progress on the threads {places}; name one with --thread and --scope")
    return found[0]
