"""Layer: cli. ``aguila serve`` and its options.

Above: ``commands``. Below: ``serve``, imported when it is used. An option that says what an ``App`` says itself is
handed on only if it was given, and refused beside a ready App.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

OF_AN_APP: Final = {
    "store": "store",
    "name": "name",
    "history": "history",
    "busy": "busy",
    "on_disconnect": "on_disconnect",
    "disconnect_grace": "disconnect_grace",
    "heartbeat": "heartbeat",
    "lease": "lease",
    "drain": "drain",
    "cancel_grace": "cancel_grace",
    "allowed_host": "allowed_hosts",
    "cors_origin": "cors_origins",
    "header": "headers_allowed",
    "allow_system_messages": "allow_system_messages",
    "echo_input": "echo_input",
    "max_body": "limits.body",
    "max_upload": "limits.upload",
    "max_runs": "limits.runs",
    "max_runs_per_scope": "limits.runs_per_scope",
    "keep_seconds": "retention.max_age",
    "keep_threads": "retention.max_threads",
    "keep_bytes": "retention.max_bytes",
    "debug": "debug",
}
"""Options, and what of an ``App`` they say."""


def serve(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(help="The agent, or an App: module:name, found from the current directory.")
    ] = "aguila.cli.demo:agent",
    host: Annotated[str, typer.Option(help="Where to listen. Others than this machine's own are open to others.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="0 takes any that is free.", min=0, max=65535)] = 8000,
    store: Annotated[Path, typer.Option(help="The SQLite file that keeps the threads, or :memory:.")] = Path(
        "aguila.db"
    ),
    workers: Annotated[int, typer.Option(help="Processes, all on the same file.", min=1)] = 1,
    reload: Annotated[bool, typer.Option("--reload", help="Start again when code changes.")] = False,
    name: Annotated[str | None, typer.Option(help="The agent's name in the capabilities.")] = None,
    history: Annotated[
        Literal["client", "server"], typer.Option(help="Who keeps the messages: what a request holds, or the store.")
    ] = "client",
    busy: Annotated[
        Literal["auto", "reject", "queue", "replace"],
        typer.Option(help="What becomes of a second run on a thread; auto replaces one that nobody watches."),
    ] = "auto",
    on_disconnect: Annotated[
        Literal["continue", "cancel"], typer.Option(help="What becomes of a run when its last viewer leaves.")
    ] = "continue",
    disconnect_grace: Annotated[
        float, typer.Option(help="Seconds after which --on-disconnect cancel does so.", min=0)
    ] = 5.0,
    heartbeat: Annotated[float, typer.Option(help="Seconds after which an idle stream sends a comment.", min=0.1)] = (
        15.0
    ),
    lease: Annotated[float, typer.Option(help="Seconds that a run survives a process that is silent.", min=0.1)] = 30.0,
    drain: Annotated[
        float, typer.Option(help="Seconds that runs get to finish when it is told to stop.", min=0)
    ] = 10.0,
    cancel_grace: Annotated[float, typer.Option(help="Seconds that a cancelled agent gets to clean up.", min=0)] = 5.0,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="A name by which it may be called; on a loopback address, besides those of this machine."),
    ] = None,
    cors_origin: Annotated[
        list[str] | None, typer.Option(help="A page's origin that may use it, such as http://localhost:3000.")
    ] = None,
    header: Annotated[list[str] | None, typer.Option(help="A request header that the agent sees.")] = None,
    allow_system_messages: Annotated[
        bool, typer.Option("--allow-system-messages", help="Let system messages of clients reach the agent.")
    ] = False,
    echo_input: Annotated[bool, typer.Option("--echo-input", help="Put the input on RUN_STARTED.")] = False,
    max_body: Annotated[int, typer.Option(help="Bytes that a request may have.", min=1)] = 10 * 1024 * 1024,
    max_upload: Annotated[int, typer.Option(help="Bytes that a file may have.", min=1)] = 20 * 1024 * 1024,
    max_runs: Annotated[int, typer.Option(help="Runs at the same time in a process.", min=1)] = 10_000,
    max_runs_per_scope: Annotated[
        int, typer.Option(help="Runs of a scope at the same time, in all processes.", min=1)
    ] = 100,
    keep_seconds: Annotated[
        float | None, typer.Option(help="Remove threads that were idle for so long.", min=0)
    ] = None,
    keep_threads: Annotated[int | None, typer.Option(help="Remove the oldest threads beyond this many.", min=0)] = None,
    keep_bytes: Annotated[int | None, typer.Option(help="Remove the oldest threads beyond this size.", min=0)] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the texts of exceptions to clients.")] = False,
    json_logs: Annotated[bool, typer.Option("--json-logs", help="Log lines as JSON.")] = False,
) -> None:
    """Serve an agent over AG-UI; without one, the demo."""
    from aguila.cli import serve as serving

    if reload and workers > 1:
        raise typer.BadParameter("--reload has one process")
    given = [option for option in OF_AN_APP if _is_given(context, option)]
    what = serving.Serving(
        target=target,
        folder=str(Path.cwd()),
        store=serving.MEMORY if str(store) == serving.MEMORY else str(store.resolve()),
        host=host,
        options=_nested({OF_AN_APP[option]: context.params[option] for option in given if option != "store"}),
        given=["--" + option.replace("_", "-") for option in given],
    )
    try:
        serving.serve(what, port=port, workers=workers, reload=reload, json_logs=json_logs)
    except serving.CannotServe as error:
        typer.echo(f"aguila serve: {error}", err=True)
        raise typer.Exit(1) from None


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")


def _nested(options: dict[str, Any]) -> dict[str, Any]:
    """``{"limits.body": 5}`` as ``{"limits": {"body": 5}}``."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        group, dot, member = name.partition(".")
        if dot == "":
            found[name] = value
        else:
            found.setdefault(group, {})[member] = value
    return found
