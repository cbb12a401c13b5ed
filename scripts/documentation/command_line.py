"""The reference of the ``aguila`` command, from its typer application."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from aguila.cli.commands import commands

_INTRODUCTION = """\
# All commands and options

Every command and option of `aguila`, as `--help` shows them. [The command line](../cli.md) explains them.
"""


def command_line_page() -> str:
    """Return the page as Markdown."""
    lines = [_INTRODUCTION]
    for name, command in _commands("aguila", typer.main.get_command(commands)):
        usage = " ".join(_usage(one) for one in command.params if one.param_type_name == "argument")
        has_options = any(one.param_type_name == "option" for one in command.params)
        lines += [f"## {name}", "", "```sh", f"{name} {usage}{' [OPTIONS]' if has_options else ''}".strip(), "```", ""]
        lines += [re.sub(r"\s+", " ", command.help or "").strip(), ""]
        rows = [_row(one) for one in command.params if one.name != "help"]
        if rows:
            lines += ["| option | variable | default | meaning |", "|---|---|---|---|", *rows, ""]
    return "\n".join(lines)


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "commands"):
        for child, found in command.commands.items():
            yield from _commands(f"{name} {child}", found)
    else:
        yield name, command


def _usage(argument: Any) -> str:
    shown = argument.metavar or argument.name.upper()
    return shown if argument.required else f"[{shown}]"


def _row(param: Any) -> str:
    is_argument = param.param_type_name == "argument"
    names = param.metavar or param.name.upper() if is_argument else "`, `".join([*param.opts, *param.secondary_opts])
    variable = f"`{param.envvar}`" if isinstance(param.envvar, str) else ""
    is_shown = isinstance(param.default, str | int | float) and not isinstance(param.default, bool)
    cells = [f"`{names}`", variable, f"`{param.default}`" if is_shown else "", param.help or ""]
    return "| " + " | ".join(re.sub(r"\s+", " ", cell).replace("|", "\\|") for cell in cells) + " |"
