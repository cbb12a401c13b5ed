"""docs/options.md has every option, with its default and its flag of ``aguila serve``."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aguila import App
from aguila.cli.options.serve import APP_OPTIONS
from aguila.server import Limits, Quota, Sends, Timing, Trust

TEXT = (Path(__file__).parents[2] / "docs" / "options.md").read_text()
NAMES = {"Limits": Limits, "Quota": Quota, "Sends": Sends, "Timing": Timing, "Trust": Trust}
ROWS = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (.+)$", TEXT, re.MULTILINE)


def rows() -> dict[str, list[str]]:
    """The cells behind the name of each option."""
    return {name: cells.split(" | ") for names, cells in ROWS for name in re.findall(r"\w+", names)}


def defaults() -> dict[str, Any]:
    found = {name: one.default for name, one in inspect.signature(App).parameters.items()}
    for group in (Timing, Trust, Sends):
        found |= {one.name: one.default for one in msgspec.structs.fields(group)}
    return found | {one.name: one.default for one in fields(Limits)}


def test_every_option_and_limit_is_explained() -> None:
    assert set(rows()) == defaults().keys() - {"agent", "removed"}


@pytest.mark.parametrize(("name", "cells"), rows().items())
def test_a_default_is_that_of_the_code(name: str, cells: list[str]) -> None:
    default = defaults()[name]
    shown = cells[0] if name in {one.name for one in fields(Limits)} or len(cells) == 2 else cells[1]
    if (code := re.fullmatch(r"`(.+)`", shown)) is not None:
        assert eval(code[1], NAMES) == default
    elif (number := re.fullmatch(r"([\d,]+)( s| MiB|)", shown)) is not None:
        assert default == int(number[1].replace(",", "")) * (1 << 20 if number[2] == " MiB" else 1)


def test_a_flag_of_serve_is_beside_the_option_that_it_sets() -> None:
    flags: dict[str, set[str]] = defaultdict(set)
    for option, name in APP_OPTIONS.items():
        flags[name].add("--" + option.replace("_", "-"))
    flags["page"].add("--no-page")
    shown = {name: set(re.findall(r"`(--[\w-]+)`", cells[0])) for name, cells in rows().items()}
    assert {name: found for name, found in shown.items() if found} == flags
