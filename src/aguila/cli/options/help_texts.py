"""How commands are added to the application, and what their help shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    """A command whose ``--help`` shows no type."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option ``--help``."""
        return _without_type(super().get_help_option(ctx))


class _Group(TyperGroup):
    def get_help_option(self, ctx: Any) -> Any:
        return _without_type(super().get_help_option(ctx))


def _without_type(option: Any) -> Any:
    if option is not None:
        option.metavar = ""  # typer shows <bool>, as if --help took a value
    return option


def make_group(text: str, **options: Any) -> typer.Typer:
    """Return a group of commands with this help text."""
    return typer.Typer(help=text, cls=_Group, **options)


def add_command(
    group: typer.Typer, function: Callable[..., Any], name: str | None = None, *, cls: type[Command] = Command
) -> None:
    """Add a function to a group as a command. Its docstring is the help text."""
    group.command(name, cls=cls, help=_unwrapped(function.__doc__ or ""))(function)


def _unwrapped(text: str) -> str:
    """Join the lines of each paragraph, so that the terminal's width alone decides where they wrap."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
