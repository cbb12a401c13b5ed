"""The part of executing a program that both drivers share: everything but the waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from aguila.client.drivers.actions import Call, Program
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
        self._programs = [program]  # the current one is the last
        self._conversation = conversation

    def actions(self) -> Iterator[Any]:
        """Yield the actions and events of the program. The driver sets ``result``, or ``failure`` if the action raised.

        Raise the error of the program, or a failure that is not one of the transport.
        """
        value: Any = None
        failure: Exception | None = None
        try:
            while self._programs:
                program = self._programs[-1]
                try:
                    action = program.send(value) if failure is None else program.throw(failure)
                except StopIteration as stop:
                    self._programs.pop()
                    value = self.outcome = stop.value
                    failure = None
                    continue
                except Exception as error:
                    self._programs.pop()
                    if not self._programs:
                        raise
                    failure = error
                    continue
                if action.__class__ is Call:
                    self._programs.append(action.program)
                    value = failure = None
                    continue
                self.result = None
                yield action
                value, failure, self.failure = self.result, self.failure, None
                if failure is not None:
                    failure = self._core.transport_failure(failure)
        except MemoryError as error:
            self.outcome = self._core.out_of_memory(self._conversation())
            raise self.outcome from error
        except Exception as error:
            self.outcome = error
            raise

    def close(self) -> None:
        """End the program, wherever it is."""
        self.is_closed = True
        for program in reversed(self._programs):
            program.close()
