"""``aguila init``: write a small project with an agent that runs without a model."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Final

from aguila import __version__
from aguila.cli.threads import CannotUse

FILES: Final = {
    "agent.py": "agent.py",
    "test_agent.py": "test_agent.py",
    "pyproject.toml": "pyproject.toml",
    "Dockerfile": "Dockerfile",
    "README.md": "README.md",
    "gitignore": ".gitignore",
}
"""The files of ``cli/project``, and their names in a new project."""

_TAKEN: Final = ("", "agent", "aguila", "pytest")
"""Names that a project cannot have: it depends on them, or nothing is left of the name of its directory."""


def write_project(folder: Path) -> list[Path]:
    """Write a project to a directory and return its files. Raise ``CannotUse`` if the directory is not empty.

    Hidden files do not count: a repository or an environment may be there already.
    """
    if folder.exists() and not folder.is_dir():
        raise CannotUse(f"{folder} is a file; name a directory")
    present = sorted(path.name for path in folder.glob("[!.]*"))
    if present:
        shown = ", ".join(present[:3]) + (", ..." if len(present) > 3 else "")
        raise CannotUse(f"{folder.resolve()} is not empty (it has {shown}); name a new directory: aguila init my-agent")
    folder.mkdir(parents=True, exist_ok=True)
    source = files("aguila.cli") / "project"
    written: list[Path] = []
    for name, target in FILES.items():
        text = (source / name).read_text("utf-8")
        text = text.replace("PROJECT_NAME", _name_of(folder)).replace("AGUILA_VERSION", __version__)
        path = folder / target
        if not path.exists():
            path.write_text(text, "utf-8")
            written.append(path)
    return written


def _name_of(folder: Path) -> str:
    """Return the name of a directory as that of a Python project may be."""
    name = re.sub("[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")
    return "my-agent" if name in _TAKEN else name
