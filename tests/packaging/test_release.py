"""What ``make release`` checks before it builds, and that nothing is published before somebody asks for it."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "scripts" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def clone(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone of version 0.2.0 without a changelog."""
    monkeypatch.setattr(script, "ROOT", tmp_path)
    source = tmp_path / "src" / "aguila"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text('"""Aguila."""\n\n__version__ = "0.2.0"\n')
    return tmp_path


def test_every_extra_is_tried(script: ModuleType) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert script.PROMISES.keys() == {"", *project["optional-dependencies"]}


def test_the_changelog_has_an_entry_for_the_version(script: ModuleType) -> None:
    script.check_changelog(None)


@pytest.mark.parametrize(
    ("heading", "tag", "said"),
    [
        ("## [0.1.0] - 2026-01-01", None, r"not about 0\.2\.0; begin it with: ## \[0\.2\.0\]"),
        ("", None, r"not about 0\.2\.0"),
        ("## [0.2.0] - 2026-01-01", "v0.1.0", "the tag is v0.1.0, but the version is 0.2.0; tag v0.2.0"),
        ("## [0.2.0] - unreleased", "v0.2.0", "has the date 'unreleased'; write today's"),
    ],
)
def test_a_release_without_its_entry_is_refused(
    script: ModuleType, clone: Path, heading: str, tag: str | None, said: str
) -> None:
    (clone / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n\n## [0.0.9] - 2025-12-31\n")
    with pytest.raises(script.NotReady, match=said):
        script.check_changelog(tag)


def test_a_tag_with_a_dated_entry_is_accepted(script: ModuleType, clone: Path) -> None:
    (clone / "CHANGELOG.md").write_text("# Changelog\n\n## [0.2.0] - 2026-01-01\n")
    script.check_changelog("v0.2.0")


def test_the_workflow_publishes_only_what_make_release_built_and_only_if_it_is_switched_on() -> None:
    workflow: Any = YAML(typ="safe").load(ROOT / ".github" / "workflows" / "release.yml")
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert build["if"] == "vars.PUBLISH_TO_PYPI == 'true'"
    assert any(str(step.get("run")).startswith("make release") for step in build["steps"])
    assert publish["needs"] == "build"
    assert workflow["permissions"] == {"contents": "read"}
    assert publish["permissions"] == {"id-token": "write"}
