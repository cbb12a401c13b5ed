"""The ``aguila`` application: registers every command."""

from __future__ import annotations

from typing import Annotated

import typer

from aguila import __version__
from aguila.cli.main import about
from aguila.cli.options import stores, streams
from aguila.cli.options.doctor import doctor
from aguila.cli.options.help_texts import add_command, make_group
from aguila.cli.options.init import init
from aguila.cli.options.inspect import inspect
from aguila.cli.options.serve import ServeCommand, serve

commands = make_group(
    "The AG-UI stack for Python.", name="aguila", add_completion=False, pretty_exceptions_enable=False
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


add_command(commands, init)
add_command(commands, serve, cls=ServeCommand)
add_command(commands, inspect)
add_command(commands, doctor)
streams.register(commands)
stores.register(commands)
