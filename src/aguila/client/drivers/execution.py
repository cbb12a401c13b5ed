"""The part of executing a program that both drivers share: everything but the waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from aguila.client.drivers.effects import Program
from aguila.client.settings import ClientCore

T = TypeVar("T")


class Execution(Generic[T]):
    """A program, the effect that a driver performs for it, and how it ended.

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

    def effects(self) -> Iterator[Any]:
        """Yield the effects and events of the program. The driver sets ``result``, or ``failure`` if the effect raised.

        Raise the error of the program, or a failure that is not one of the transport.
        """
        program = self._program
        try:
            effect = program.send(None)
            while True:
                self.result = None
                yield effect
                if self.failure is None:
                    effect = program.send(self.result)
                else:
                    failure, self.failure = self.failure, None
                    effect = program.throw(self._core.transport_failure(failure))
        except StopIteration as stop:
            self.outcome = stop.value
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
