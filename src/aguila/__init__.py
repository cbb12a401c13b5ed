"""Aguila: the complete AG-UI stack for Python."""

__version__ = "0.1.0"
