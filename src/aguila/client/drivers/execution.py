"""The part of executing a program that both drivers share: everything but the waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from aguila.client.drivers.actions import Program
from aguila.client.settings import ClientCore

T = TypeVar("T")


class Execution(Generic[T]):
    """A program, the action that a driver performs for it, and how it ended.

    ``conversation`` returns the conversation so far, for an error. ``outcome`` is the result or the error of a program
    that has ended.
    """

    def __init__(
        self, core: ClientCore[Any], program: Program[T], conversation: Callable[[], Any] = lambda: None
    ) -> None:
        self.result: Any = None
        self.failure: Exception | None = None
        self.outcome: Any = None
        self.is_closed = False
        self._core = core
        self._program = program
        self._conversation = conversation

    def actions(self) -> Iterator[Any]:
        """Yield the actions and events of the program. The driver sets ``result``, or ``failure`` if the action raised.

        Raise the error of the program.
        """
        failure: Exception | None = None
        try:
            while True:
                try:
                    action = self._program.send(self.result) if failure is None else self._program.throw(failure)
                except StopIteration as stop:
                    self.outcome = stop.value
                    return
                self.result = self.failure = None
                yield action
                failure = None if self.failure is None else self._core.explain_failure(self.failure)
        except MemoryError as error:
            self.outcome = self._core.out_of_memory(self._conversation())
            raise self.outcome from error
        except Exception as error:
            self.outcome = error
            raise

    def close(self) -> None:
        """End the program, wherever it is."""
        self.is_closed = True
        self._program.close()
