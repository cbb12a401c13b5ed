"""Import the packages of frameworks when an agent is made of one, so that what is missing shows at once."""

from __future__ import annotations

import importlib
from typing import Any


def load(module: str, package: str) -> Any:
    """Import a module of a framework. Raise ImportError with what to install if it, or what it needs, is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        is_own = error.name is None or module.startswith(error.name)
        what = f"{module} is not installed" if is_own else f"{module} needs {error.name}, which is not installed"
        raise ImportError(f"{what}; install it with: pip install {package}") from None
