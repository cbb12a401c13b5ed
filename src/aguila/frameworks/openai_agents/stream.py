"""Convert the stream of the OpenAI Agents SDK to events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from aguila.agent.run import Run
from aguila.chat import FunctionResultContent
from aguila.chat.from_chat.messages import make_result_content
from aguila.codec.json.encoder import encode
from aguila.codec.notices import log_notice
from aguila.frameworks.openai_agents.items import read_item, read_parts
from aguila.protocol import (
    ActivitySnapshotEvent,
    Event,
    ReasoningEncryptedValueEvent,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    SubagentFinishedEvent,
    SubagentFinishedSuspendedOutcome,
    SubagentStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TokenUsage,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)

_TEXT: Final = ("response.output_text.delta", "response.refusal.delta")
_REASONING: Final = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_BREAK: Final = "response.reasoning_summary_part.added"
_RESULTS: Final = ("tool_output", "handoff_occured")


class ItemStream:
    """Converts the parts of one stream. ``calls`` are the ids of calls by those of the SDK.

    ``results`` are the outputs that the client sent, by the same ids. They are not sent again.
    """

    def __init__(self, run: Run, first: str, calls: dict[str, str], results: Mapping[str, Any]) -> None:
        self._run = run
        self._first = first
        self._agent = first
        """The name of the current agent."""
        self.calls = calls
        self._results = results
        self._owner: str | None = None
        self._answer: str | None = None
        """The id of the message that the current response makes."""
        self._items: dict[int, tuple[str, str]] = {}  # kind and id of open items by their place in the response
        self._reasoning: tuple[str, dict[str, Any]] | None = None
        """A reasoning item that is sent back only if a message or a call follows it."""
        self._handoff: str | None = None

    def begin(self, agent: Any) -> Iterator[Event]:
        """Yield the start of a run that continues with another agent than the first."""
        if agent is not None and agent.name != self._agent:
            yield from self._start_subagent(agent)

    def feed(self, part: Any) -> Iterator[Event]:
        """Yield the events of a part of the SDK's stream."""
        if part.type == "raw_response_event":
            yield from self._raw(part.data)
        elif part.type == "agent_updated_stream_event":
            if part.new_agent.name != self._agent:  # the SDK also reports the agent that a run begins with
                yield from self._start_subagent(part.new_agent)
        elif part.name in _RESULTS:
            yield from self._result(part.item)

    def close(self, *, is_suspended: bool) -> Iterator[Event]:
        """Yield the end of the last subagent."""
        yield from self._end_items()
        if self._owner is not None:
            outcome = SubagentFinishedSuspendedOutcome() if is_suspended else None
            yield SubagentFinishedEvent(subagent_run_id=self._owner, outcome=outcome)

    def _start_subagent(self, agent: Any) -> Iterator[Event]:
        yield from self._end_items()
        self._agent = agent.name
        if self._owner is not None:
            yield SubagentFinishedEvent(subagent_run_id=self._owner)
            self._owner = None
        if agent.name == self._first:  # handed back
            return
        self._owner = self._run.new_id("sub")
        yield SubagentStartedEvent(
            subagent_run_id=self._owner,
            name=agent.name,
            description=agent.handoff_description,
            parent_tool_call_id=self._handoff,
        )

    def _result(self, item: Any) -> Iterator[Event]:
        raw = read_item(item.raw_item)
        given: str | None = raw.get("call_id")
        if given is None or given not in self.calls or given in self._results:
            return
        output: Any = raw.get("output", "")
        result: Any = output if isinstance(output, str) else read_parts(output, log_notice)
        if item.type == "handoff_output_item":
            self._handoff = self.calls[given]
        yield ToolCallResultEvent(
            message_id=self._run.new_id("tool"),
            tool_call_id=self.calls[given],
            content=make_result_content(FunctionResultContent(given, result), log_notice),
            subagent_run_id=self._owner,
        )

    # The model's response

    def _raw(self, data: Any) -> Iterator[Event]:
        kind: str = data.type
        if kind in _TEXT:
            yield from self._text(data.output_index, data.delta)
        elif kind == "response.function_call_arguments.delta":
            if data.output_index in self._items:
                call_id = self._items[data.output_index][1]
                yield ToolCallArgsEvent(tool_call_id=call_id, delta=data.delta, subagent_run_id=self._owner)
        elif kind in _REASONING:
            yield from self._reason(data.output_index, data.delta)
        elif kind == _BREAK:
            if data.summary_index > 0:
                yield from self._reason(data.output_index, "\n\n")
        elif kind == "response.output_item.added":
            yield from self._start_item(data.output_index, data.item)
        elif kind == "response.output_item.done":
            yield from self._end_item(data.output_index, data.item)
        elif kind in ("response.completed", "response.incomplete"):
            yield from self._end_items()
            self._answer = self._reasoning = None
            self._count(data.response)

    def _start_item(self, index: int, item: Any) -> Iterator[Event]:
        if item.type in ("message", "function_call"):
            yield from self._keep_reasoning()
        else:
            self._reasoning = None
        if item.type != "function_call":
            return
        call_id = self._run.new_call_id(item.call_id)
        self.calls[item.call_id] = call_id
        self._items[index] = "call", call_id
        if self._answer is None:
            self._answer = self._run.new_id("msg")
        yield ToolCallStartEvent(
            tool_call_id=call_id,
            tool_call_name=item.name,
            parent_message_id=self._answer,
            subagent_run_id=self._owner,
        )

    def _text(self, index: int, delta: str) -> Iterator[Event]:
        if index not in self._items:
            message_id = self._answer = self._run.new_id("msg")
            self._items[index] = "text", message_id
            yield TextMessageStartEvent(message_id=message_id, role="assistant", subagent_run_id=self._owner)
        if delta != "":
            yield TextMessageContentEvent(message_id=self._items[index][1], delta=delta, subagent_run_id=self._owner)

    def _reason(self, index: int, delta: str) -> Iterator[Event]:
        if index not in self._items:
            message_id = self._run.new_id("rsn")
            self._items[index] = "reasoning", message_id
            yield ReasoningStartEvent(message_id=message_id, subagent_run_id=self._owner)
            yield ReasoningMessageStartEvent(message_id=message_id, subagent_run_id=self._owner)
        if delta != "":
            yield ReasoningMessageContentEvent(
                message_id=self._items[index][1], delta=delta, subagent_run_id=self._owner
            )

    def _end_item(self, index: int, item: Any) -> Iterator[Event]:
        if item.type == "reasoning":
            found = read_item(item)
            if "encrypted_content" in found:
                if index not in self._items:
                    yield from self._reason(index, "")
                self._reasoning = self._items[index][1], found
        elif item.type not in ("message", "function_call"):
            yield ActivitySnapshotEvent(
                message_id=self._run.new_id("act"),
                activity_type=f"openai:{item.type}",
                content=read_item(item),
                subagent_run_id=self._owner,
            )
        if index in self._items:
            yield from self._close_item(*self._items.pop(index))

    def _keep_reasoning(self) -> Iterator[Event]:
        if self._reasoning is not None:
            message_id, item = self._reasoning
            self._reasoning = None
            yield ReasoningEncryptedValueEvent(
                subtype="message",
                entity_id=message_id,
                encrypted_value=encode(item).decode(),
                subagent_run_id=self._owner,
            )

    def _end_items(self) -> Iterator[Event]:
        items, self._items = self._items, {}
        for kind, item_id in items.values():
            yield from self._close_item(kind, item_id)

    def _close_item(self, kind: str, item_id: str) -> Iterator[Event]:
        if kind == "text":
            yield TextMessageEndEvent(message_id=item_id, subagent_run_id=self._owner)
        elif kind == "call":
            yield ToolCallEndEvent(tool_call_id=item_id, subagent_run_id=self._owner)
        else:
            yield ReasoningMessageEndEvent(message_id=item_id, subagent_run_id=self._owner)
            yield ReasoningEndEvent(message_id=item_id, subagent_run_id=self._owner)

    def _count(self, response: Any) -> None:
        usage = getattr(response, "usage", None)
        if usage is None:
            return
        read = getattr(usage, "input_tokens_details", None)
        written = getattr(usage, "output_tokens_details", None)
        self._run.add_usage(
            TokenUsage(
                model=response.model,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                total_tokens=usage.total_tokens,
                cached_input_tokens=getattr(read, "cached_tokens", None),
                reasoning_tokens=getattr(written, "reasoning_tokens", None),
            )
        )
