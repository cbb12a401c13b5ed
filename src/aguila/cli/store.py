"""``aguila store``: check, count, copy and compact a store."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from aguila.cli.output.transcript import escape_controls
from aguila.cli.threads import CannotUse, Outcome, check_exists, opened, run
from aguila.store.archive import ThreadArchive
from aguila.store.copying import Restored, copy_store
from aguila.store.sqlite.check import check_file, compact_file, count_content


def check(path: Path, *, as_json: bool) -> int:
    """Print everything that breaks the contract of a store; return how much."""
    check_exists(path)
    count = 0
    for damage in check_file(path):
        count += 1
        if as_json:
            sys.stdout.write(msgspec.json.encode(damage).decode() + "\n")
        else:
            where = f"thread {damage.thread_id} (scope {damage.scope!r}): " if damage.thread_id else ""
            sys.stdout.write(escape_controls(where + damage.message) + "\n")
    return count


def stats(path: Path, *, as_json: bool) -> None:
    """Print the sizes and counts of a store."""
    check_exists(path)
    found = count_content(path)
    if as_json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
        return
    for name, value in found.items():
        sys.stdout.write(f"{name.replace('_', ' '):22}{value:>16,}\n")


def copy(source: Path, target: Path, *, replace: bool) -> Outcome:
    """Copy a store to another one, with a progress bar on standard error."""
    check_exists(source)
    if source.resolve() == target.resolve():
        raise CannotUse(f"{source} and {target} are the same store; name another file to copy to")
    outcome = Outcome()
    columns = (TextColumn("threads"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("threads", total=None)

        def count_thread(archive: ThreadArchive, restored: Restored) -> None:
            outcome.add(archive, restored)
            progress.advance(task)

        async def copy_all() -> None:
            async with opened(source) as one, opened(target, create=True) as other:
                await copy_store(
                    one,
                    other,
                    replace=replace,
                    on_count=lambda count: progress.update(task, total=count),
                    on_thread=count_thread,
                )

        run(copy_all())
    return outcome


def compact(path: Path) -> tuple[int, int]:
    """Compact a store; return its bytes before and after."""
    check_exists(path)
    before = path.stat().st_size
    compact_file(path)
    return before, path.stat().st_size
