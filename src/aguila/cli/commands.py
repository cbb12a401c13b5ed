"""Layer: cli. The commands of ``aguila`` and their options.

Above: ``main``. Below: one module per command, imported when it is used, so that ``aguila --help`` needs none of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from aguila import __version__
from aguila.cli.main import about
from aguila.cli.stream_commands import register

commands = typer.Typer(
    name="aguila", help="The AG-UI stack for Python.", add_completion=False, pretty_exceptions_enable=False
)


@commands.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
    elif context.invoked_subcommand is None:
        typer.echo(about())
        typer.echo(context.get_help())


_OF_AN_APP = ("store", "history", "cors_origin", "drain", "debug")
"""Options of ``serve`` that an ``App`` has itself."""


@commands.command()
def serve(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(help="The agent, or an App: module:name, found from the current directory.")
    ] = "aguila.cli.demo:agent",
    host: Annotated[str, typer.Option(help="Where to listen. Others than this machine's own are open to others.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="0 takes any that is free.", min=0, max=65535)] = 8000,
    store: Annotated[Path, typer.Option(help="The SQLite file that keeps the threads.")] = Path("aguila.db"),
    workers: Annotated[int, typer.Option(help="Processes, all on the same file.", min=1)] = 1,
    reload: Annotated[bool, typer.Option("--reload", help="Start again when code changes.")] = False,
    history: Annotated[
        Literal["client", "server"], typer.Option(help="Who keeps the messages: what a request holds, or the store.")
    ] = "client",
    cors_origin: Annotated[
        list[str] | None, typer.Option(help="A page's origin that may use it, such as http://localhost:3000.")
    ] = None,
    drain: Annotated[
        float, typer.Option(help="Seconds that runs get to finish when it is told to stop.", min=0)
    ] = 10.0,
    debug: Annotated[bool, typer.Option("--debug", help="Show the texts of exceptions to clients.")] = False,
    json_logs: Annotated[bool, typer.Option("--json-logs", help="Log lines as JSON.")] = False,
) -> None:
    """Serve an agent over AG-UI; without one, the demo."""
    from aguila.cli import serve as serving

    if reload and workers > 1:
        raise typer.BadParameter("--reload has one process")
    what = serving.Serving(
        target=target,
        folder=str(Path.cwd()),
        store=str(store.resolve()),
        host=host,
        history=history,
        cors_origins=cors_origin or [],
        drain=drain,
        debug=debug,
        given=["--" + name.replace("_", "-") for name in _OF_AN_APP if _is_given(context, name)],
    )
    try:
        serving.serve(what, port=port, workers=workers, reload=reload, json_logs=json_logs)
    except serving.CannotServe as error:
        typer.echo(f"aguila serve: {error}", err=True)
        raise typer.Exit(1) from None


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")


register(commands)
