"""Convert the stream of a LlamaIndex agent to events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from aguila.agent.run import Run
from aguila.codec.json.encoder import encode
from aguila.protocol import (
    Event,
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
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)

_HANDOFF = "handoff"
"""The tool that an ``AgentWorkflow`` gives its agents."""


class AgentStream:
    """Converts the events of one run of an agent. ``suspended`` is the ``snapshot`` of the run that it continues."""

    def __init__(self, run: Run, suspended: dict[str, Any] | None) -> None:
        self._run = run
        self._frontend = frozenset(tool.name for tool in run.tools)
        before = suspended or {"calls": {}, "open": [], "first": None, "agent": None}
        self._calls: dict[str, str] = before["calls"]  # ids of calls by those of LlamaIndex
        self._open: list[str] = before["open"]  # LlamaIndex's ids of calls without a result
        self._expected = len(self._open)  # calls of the current response without a result
        self._first: str | None = before["first"]
        self._agent: str | None = before["agent"]
        self._owner: str | None = None
        self._handoff: str | None = None
        self._answer: str | None = None
        self._text: str | None = None
        self._reasoning: str | None = None

    @property
    def open_calls(self) -> int:
        """The number of calls of the current response that have no result."""
        return self._expected

    @property
    def only_call(self) -> str | None:
        """The id of the only call without a result, if there is one."""
        return self._calls[self._open[0]] if len(self._open) == 1 else None

    def snapshot(self) -> dict[str, Any]:
        """Return the state that the next run needs, as JSON."""
        return {"calls": self._calls, "open": self._open, "first": self._first, "agent": self._agent}

    def begin(self) -> Iterator[Event]:
        """Yield the start of a run that continues with another agent than the first."""
        return iter(()) if self._agent is None else self._enter(self._agent)

    def feed(self, part: Any) -> Iterator[Event]:
        """Yield the events of a part of LlamaIndex's stream."""
        handler = self._handlers.get(type(part).__name__)
        return iter(()) if handler is None else handler(self, part)

    def close(self, *, is_suspended: bool) -> Iterator[Event]:
        """Yield the ends of all open items."""
        yield from self._end_texts()
        if self._owner is not None:
            outcome = SubagentFinishedSuspendedOutcome() if is_suspended else None
            yield SubagentFinishedEvent(subagent_run_id=self._owner, outcome=outcome)

    def _stream(self, part: Any) -> Iterator[Event]:
        yield from self._enter(part.current_agent_name)
        if part.thinking_delta:
            if self._reasoning is None:
                self._reasoning = self._run.new_id("rsn")
                yield ReasoningStartEvent(message_id=self._reasoning, subagent_run_id=self._owner)
                yield ReasoningMessageStartEvent(message_id=self._reasoning, subagent_run_id=self._owner)
            yield ReasoningMessageContentEvent(
                message_id=self._reasoning, delta=part.thinking_delta, subagent_run_id=self._owner
            )
        if part.delta:
            yield from self._say(part.delta)

    def _say(self, text: str) -> Iterator[Event]:
        yield from self._end_reasoning()
        if self._text is None:
            self._text = self._answer = self._run.new_id("msg")
            yield TextMessageStartEvent(message_id=self._text, role="assistant", subagent_run_id=self._owner)
        yield TextMessageContentEvent(message_id=self._text, delta=text, subagent_run_id=self._owner)

    def _output(self, part: Any) -> Iterator[Event]:
        yield from self._enter(part.current_agent_name)
        content = part.response.content
        if self._text is None and content:  # an agent that does not stream
            yield from self._say(content)
        yield from self._end_texts()
        self._expected = sum(one.tool_id not in self._calls for one in part.tool_calls)

    def _call(self, part: Any) -> Iterator[Event]:
        if part.tool_id in self._calls:  # made again after an answer
            return
        call_id = self._calls[part.tool_id] = self._run.new_call_id(part.tool_id)
        self._open.append(part.tool_id)
        if self._answer is None:
            self._answer = self._run.new_id("msg")
        yield ToolCallStartEvent(
            tool_call_id=call_id,
            tool_call_name=part.tool_name,
            parent_message_id=self._answer,
            subagent_run_id=self._owner,
        )
        arguments = encode(part.tool_kwargs).decode()
        yield ToolCallArgsEvent(tool_call_id=call_id, delta=arguments, subagent_run_id=self._owner)
        yield ToolCallEndEvent(tool_call_id=call_id, subagent_run_id=self._owner)

    def _result(self, part: Any) -> Iterator[Event]:
        if part.tool_id not in self._open:
            return
        self._open.remove(part.tool_id)
        self._expected -= 1
        call_id = self._calls[part.tool_id]
        if part.tool_name == _HANDOFF:
            self._handoff = call_id
        if part.tool_name not in self._frontend:
            yield ToolCallResultEvent(
                message_id=self._run.new_id("tool"),
                tool_call_id=call_id,
                content=part.tool_output.content,
                subagent_run_id=self._owner,
            )

    def _input(self, part: Any) -> Iterator[Event]:
        """Begin a response of the model."""
        self._answer = None
        return self._enter(part.current_agent_name)

    def _enter(self, agent: str) -> Iterator[Event]:
        """Yield the change to another agent: the first is the run itself, others are subagents."""
        if self._first is None:
            self._first = self._agent = agent
        if agent == self._agent and (self._owner is not None or agent == self._first):
            return
        yield from self._end_texts()
        if self._owner is not None:
            yield SubagentFinishedEvent(subagent_run_id=self._owner)
            self._owner = None
        self._agent = agent
        if agent != self._first:
            self._owner = self._run.new_id("sub")
            yield SubagentStartedEvent(subagent_run_id=self._owner, name=agent, parent_tool_call_id=self._handoff)

    def _end_texts(self) -> Iterator[Event]:
        yield from self._end_reasoning()
        if self._text is not None:
            yield TextMessageEndEvent(message_id=self._text, subagent_run_id=self._owner)
            self._text = None

    def _end_reasoning(self) -> Iterator[Event]:
        if self._reasoning is not None:
            yield ReasoningMessageEndEvent(message_id=self._reasoning, subagent_run_id=self._owner)
            yield ReasoningEndEvent(message_id=self._reasoning, subagent_run_id=self._owner)
            self._reasoning = None

    _handlers: ClassVar[dict[str, Callable[[AgentStream, Any], Iterator[Event]]]] = {
        "AgentInput": _input,
        "AgentStream": _stream,
        "AgentOutput": _output,
        "ToolCall": _call,
        "ToolCallResult": _result,
    }
