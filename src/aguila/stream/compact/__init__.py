"""Shorten a stream without changing its meaning: ``compact``."""

from aguila.stream.compact.compactor import compact

__all__ = ["compact"]
