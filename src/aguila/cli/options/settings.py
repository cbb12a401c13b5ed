"""The options of ``aguila serve`` from the environment and from a file: derived from the options themselves.

Every option has a variable: ``--cors-origin`` is ``AGUILA_CORS_ORIGIN``. In a file it is the key ``cors-origin``.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperArgument, TyperOption

OWN_VARIABLE: Final = ("store",)
"""Options whose variable ``store_locations`` reads, since it may contain a password."""
_NOT_IN_FILE: Final = ("config", "help")


def add_variables(params: Iterable[Any]) -> None:
    """Name the variable of each option. typer reads it and shows it in the help."""
    for param in params:
        if param.name not in OWN_VARIABLE:
            param.envvar = variable_of(param)


def key_of(param: TyperOption | TyperArgument) -> str:
    """Return the name of an option as it is written: ``cors-origin``; ``target`` for the argument."""
    return param.opts[0].removeprefix("--") if isinstance(param, TyperOption) else str(param.name)


def variable_of(param: TyperOption | TyperArgument) -> str:
    """Return the name of the environment variable of an option."""
    return "AGUILA_" + key_of(param).upper().replace("-", "_")


def source_of(context: typer.Context, name: str) -> str | None:
    """Return where an option was given: ``--drain``, ``AGUILA_DRAIN`` or ``drain in aguila.toml``; None if nowhere."""
    source = context.get_parameter_source(name)
    param: Any = next(param for param in context.command.params if param.name == name)
    match source.name if source is not None else "DEFAULT":
        case "COMMANDLINE":
            return f"--{key_of(param)}"
        case "ENVIRONMENT":
            return variable_of(param)
        case "DEFAULT_MAP":
            return f"{key_of(param)} in {context.params['config']}"
        case _:
            return None


def split_variables(context: typer.Context) -> None:
    """Read each variable of a repeatable option as one value per line: a value may contain blanks."""
    for param in context.command.params:
        source = context.get_parameter_source(str(param.name))
        if isinstance(param, TyperOption) and param.multiple and source is not None and source.name == "ENVIRONMENT":
            lines = os.environ[variable_of(param)].splitlines()
            context.params[str(param.name)] = [line.strip() for line in lines if line.strip()]


def read_file(context: typer.Context, _: Any, path: Path | None) -> Path | None:
    """Make the options in a TOML file the defaults of the others. A callback of ``--config``."""
    if path is None:
        return None
    try:
        given = tomllib.loads(path.read_text())
    except OSError as error:
        raise typer.BadParameter(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path} is not TOML: {error}") from None
    params: dict[str, Any] = {
        key_of(param): param
        for param in context.command.params
        if isinstance(param, TyperOption | TyperArgument) and param.name not in _NOT_IN_FILE
    }
    for key, value in given.items():
        if key not in params:
            close = get_close_matches(key.replace("_", "-"), params, n=1)
            hint = f"did you mean {close[0]}?" if close else "see aguila serve --help for the names, without dashes"
            raise typer.BadParameter(f"{path} has {key}, which is no option of serve; {hint}")
        if isinstance(value, list) is not bool(getattr(params[key], "multiple", False)):
            kind = "one value, not an array" if isinstance(value, list) else 'an array, such as ["..."]'
            raise typer.BadParameter(f"{key} in {path} has to be {kind}")
    context.default_map = {str(params[key].name): value for key, value in given.items()}
    return path
