"""``aguila init``: its argument, and what it prints."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer


def init(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The directory. Created if it does not exist.", show_default="here")
    ] = Path(),
) -> None:
    """Write a small project: an agent that needs no model, its tests, a README and a Dockerfile.

    Exit status: 0 written; 2 the directory is not empty or cannot be written.
    """
    from aguila.cli.init import write_project
    from aguila.cli.threads import reports_errors

    with reports_errors("init"):
        written = write_project(directory)
    typer.echo(f"Wrote {', '.join(path.name for path in written)}. Now run, in this environment:\n")
    steps = ["pip install -e '.[test]'", "pytest", "aguila serve agent --open"]
    if directory.resolve() != Path.cwd():
        steps.insert(0, f"cd {shlex.quote(str(directory))}")
    typer.echo("\n".join(f"  {step}" for step in steps))
