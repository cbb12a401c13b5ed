"""``aguila doctor``: its command-line options."""

from __future__ import annotations

from typing import Annotated

import typer

from aguila.cli.options.stores import JSONOption, StoreOption


def doctor(
    store: StoreOption,
    port: Annotated[
        int, typer.Option(metavar="PORT", help="The port that aguila serve is to bind.", min=1, max=65535)
    ] = 8000,
    json: JSONOption = False,
) -> None:
    """Check this machine and the store, and print each finding with its fix.

    Exit status: 0 all well; 1 findings.
    """
    from aguila.cli.doctor.machine import check_machine
    from aguila.cli.doctor.stores import check_store
    from aguila.cli.output import checkup

    findings = 0
    for checks in (check_machine(port), check_store(store)):
        for check in checks:
            findings += check.fix is not None
            typer.echo(checkup.as_json(check) if json else checkup.as_text(check))
    if not json:
        typer.echo(checkup.summary(findings))
    raise typer.Exit(1 if findings else 0)
