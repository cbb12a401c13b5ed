"""The options of ``aguila threads``, ``aguila runs``, ``aguila scopes`` and ``aguila store``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from aguila.cli.options.help_texts import add_command, make_group
from aguila.testing.plurals import counted


def _default_store() -> str:
    """Return the store that ``aguila serve`` uses without ``--store``."""
    from aguila.cli.store_locations import DEFAULT_STORE, store_from_environment

    try:
        return store_from_environment(os.environ) or DEFAULT_STORE
    except ValueError as error:
        sys.stderr.write(f"aguila: {error}\n")
        raise typer.Exit(2) from None


_HELP = "Path or URL of the store. Default: that of AGUILA_STORE or AGUILA_STORE_FILE, or aguila.db."
StoreOption = Annotated[
    str, typer.Option("--store", metavar="STORE", help=_HELP, default_factory=_default_store, show_default=False)
]
_Scope = Annotated[str | None, typer.Option("--scope", metavar="SCOPE", help="Only this scope. Default: all scopes.")]
JSONOption = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON lines.")]
_Thread = Annotated[str, typer.Argument(metavar="THREAD", help="The id of the thread.")]
_Replace = Annotated[
    bool,
    typer.Option(
        "--replace", metavar="", help="Replace threads that differ. Default: leave them, and exit with status 1."
    ),
]


def register(commands: typer.Typer) -> None:
    """Add the command groups to the application."""
    threads = make_group("List, show, export, import and delete the threads of a store.", no_args_is_help=True)
    functions: dict[str, Callable[..., Any]] = {
        "list": list_threads,
        "show": show,
        "export": export_threads,
        "import": import_threads,
        "delete": delete,
    }
    for name, function in functions.items():
        add_command(threads, function, name)
    commands.add_typer(threads, name="threads")
    runs = make_group("List the runs of a store, and cancel those in progress.", no_args_is_help=True)
    for name, function in {"list": list_runs, "cancel": cancel_runs}.items():
        add_command(runs, function, name)
    commands.add_typer(runs, name="runs")
    scopes = make_group("List, count, export and delete what each user of a server has.", no_args_is_help=True)
    functions = {"list": list_scopes, "usage": show_usage, "export": export_scope, "delete": delete_scope}
    for name, function in functions.items():
        add_command(scopes, function, name)
    commands.add_typer(scopes, name="scopes")
    store = make_group("Check, count, copy, compact and migrate a store.", no_args_is_help=True)
    for function in (check, stats, copy, compact, migrate):
        add_command(store, function)
    commands.add_typer(store, name="store")


def list_threads(store: StoreOption, scope: _Scope = None, json: JSONOption = False) -> None:
    """List threads, in each scope the last updated first.

    Exit status: 0 listed; 2 the store cannot be read.
    """
    from aguila.cli import threads as implementation

    with implementation.reports_errors("threads list"):
        implementation.list_threads(store, scope, as_json=json)


def show(thread: _Thread, store: StoreOption, scope: _Scope = None, json: JSONOption = False) -> None:
    """Show the title, metadata, runs, interrupts and files of a thread. With --json, print its events.

    Exit status: 0 shown; 2 there is no such thread, or the store cannot be read.
    """
    from aguila.cli import threads as implementation

    with implementation.reports_errors("threads show"):
        implementation.show(store, scope, thread, as_json=json)


def export_threads(
    store: StoreOption,
    thread: Annotated[list[str] | None, typer.Argument(metavar="THREAD", help="Thread ids. Default: all.")] = None,
    scope: _Scope = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="File to write; - is standard output.")
    ] = Path("-"),
    force: Annotated[bool, typer.Option("--force", metavar="", help="Replace an existing file.")] = False,
) -> None:
    """Export threads as JSON lines, with their requests, events, interrupts, sessions and files.

    The export is a snapshot of one moment. A run in progress continues in the store; in the export it ends with
    run_lost.

    Exit status: 0 exported; 2 there is no such thread, or a file cannot be read or written.
    """
    from aguila.cli import threads as implementation

    with implementation.reports_errors("threads export"):
        count = implementation.export_threads(store, scope, thread or [], output, force=force)
    sys.stderr.write(f"{counted(count, 'thread')} exported\n")


def import_threads(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An export; - is standard input.")],
    store: StoreOption,
    replace: _Replace = False,
) -> None:
    """Import exported threads, with their scopes, sequence numbers and times.

    The store is created if it does not exist. Threads that it already has unchanged are skipped, so an import can
    be repeated.

    Exit status: 0 imported; 1 the store has other threads with the same ids; 2 a file cannot be read or written.
    """
    from aguila.cli import threads as implementation

    with implementation.reports_errors("threads import"):
        outcome = implementation.import_threads(store, file, replace=replace)
    outcome.report()


def delete(
    thread: Annotated[list[str], typer.Argument(metavar="THREAD", help="Thread ids.")],
    store: StoreOption,
    scope: _Scope = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", metavar="", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete threads with their runs and files.

    Exit status: 0 deleted; 1 not confirmed; 2 there is no such thread, or it has a run in progress.
    """
    from aguila.cli import threads as implementation

    with implementation.reports_errors("threads delete"):
        found = implementation.find_all(store, scope, thread)
        if not yes:
            typer.confirm(f"Delete {counted(len(found), 'thread')} of {_describe(store)}?", abort=True, err=True)
        implementation.delete(store, found)
    sys.stderr.write(f"{counted(len(found), 'thread')} deleted\n")


