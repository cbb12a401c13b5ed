"""The ``aguila`` application: registers every command."""

from __future__ import annotations

from typing import Annotated

import typer

from aguila import __version__
from aguila.cli.main import about
from aguila.cli.options import stores, streams
from aguila.cli.options.inspect import inspect
from aguila.cli.options.serve import serve

commands = typer.Typer(
    name="aguila", help="The AG-UI stack for Python.", add_completion=False, pretty_exceptions_enable=False
)


@commands.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", metavar="", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
    elif context.invoked_subcommand is None:
        typer.echo(about())
        typer.echo(context.get_help())


commands.command()(serve)
commands.command(help=streams.unwrapped(inspect.__doc__ or ""))(inspect)
streams.register(commands)
stores.register(commands)
