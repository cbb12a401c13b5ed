"""``aguila inspect``: its command-line options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def inspect(
    target: Annotated[
        str, typer.Argument(metavar="URL|FILE", help="An AG-UI endpoint, or a recorded stream (.jsonl, .sse, .json).")
    ],
    port: Annotated[int, typer.Option(metavar="PORT", help="Port to bind; 0 picks a free one.", min=0, max=65535)] = 0,
    store: Annotated[
        Path, typer.Option(metavar="FILE", help="SQLite file for the runs of an endpoint, or :memory:.")
    ] = Path("aguila-inspect.db"),
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="'NAME: VALUE'", help="Header for the endpoint. Repeatable."),
    ] = None,
    source: Annotated[
        Literal["sse", "jsonl", "json", "protobuf"] | None,
        typer.Option("--from", help="Format of the file, if detection fails."),
    ] = None,
    no_open: Annotated[
        bool, typer.Option("--no-open", metavar="", help="Do not open the page in the browser.")
    ] = False,
) -> None:
    """Chat with an AG-UI endpoint and inspect its runs in the browser, or open a recording.

    Runs of an endpoint pass through a local gateway, which records them with their protocol violations.
    """
    from aguila.cli import inspect as inspecting
    from aguila.cli.http_caller import CannotRun, headers_of, is_url
    from aguila.cli.serve import CannotServe
    from aguila.store.locations import MEMORY

    try:
        if is_url(target):
            inspecting.inspect_url(
                target,
                store=MEMORY if str(store) == MEMORY else str(store.resolve()),
                headers=headers_of(header or ()),
                port=port,
                opens_page=not no_open,
            )
        else:
            inspecting.inspect_file(Path(target), format_=source, port=port, opens_page=not no_open)
    except (CannotRun, CannotServe) as error:
        typer.echo(f"aguila inspect: {error}", err=True)
        raise typer.Exit(1) from None
