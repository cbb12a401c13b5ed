"""A public name has one meaning: packages that export the same name export the same object."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

PACKAGES = (
    "aguila",
    "aguila.agent",
    "aguila.chat",
    "aguila.client",
    "aguila.codec",
    "aguila.protocol",
    "aguila.server",
    "aguila.store",
    "aguila.stream",
    "aguila.testing",
)


def meanings(name: str) -> set[int]:
    modules: list[Any] = [importlib.import_module(package) for package in PACKAGES]
    return {id(getattr(module, name)) for module in modules if name in getattr(module, "__all__", ())}


@pytest.mark.parametrize("name", ["Run", "Interrupt", "RunRecord", "RunInterrupt", "ClientRun", "AsyncClientRun"])
def test_a_public_name_has_one_meaning(name: str) -> None:
    assert len(meanings(name)) == 1
