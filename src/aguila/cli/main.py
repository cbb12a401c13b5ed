"""The entry point of ``aguila``. Without the ``cli`` extra it says what to install."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from aguila import __version__
from aguila.errors import MissingExtra
from aguila.protocol import PROTOCOL_VERSION, EventType

_LAYERS = (
    "protocol",
    "codec",
    "stream",
    "store",
    "chat",
    "agent",
    "client",
    "server",
    "frameworks",
    "cli",
    "testing",
)


def main() -> None:
    """Run the command line."""
    try:
        from aguila.cli.commands import commands
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "aguila":
            raise
        without_install = "or run it without an install: uvx --from 'aguila[cli]' aguila"
        sys.exit(f"aguila: {MissingExtra('cli', missing.name or 'typer')},\n{without_install}")
    try:
        commands(prog_name="aguila")
    except MissingExtra as missing:
        sys.stderr.write(f"aguila: {missing}\n")
        sys.exit(2)
    finally:
        _flush_output()


def _flush_output() -> None:
    """Flush standard output. If its reader is gone (``aguila ... | head``), exit with status 1 and print nothing.

    At exit, the interpreter would flush it and print the error. typer handles a write that fails earlier.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def about() -> str:
    """Describe the version and the installed layers."""
    present = [name for name in _LAYERS if find_spec(f"aguila.{name}") is not None]
    return (
        f"aguila {__version__}, AG-UI {PROTOCOL_VERSION} ({len(EventType)} event types)\nlayers: {', '.join(present)}"
    )
