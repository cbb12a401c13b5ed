"""A run as the caller holds it, and its result."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar
from weakref import ref

import msgspec

from aguila.chat.user_text import last_user_text
from aguila.client.drivers.actions import Program
from aguila.client.drivers.execution import Execution
from aguila.client.settings import ClientCore
from aguila.errors import IllegalStep, StreamTruncated
from aguila.protocol import AssistantMessage, Interrupt, Message, State, TokenUsage, ToolCall
from aguila.stream import Conversation

if TYPE_CHECKING:
    from aguila.client.runs.thread import ThreadBase


DriverT = TypeVar("DriverT")

Outcome = Literal["success", "interrupt", "cancelled"]
"""The outcomes of a run that does not fail. A run that fails raises an error."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run that did not fail, tool rounds included.

    ``result`` is the run's return value. ``messages`` are those that the run added or changed. ``pending_tool_calls``
    are calls that the application has to answer.
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
        """The complete text of the agent's last message that has any, else an empty string.

        A message that an earlier run began, as before an interrupt, is complete here, too (TXT-3).
        """
        for message in reversed(self.messages):
            if isinstance(message, AssistantMessage) and message.content:
                return message.content
        return ""

    @property
    def user_text(self) -> str:
        """The last user message of the conversation as text, also if it has images; "" if there is none."""
        return last_user_text(self.conversation.messages)

    @property
    def state(self) -> State:
        """The state after the run."""
        return self.conversation.state


def changed_since(before: Conversation, now: Conversation) -> list[Message]:
    """Return the messages that are new or changed."""
    known = {(message.role, message.id): message for message in before.messages}
    found: list[Message] = []
    for message in now.messages:
        held = known.get((message.role, message.id))
        if held is not message and held != message:  # most are the same object, which is cheap to see
            found.append(message)
    return found


class RunSlot:
    """The place for the one run that a thread can have at a time."""

    def __init__(self) -> None:
        self.run: RunBase[Any] | None = None

    @property
    def is_taken(self) -> bool:
        """Whether a run is in progress."""
        return self.run is not None and self.run.is_on


class RunBase(Generic[DriverT]):
    """One run, to be iterated or finished once. Nothing is sent before that.

    Leaving the loop only disconnects: the run continues on the server. ``thread.cancel`` cancels it.
    """

    def __init__(
        self,
        thread: ThreadBase[Any, Any],
        slot: RunSlot,
        core: ClientCore[Any],
        program: Program[RunResult],
        description: str,
    ) -> None:
        self._thread = thread
        self._slot = slot
        self._core = core
        self._execution = Execution(core, program, lambda: thread.conversation)
        self._driver: DriverT | None = None
        self._description = description
        self._has_begun = False
        self._was_refused = False  # the caller has got an error that says why nothing was sent
        self._iterator: ref[Any] | None = None

    @property
    def is_closed(self) -> bool:
        """Whether the run is not followed any more."""
        return self._execution.is_closed

    @property
    def is_on(self) -> bool:
        """Whether the run has begun, has not ended, and is still followed."""
        return self._has_begun and not self.is_closed and self._iterator is not None and self._iterator() is not None

    def _begin(self) -> RunBase[Any] | None:
        """Take the thread's slot. Return the run that had it before. Raise ``IllegalStep`` if that is in progress."""
        if self._has_begun:
            raise IllegalStep(f"{self._description} can be followed once; call it again for another run", rule="IN-1")
        if self._slot.is_taken:
            self._was_refused = True
            raise IllegalStep(
                "a run is in progress on this thread; finish or close it before you start another", rule="LIFE-17"
            )
        self._has_begun = True
        abandoned, self._slot.run = self._slot.run, self
        return abandoned

    def _leave(self) -> None:
        """End the program. A run that has not begun cannot begin any more."""
        self._has_begun = True
        self._execution.close()

    def _finished(self) -> RunResult:
        outcome = self._execution.outcome
        if outcome is None:
            error = StreamTruncated("the run was left before its end")
            error.conversation = self._thread.conversation
            raise error
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def __del__(self) -> None:
        if not self._has_begun:
            self._execution.close()
            if not self._was_refused:
                problem = f"{self._description} was neither iterated nor finished: nothing was sent"
                warnings.warn(problem, RuntimeWarning, 2)
