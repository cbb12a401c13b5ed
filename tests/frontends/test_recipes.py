"""The manifests of examples/frontends; needs neither Node nor a browser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from recipes import RECIPES

LOCKS = sorted(RECIPES.glob("*/package-lock.json")) + sorted(RECIPES.glob("*/runtime/package-lock.json"))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.parent.name)
def test_lock_files_record_no_addresses_and_manifests_pin_exact_versions(lock: Path) -> None:
    text = lock.read_text()
    assert '"resolved"' not in text
    manifest = json.loads((lock.parent / "package.json").read_text())
    for version in [*manifest["dependencies"].values(), *manifest.get("devDependencies", {}).values()]:
        assert version[0].isdigit(), version