def list_runs(
    store: StoreOption,
    running: Annotated[
        bool, typer.Option("--running", metavar="", help="Only runs in progress, oldest first.")
    ] = False,
    scope: _Scope = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="TIME", help="Only runs that began longer ago, such as 90s, 15m, 1h or 2d."
        ),
    ] = None,
    json: JSONOption = False,
) -> None:
    """List runs: those in progress, or those of each thread.

    Exit status: 0 listed; 2 the store cannot be read.
    """
    from aguila.cli import runs as implementation
    from aguila.cli.threads import reports_errors

    with reports_errors("runs list"):
        implementation.list_runs(store, scope, older_than, running=running, as_json=json)


def cancel_runs(
    run: Annotated[list[str], typer.Argument(metavar="RUN", help="Ids of runs in progress.")],
    store: StoreOption,
    scope: _Scope = None,
    thread: Annotated[
        str | None, typer.Option("--thread", metavar="THREAD", help="Only this thread. Default: all threads.")
    ] = None,
) -> None:
    """Cancel runs in progress.

    The server of each run is asked to cancel it, and may take a few seconds: the agent may clean up. If that server is
    gone, another one that uses the store ends the run.

    Exit status: 0 asked; 2 a run is not in progress, or several have its id, so none is cancelled; 2 also if the store
    cannot be used.
    """
    from aguila.cli import runs as implementation
    from aguila.cli.threads import reports_errors

    with reports_errors("runs cancel"):
        count = implementation.cancel(store, scope, thread, run)
    sys.stderr.write(
        f"asked for the end of {counted(count, 'run')}; aguila runs list --running shows what still runs\n"
    )


_ScopeArgument = Annotated[str, typer.Argument(metavar="SCOPE", help="The scope, as aguila scopes list prints it.")]


def list_scopes(store: StoreOption, json: JSONOption = False) -> None:
    """List the scopes of a store, with the threads, files and bytes of each.

    A scope is what authenticate of the server returned for a user; without it, a scope belongs to one browser.

    Exit status: 0 listed; 2 the store cannot be read.
    """
    from aguila.cli import scopes as implementation
    from aguila.cli.threads import reports_errors

    with reports_errors("scopes list"):
        implementation.show_scopes(store, as_json=json)


def show_usage(store: StoreOption, scope: _Scope = None, json: JSONOption = False) -> None:
    """Count the threads, runs, events, bytes and files of each scope, the one with the most bytes first.

    Exit status: 0 counted; 2 the store cannot be read.
    """
    from aguila.cli import scopes as implementation
    from aguila.cli.threads import reports_errors

    with reports_errors("scopes usage"):
        implementation.show_usage(store, scope, as_json=json)


def export_scope(
    scope: _ScopeArgument,
    store: StoreOption,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="File to write; - is standard output.")
    ] = Path("-"),
    force: Annotated[bool, typer.Option("--force", metavar="", help="Replace an existing file.")] = False,
) -> None:
    """Export everything that a scope has as JSON lines: threads, and files that belong to no thread.

    The export is a snapshot of one moment. aguila threads import reads it.

    Exit status: 0 exported; 2 the store has nothing of the scope, or a file cannot be read or written.
    """
    from aguila.cli import scopes as implementation
    from aguila.cli.threads import reports_errors

    with reports_errors("scopes export"):
        usage = implementation.export(store, scope, output, force=force).usage
    sys.stderr.write(f"{counted(usage.threads, 'thread')} and {counted(usage.files, 'file')} exported\n")


