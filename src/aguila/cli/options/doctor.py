"""``aguila doctor``: its command-line options."""

from __future__ import annotations

from itertools import chain
from typing import Annotated

import typer

from aguila.cli.options.stores import JSONOption, StoreOption


def doctor(
    store: StoreOption,
    url: Annotated[str | None, typer.Argument(metavar="URL", help="A server, as its clients reach it.")] = None,
    port: Annotated[
        int, typer.Option(metavar="PORT", help="The port that aguila serve is to bind.", min=1, max=65535)
    ] = 8000,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="'NAME: VALUE'", help="Header for the server. Repeatable."),
    ] = None,
    origin: Annotated[
        str | None, typer.Option(metavar="ORIGIN", help="The origin of pages that are to use the server.")
    ] = None,
    json: JSONOption = False,
) -> None:
    """Check this machine and the store, and with a URL the way to a server; print each finding with its fix.

    No agent runs. Exit status: 0 all well; 1 findings; 2 an argument is wrong.
    """
    from aguila.cli.doctor.connection import Connection
    from aguila.cli.doctor.machine import check_machine
    from aguila.cli.doctor.stores import check_store
    from aguila.cli.doctor.way import check_way
    from aguila.cli.http_caller import CannotRun, headers_of
    from aguila.cli.output import checkup

    try:
        server = None if url is None else Connection(url, headers_of(header or ()))
    except (ValueError, CannotRun) as error:
        raise typer.BadParameter(str(error)) from None
    checks = chain(check_machine(port if server is None else None), check_store(store))
    if server is not None:
        checks = chain(checks, check_way(server, origin))
        if not json:
            typer.echo("The last check follows a silent stream for a heartbeat of the server, mostly 15 s.", err=True)
    findings = 0
    for check in checks:
        findings += check.fix is not None
        typer.echo(checkup.as_json(check) if json else checkup.as_text(check))
    if not json:
        typer.echo(checkup.summary(findings))
    raise typer.Exit(1 if findings else 0)
