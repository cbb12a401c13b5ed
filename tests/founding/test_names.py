"""A public name has one meaning: packages that export the same name export the same object."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from aguila.protocol import BaseEvent, BaseMessage

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


def all_subclasses(cls: type[Any]) -> set[type[Any]]:
    return {sub for direct in cls.__subclasses__() for sub in (direct, *all_subclasses(direct))}


def test_events_and_messages_are_defined_in_the_protocol_package_alone() -> None:
    for package in PACKAGES:
        importlib.import_module(package)
    kinds = [*all_subclasses(BaseEvent), *all_subclasses(BaseMessage)]
    ours = [kind for kind in kinds if kind.__module__.startswith("aguila.")]
    assert len(ours) > 30
    assert {kind.__module__.split(".")[1] for kind in ours} == {"protocol"}
