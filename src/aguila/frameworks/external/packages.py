"""Import the packages of frameworks when they are first needed."""

from __future__ import annotations

import importlib
from typing import Any


def load(module: str, package: str) -> Any:
    """Import a module of a framework. Raise ImportError with the package to install if it is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise ImportError(f"{module} is not installed; install it with: pip install {package}") from error
