"""Apply events to a conversation: ``Reducer`` and ``reduce``."""

from aguila.stream.reducer.reducer import Reducer, reduce

__all__ = ["Reducer", "reduce"]
