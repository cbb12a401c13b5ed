"""The conversation of a thread: what the application reads, and may replace between runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aguila.chat.tools import AnyTool, Toolbox
from aguila.client.arguments import listed
from aguila.client.requests.request_builder import messages_of
from aguila.client.runs.run import Outcome, RunSlot
from aguila.client.settings import Settings
from aguila.client.tools import PlannedCall, check_tools
from aguila.codec.notices import Notice
from aguila.errors import IllegalStep
from aguila.protocol import Interrupt, Message, State, StateSnapshotEvent, TokenUsage, ToolCall
from aguila.stream import Consumer, Conversation, Reducer
from aguila.stream.conversation import ConversationRun
from aguila.stream.json_values import check_json, copy_json


class ThreadState:
    """A conversation: messages, shared state, open interrupts. It has one run at a time.

    The properties return values, which do not change when the conversation does.
    """

    def __init__(
        self,
        settings: Settings,
        id: str | None,  # noqa: A002
        *,
        messages: Iterable[Message | Mapping[str, Any]],
        state: State,
        tools: Iterable[AnyTool],
    ) -> None:
        self.id = settings.new_id() if id is None else id
        self._settings = settings
        self._tools = check_tools(Toolbox(tools, base=settings.tools))
        self._advertised: frozenset[str] = frozenset()  # names of the tools of the last run
        self._is_stale = False
        self._begun: dict[str, PlannedCall] = {}  # calls in progress of runs that were left
        initial = messages_of(listed("messages", messages, "messages"), settings, "messages")
        self._reducer = Reducer(
            initial, {} if state is None else _copied(state), warn=self._warn, max_size=settings.max_size
        )
        self._slot = RunSlot()
        self._run_id: str | None = None

    @property
    def conversation(self) -> Conversation:
        """The whole conversation at this moment."""
        return self._reducer.conversation

    @property
    def messages(self) -> list[Message]:
        """All messages, activities and reasoning included."""
        return self._reducer.conversation.messages

    @property
    def state(self) -> State:
        """The state shared with the agent. The next run sends the value that you assign.

        Assigning raises ``EncodeError`` for a value that is not JSON, and ``IllegalStep`` while a run is in progress.
        """
        return self._reducer.state

    @state.setter
    def state(self, value: State) -> None:
        if self._slot.is_taken:
            raise IllegalStep(
                "the state belongs to the agent while a run is in progress; assign it after the run", rule="STATE-2"
            )
        self._reducer.feed(StateSnapshotEvent(snapshot=_copied(value)))

    @property
    def interrupts(self) -> list[Interrupt]:
        """The open questions of the last run; ``resume`` answers them."""
        return self._reducer.conversation.interrupts

    @property
    def pending_tool_calls(self) -> list[ToolCall]:
        """The unanswered tool calls of the last run, or those at the end of the given messages."""
        return self._reducer.conversation.pending_tool_calls

    @property
    def usage(self) -> list[TokenUsage]:
        """The token usage of all runs, added up per provider and model."""
        return self._reducer.conversation.usage

    @property
    def runs(self) -> list[ConversationRun]:
        """The runs that this client has followed, and the last one on the server after ``refresh``."""
        return self._reducer.conversation.runs

    @property
    def run_id(self) -> str | None:
        """The id of the run in progress, else of the last run; None before the first."""
        return self._run_id

    def restore(self, conversation: Conversation) -> None:
        """Replace the conversation, with its open interrupts, by one that was stored elsewhere.

        Raise ``IllegalStep`` while a run is in progress.
        """
        if self._slot.is_taken:
            raise IllegalStep("the conversation cannot be replaced while a run is in progress", rule="LIFE-17")
        self._reducer = self._reducer_from(conversation)

    def _reducer_from(self, conversation: Conversation) -> Reducer:
        return Reducer.from_conversation(conversation, warn=self._warn, max_size=self._settings.max_size)

    def _warn(self, notice: Notice) -> None:
        if notice.rule == "SNAP-9" and notice.event_type == "STATE_DELTA":
            self._is_stale = True
        self._settings.warn(notice)

    def _consumer(self) -> Consumer:
        """Return a consumer that reads a stream into this conversation."""
        settings = self._settings
        return Consumer(
            compat=settings.compat,
            warn=self._warn,
            new_id=settings.new_id,
            reducer=self._reducer,
            max_size=settings.max_size,
        )

    def _outcome(self) -> Outcome:
        run = self.conversation.last_run
        outcome = None if run is None else run.outcome
        return "success" if outcome is None or outcome == "error" else outcome  # a run that failed raises

    def _gated(self) -> set[str | None]:
        return {interrupt.tool_call_id for interrupt in self.interrupts}

    def _calls_for_application(self) -> list[ToolCall]:
        """Return the unanswered calls, except those that a question asks about: the agent continues with these."""
        gated = self._gated()
        return [call for call in self.pending_tool_calls if call.id not in gated]


def _copied(state: State) -> State:
    check_json(state, "/state")
    return copy_json(state)
