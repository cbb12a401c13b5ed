"""Apply events to a conversation: ``Reducer`` and ``reduce``."""

from aguila.stream.reducer.reducer import HANDLERS, Reducer, reduce

__all__ = ["HANDLERS", "Reducer", "reduce"]