def delete_scope(
    scope: _ScopeArgument,
    store: StoreOption,
    yes: Annotated[bool, typer.Option("--yes", "-y", metavar="", help="Do not ask for confirmation.")] = False,
) -> None:
    """Erase everything that a scope has: threads with their runs, and all its files.

    Exit status: 0 erased; 1 not confirmed; 2 the store has nothing of the scope, or the scope has a run in progress.
    """
    from aguila.cli import scopes as implementation
    from aguila.cli.threads import reports_errors

    with reports_errors("scopes delete"):
        usage = implementation.find_scope(store, scope).usage
        what = f"{counted(usage.threads, 'thread')} and {counted(usage.files, 'file')}"
        if not yes:
            typer.confirm(f"Delete {what} of scope {scope!r} of {_describe(store)}?", abort=True, err=True)
        implementation.delete(store, scope)
    sys.stderr.write(f"{what} deleted\n")


_Location = Annotated[
    str, typer.Argument(metavar="STORE", help=_HELP, default_factory=_default_store, show_default=False)
]


def check(
    store: _Location,
    json: JSONOption = False,
    recount: Annotated[
        bool,
        typer.Option(
            "--recount", metavar="", help="First count again what each scope stores. Quotas use these counts."
        ),
    ] = False,
) -> None:
    """Verify every invariant of a store, and report what is broken.

    A server may use the store meanwhile.

    Exit status: 0 nothing is broken; 1 something is; 2 the store cannot be read.
    """
    from aguila.cli import store as implementation
    from aguila.cli.threads import reports_errors

    with reports_errors("store check"):
        count = implementation.check(store, as_json=json, repairs_usage=recount)
    sys.stderr.write(
        f"{_describe(store)}: {'nothing is broken' if count == 0 else counted(count, 'problem') + ' found'}\n"
    )
    raise typer.Exit(1 if count else 0)


def stats(store: _Location, json: JSONOption = False) -> None:
    """Print the size of a store and the number of its threads, runs, events and files.

    Exit status: 0 printed; 2 the store cannot be read.
    """
    from aguila.cli import store as implementation
    from aguila.cli.threads import reports_errors

    with reports_errors("store stats"):
        implementation.stats(store, as_json=json)


def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="Path or URL of the store to copy.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Path or URL to copy to. Created if it does not exist.")],
    replace: _Replace = False,
) -> None:
    """Copy all threads and files of a store to another store.

    The copy is a snapshot of one moment. A run in progress continues in FROM; in the copy it ends with run_lost. If the
    copy was interrupted, start it again: threads that are the same in both stores are skipped.

    FROM may be an SQLite file of schema 17, the one before this Aguila. It is not changed.

    Exit status: 0 copied; 1 TO has other threads with the same ids; 2 a store cannot be read or written.
    """
    from aguila.cli import store as implementation
    from aguila.cli.threads import reports_errors

    with reports_errors("store copy"):
        outcome = implementation.copy(source, target, replace=replace)
    outcome.report()


def compact(store: _Location) -> None:
    """Return unused space of a store to the file system.

    The file is rewritten, which needs free space of the size of the file. Writes of a running server wait meanwhile,
    and fail after a few seconds: compact a large store while its server is stopped.

    Exit status: 0 compacted; 2 the store cannot be read or written.
    """
    from aguila.cli import store as implementation
    from aguila.cli.threads import reports_errors

    with reports_errors("store compact"):
        before, after = implementation.compact(store)
    sys.stderr.write(f"{_describe(store)}: {before:,} bytes before, {after:,} after\n")


def migrate(store: _Location) -> None:
    """Bring the schema of a store up to date. A server does this when it starts.

    A running server of an older version continues if it can use the new schema. If not, its calls fail with an error
    that says so.

    Exit status: 0 up to date; 2 the store cannot be read or written, or needs a newer Aguila.
    """
    from aguila.cli import store as implementation
    from aguila.cli.threads import reports_errors

    with reports_errors("store migrate"):
        before, after = implementation.migrate(store)
    what = f"schema {after} already" if before == after else f"schema {before} before, {after} now"
    sys.stderr.write(f"{_describe(store)}: {what}\n")


def _describe(store: str) -> str:
    from aguila.store.locations import describe_location  # importing the stores would slow down every command

    return describe_location(store)
