"""Let the user of ``aguila chat`` change the arguments of a tool call: one line for each, prefilled with its value."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import msgspec

from aguila.cli.output.transcript import escape_controls
from aguila.codec.json.bounded_floats import decode_json

INDENT = "    "


def load_readline() -> Any:
    """Import readline, which gives ``input`` line editing and a history. Return None where there is none."""
    return None if find_spec("readline") is None else import_module("readline")


def edit_arguments(arguments: str, report: Callable[[str], None]) -> dict[str, Any]:
    """Prompt for each member of a JSON object. Arguments that are not such an object are edited as JSON.

    A line that is not JSON where JSON is needed is reported, and edited again.
    """
    try:
        current = decode_json(arguments, dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        current = {}
    if not current:
        return _edit_json("JSON", arguments or "{}", dict[str, Any], report)
    return {name: _edit_value(escape_controls(name), value, report) for name, value in current.items()}


def _edit_value(name: str, value: Any, report: Callable[[str], None]) -> Any:
    """Prompt for a value. A string of one line is edited as it is, anything else as JSON."""
    if isinstance(value, str) and value.isprintable():
        return _edit_line(name, value)
    text = json.dumps(value, ensure_ascii=False)
    return _edit_json(name, text if text.isprintable() else json.dumps(value), Any, report)


def _edit_json(name: str, text: str, kind: Any, report: Callable[[str], None]) -> Any:
    while True:
        text = _edit_line(name, text)
        try:
            return decode_json(text, kind)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            report(f"{INDENT}not {'a JSON object' if kind != Any else 'JSON'}: {error}")


def _edit_line(name: str, text: str) -> str:
    """Read a line that is prefilled with a text. Without readline the text is shown, and an empty line keeps it."""
    readline = load_readline()
    if readline is None:
        return input(f"{INDENT}{name} [{escape_controls(text)}]: ") or text

    def prefill() -> None:
        readline.insert_text(text)

    readline.set_startup_hook(prefill)
    try:
        return input(f"{INDENT}{name}: ")
    finally:
        readline.set_startup_hook(None)
