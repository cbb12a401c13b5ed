"""Read a summary and the parameter descriptions from a docstring.

Google, Sphinx and NumPy style, also mixed or badly indented. Text that is not understood is skipped.
"""

from __future__ import annotations

import re

_HEADING = re.compile(
    r"(args|arguments|parameters|params|returns?|raises|yields?|examples?|notes?|warns|see also):?\s*\Z", re.IGNORECASE
)
_OF_PARAMETERS = frozenset({"args", "arguments", "parameters", "params"})
_FIELD = re.compile(r":(\w+)(?:\s+([^:]*))?:\s*(.*)\Z")  # :param int count: how many
_GOOGLE = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)\Z")  # count (int): how many
_NUMPY = re.compile(r"\*{0,2}(\w+)\s*(?::.*)?()\Z")  # count : int


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the text before the first section, and the parameter descriptions by name. For ``inspect.getdoc`` text."""
    lines = text.splitlines()
    begin = next((i for i in range(len(lines)) if _begins_section(lines, i)), len(lines))
    summary = "\n".join(line.strip() for line in lines[:begin]).strip()
    return summary, {name: " ".join(words).strip() for name, words in _parameters(lines[begin:]).items()}


def _begins_section(lines: list[str], index: int) -> bool:
    line = lines[index].strip()
    if _FIELD.match(line) is not None:
        return True
    return _HEADING.match(line) is not None and (line.endswith(":") or _is_underlined(lines, index))


def _is_underlined(lines: list[str], index: int) -> bool:
    return index + 1 < len(lines) and set(lines[index + 1].strip()) == {"-"}


def _parameters(lines: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    item: re.Pattern[str] | None = None  # how a parameter starts in this section, if it is about parameters
    words: list[str] | None = None  # the description of the current parameter
    depth = 0  # indentation of its first line
    for index, line in enumerate(lines):
        text, indent = line.strip(), len(line) - len(line.lstrip())
        if (field := _FIELD.match(text)) is not None:
            item = words = None
            if field[1] in ("param", "parameter", "arg", "argument") and field[2]:
                words = found[field[2].split()[-1]] = [field[3]]
        elif _begins_section(lines, index):
            heading = text.rstrip(":").lower()
            style = _NUMPY if _is_underlined(lines, index) else _GOOGLE
            item, words = (style if heading in _OF_PARAMETERS else None), None
        elif text == "" or set(text) == {"-"}:
            continue
        elif item is not None and (words is None or indent <= depth) and (named := item.match(text)) is not None:
            words, depth = [named[2]], indent
            found[named[1]] = words
        elif words is not None:
            words.append(text)
    return found
