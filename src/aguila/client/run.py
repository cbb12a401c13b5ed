"""Layer: client. A run as the caller holds it, and what came of it; for both twins, without I/O.

Below: ``effects``. Above: ``thread`` makes them, ``asyncio`` and ``sync`` have a run of their own each.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal
from weakref import ref

import msgspec

from aguila.client.drivers.effects import Program
from aguila.errors import IllegalStep, StreamTruncated
from aguila.protocol import AssistantMessage, Interrupt, Message, State, TokenUsage, ToolCall
from aguila.stream import Conversation

if TYPE_CHECKING:
    from aguila.client.thread import ThreadBase


Outcome = Literal["success", "interrupt", "cancelled"]
"""How a run ends that does not fail; one that fails raises."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a run that did not fail ended, tool rounds included.

    ``outcome`` is ``success``, ``interrupt`` or ``cancelled``; ``result`` is the run's return value; ``messages`` are
    those that are new, or that the run changed; ``pending_tool_calls`` are calls that the application has to answer.
    """

    run_id: str
    outcome: Outcome
    result: Any
    messages: list[Message]
    interrupts: list[Interrupt]
    pending_tool_calls: list[ToolCall]
    usage: list[TokenUsage]
    conversation: Conversation

    @property
    def text(self) -> str:
        """What the agent said last: the whole text of the last of the ``messages`` by it that has any, else nothing.

        A message that the run went on with (TXT-3), as after an interrupt, begins with what was said before.
        """
        for message in reversed(self.messages):
            if isinstance(message, AssistantMessage) and message.content:
                return message.content
        return ""

    @property
    def state(self) -> State:
        """The state as the run left it."""
        return self.conversation.state


def changed_since(before: Conversation, now: Conversation) -> list[Message]:
    """The messages that are new, and those that are not what they were."""
    known = {(message.role, message.id): message for message in before.messages}
    found: list[Message] = []
    for message in now.messages:
        held = known.get((message.role, message.id))
        if held is not message and held != message:  # most are the same object, which is quick to see
            found.append(message)
    return found


class RunBase:
    """One run, to be iterated or finished, once.

    Nothing is sent before that. Leaving the loop only disconnects: the run goes on where it is; ``thread.cancel``
    stops it.
    """

    def __init__(self, thread: ThreadBase, program: Program[RunResult], what: str) -> None:
        self._thread = thread
        self._program = program
        self._what = what
        self._begun = False
        self._was_refused = False  # whoever followed it was told why nothing was sent
        self._is_closed = False
        self._iterator: ref[Any] | None = None
        self._outcome: RunResult | BaseException | None = None

    @property
    def is_on(self) -> bool:
        """Whether it has begun, has not ended, and somebody still follows it."""
        return self._begun and not self._is_closed and self._iterator is not None and self._iterator() is not None

    def _begin(self) -> RunBase | None:
        """Take the thread's turn. Gives a run that was left and is not closed yet. Raises ``IllegalStep``."""
        thread = self._thread
        if self._begun:
            raise IllegalStep(f"{self._what} can be followed once; call it again for another run", rule="IN-1")
        active = thread._active
        if active is not None and active.is_on:
            self._was_refused = True
            raise IllegalStep("a run is on; a thread has one at a time", rule="LIFE-17")
        self._begun = True
        thread._active = self
        return active

    def _finished(self) -> RunResult:
        if self._outcome is None:
            error = StreamTruncated("the run was left before its end")
            error.conversation = self._thread.conversation
            raise error
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome

    def __del__(self) -> None:
        if not self._begun:
            self._program.close()
            if not self._was_refused:
                warnings.warn(f"{self._what} was neither iterated nor finished: nothing was sent", RuntimeWarning, 2)
