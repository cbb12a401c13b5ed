"""Convert the stream of a LangGraph graph to events: messages, nodes as steps, subgraphs as subagents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from aguila.agent.run import Run
from aguila.chat import ReasoningContent, TextContent
from aguila.chat.from_chat.messages import as_agui_messages
from aguila.chat.own_metadata import add_own_metadata
from aguila.codec.notices import Notice, log_notice
from aguila.frameworks.langgraph.messages import from_langchain, read_blocks, read_calls
from aguila.protocol import (
    Event,
    ReasoningEncryptedValueEvent,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    StepFinishedEvent,
    StepStartedEvent,
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
    ToolMessage,
)

Namespace = tuple[str, ...]

_ROLES: Final[dict[str, Any]] = {"ai": None, "human": "user"}


class GraphStream:
    """Converts the parts of one stream. ``known`` are the ids of the messages that the thread has already."""

    def __init__(self, run: Run, known: set[str]) -> None:
        self._run = run
        self._known = known
        self._answers: dict[tuple[Namespace, str], _Answer] = {}
        """Answers that are streaming, by namespace and id."""
        self._steps: dict[str, tuple[str, str | None]] = {}  # name and owner by task
        self._subagents: dict[Namespace, str] = {}
        self._held: set[str] = set()  # ids of the messages of the state
        self.has_removed = False
        """Whether a node has removed messages."""

    def feed(self, namespace: Namespace, mode: str, data: Any) -> Iterator[Event]:
        """Yield the events of a part of the modes ``messages`` and ``tasks``."""
        yield from self._open_subagents(namespace)
        if mode == "tasks":
            yield from self._task(namespace, data)
        else:
            message, about = data
            yield from self._message(namespace, message, about.get("langgraph_node"))

    def catch_up(self, messages: Sequence[Any]) -> Iterator[Event]:
        """Yield the messages of the state that were not streamed: a node may return them as tuples or dicts."""
        ids = {message.id for message in messages}
        self.has_removed = self.has_removed or not self._held <= ids
        self._held = ids
        start = len(messages)
        while start > 0 and messages[start - 1].id not in self._known:
            start -= 1
        for message in messages[start:]:
            yield from self._message((), message, None)

    def close(self) -> Iterator[Event]:
        """Yield the ends of all open items: a graph that stops at a breakpoint does not end its subgraphs."""
        for key in list(self._answers):
            yield from self._answers.pop(key).close()
        for task in [*self._steps][::-1]:
            yield self._end_step(task)
        for namespace in sorted(self._subagents, key=len, reverse=True):
            yield self._end_subagent(namespace, is_suspended=True)

    def owner(self, namespace: Namespace) -> str | None:
        """Return the subagent of a namespace."""
        return self._subagents.get(namespace)

    # Nodes and subgraphs

    def _open_subagents(self, namespace: Namespace) -> Iterator[Event]:
        for depth in range(1, len(namespace) + 1):
            inner = namespace[:depth]
            if inner in self._subagents:
                continue
            segment = inner[-1]
            # A task that continues after an answer has the same id in the next run.
            subagent = self._subagents[inner] = f"{segment}:{self._run.run_id}"
            yield SubagentStartedEvent(
                subagent_run_id=subagent,
                name=segment.partition(":")[0],
                parent_subagent_run_id=self._subagents.get(inner[:-1]),
            )

    def _task(self, namespace: Namespace, data: dict[str, Any]) -> Iterator[Event]:
        task, name, owner = data["id"], data["name"], self.owner(namespace)
        if "triggers" in data:
            yield from self._start_step(task, name, owner)
            return
        for key in [one for one in self._answers if one[0] == namespace and self._answers[one].node == name]:
            yield from self._answers.pop(key).close()
        inner = (*namespace, f"{name}:{task}")
        if inner in self._subagents:
            yield self._end_subagent(inner, is_suspended=bool(data.get("interrupts")))
        if task in self._steps:
            yield self._end_step(task)

    def _end_subagent(self, namespace: Namespace, *, is_suspended: bool) -> Event:
        outcome = SubagentFinishedSuspendedOutcome() if is_suspended else None
        return SubagentFinishedEvent(subagent_run_id=self._subagents.pop(namespace), outcome=outcome)

    def _end_step(self, task: str) -> Event:
        step, owner = self._steps.pop(task)
        return StepFinishedEvent(step_name=step, subagent_run_id=owner)

    def _start_step(self, task: str, name: str, owner: str | None) -> Iterator[Event]:
        taken = {step for step, its in self._steps.values() if its == owner}
        step, number = name, 1
        while step in taken:  # nodes that run in parallel (STEP-1)
            number += 1
            step = f"{name} ({number})"
        self._steps[task] = step, owner
        yield StepStartedEvent(step_name=step, subagent_run_id=owner)

    # Messages

    def _message(self, namespace: Namespace, message: Any, node: str | None) -> Iterator[Event]:
        kind = message.type
        if kind == "AIMessageChunk":
            yield from self._chunk(namespace, message, node)
        elif message.id in self._known:
            return  # a node has returned its input
        elif kind == "tool":
            self._known.add(message.id)
            yield self._result(message, self.owner(namespace))
        elif kind in _ROLES:
            self._known.add(message.id)
            answer = _Answer(self._run, message.id, self.owner(namespace), message.name, _ROLES[kind])
            yield from answer.feed(message)
            yield from answer.close()

    def _chunk(self, namespace: Namespace, chunk: Any, node: str | None) -> Iterator[Event]:
        key = namespace, chunk.id
        answer = self._answers.get(key)
        if answer is None:
            self._known.add(chunk.id)
            answer = self._answers[key] = _Answer(self._run, chunk.id, self.owner(namespace), chunk.name, None)
            answer.node = node
        yield from answer.feed(chunk)
        if getattr(chunk, "chunk_position", None) == "last":
            yield from self._answers.pop(key).close()

    def _result(self, message: Any, owner: str | None) -> Event:
        (made,) = as_agui_messages(from_langchain([message]))
        assert isinstance(made, ToolMessage)  # noqa: S101
        return ToolCallResultEvent(
            message_id=message.id,
            tool_call_id=made.tool_call_id,
            content=made.content,
            subagent_run_id=owner,
            metadata=add_own_metadata(None, error=made.error),
        )


class _Answer:
    """One message while it streams."""

    def __init__(self, run: Run, message_id: str, owner: str | None, name: str | None, role: Any) -> None:
        self._run = run
        self._id = message_id
        self._owner = owner
        self._name = name
        self._role = role
        self.node: str | None = None
        """The node that calls the model."""
        self._has_text = False
        self._thought: str | None = None
        """The id of the open reasoning message."""
        self._thoughts = 0
        self._calls: dict[Any, str] = {}  # ids of open calls by their index
        self._usage: dict[str, int] = {}
        self._model: str | None = None
        self._provider: str | None = None

    def feed(self, message: Any) -> Iterator[Event]:
        """Yield the events of a chunk or of a whole message."""
        is_chunk = message.type == "AIMessageChunk"
        content: Any = message.content
        if isinstance(content, str):
            if content != "":
                yield from self._text(content)
        else:
            for each in read_blocks(message, log_notice):
                if isinstance(each, ReasoningContent):
                    yield from self._reasoning(each)
                elif not isinstance(each, TextContent):
                    log_notice(
                        Notice(rule="langchain", message="dropped a file of an answer, which AG-UI has no place for")
                    )
                elif each.text != "":
                    yield from self._text(each.text)
        if is_chunk:
            for piece in message.tool_call_chunks:
                yield from self._call_piece(piece)
        elif message.type == "ai":
            for call in read_calls(message):
                yield from self._start_call(call.call_id, call.name)
                yield ToolCallArgsEvent(tool_call_id=call.call_id, delta=call.arguments, subagent_run_id=self._owner)
                yield ToolCallEndEvent(tool_call_id=call.call_id, subagent_run_id=self._owner)
        self._count(message)

    def close(self) -> Iterator[Event]:
        """Yield the ends of the message and its calls, and report its usage."""
        yield from self._end_reasoning()
        if self._has_text:
            self._has_text = False
            yield TextMessageEndEvent(message_id=self._id, subagent_run_id=self._owner)
        for call_id in self._calls.values():
            yield ToolCallEndEvent(tool_call_id=call_id, subagent_run_id=self._owner)
        self._calls = {}
        if self._usage:
            self._run.add_usage(TokenUsage(provider=self._provider, model=self._model, **self._usage))
            self._usage = {}

    def _text(self, text: str) -> Iterator[Event]:
        yield from self._end_reasoning()
        if not self._has_text:
            self._has_text = True
            yield TextMessageStartEvent(
                message_id=self._id, role=self._role, name=self._name, subagent_run_id=self._owner
            )
        yield TextMessageContentEvent(message_id=self._id, delta=text, subagent_run_id=self._owner)

    def _reasoning(self, content: ReasoningContent) -> Iterator[Event]:
        if self._thought is None:
            self._thoughts += 1
            self._thought = f"{self._id}-reasoning" + (f"-{self._thoughts}" if self._thoughts > 1 else "")
            yield ReasoningStartEvent(message_id=self._thought, subagent_run_id=self._owner)
            yield ReasoningMessageStartEvent(message_id=self._thought, role="reasoning", subagent_run_id=self._owner)
        if content.text != "":
            yield ReasoningMessageContentEvent(
                message_id=self._thought, delta=content.text, subagent_run_id=self._owner
            )
        if content.protected_data is not None:
            yield ReasoningEncryptedValueEvent(
                subtype="message",
                entity_id=self._thought,
                encrypted_value=content.protected_data,
                subagent_run_id=self._owner,
            )

    def _end_reasoning(self) -> Iterator[Event]:
        thought, self._thought = self._thought, None
        if thought is not None:
            yield ReasoningMessageEndEvent(message_id=thought, subagent_run_id=self._owner)
            yield ReasoningEndEvent(message_id=thought, subagent_run_id=self._owner)

    def _call_piece(self, piece: dict[str, Any]) -> Iterator[Event]:
        index, call_id = piece.get("index"), piece.get("id")
        if call_id and call_id != self._calls.get(index):
            if index in self._calls:  # some models number all calls alike
                yield ToolCallEndEvent(tool_call_id=self._calls[index], subagent_run_id=self._owner)
            self._calls[index] = call_id
            yield from self._start_call(call_id, piece.get("name") or "")
        if piece.get("args") and index in self._calls:
            yield ToolCallArgsEvent(tool_call_id=self._calls[index], delta=piece["args"], subagent_run_id=self._owner)

    def _start_call(self, call_id: str, name: str) -> Iterator[Event]:
        yield from self._end_reasoning()
        yield ToolCallStartEvent(
            tool_call_id=call_id, tool_call_name=name, parent_message_id=self._id, subagent_run_id=self._owner
        )

    def _count(self, message: Any) -> None:
        about: dict[str, Any] = getattr(message, "response_metadata", None) or {}
        self._model = about.get("model_name") or self._model
        self._provider = about.get("model_provider") or self._provider
        usage = getattr(message, "usage_metadata", None)
        if not usage:
            return
        read: dict[str, Any] = usage.get("input_token_details") or {}
        written: dict[str, Any] = usage.get("output_token_details") or {}
        for name, value in (
            ("input_tokens", usage.get("input_tokens")),
            ("output_tokens", usage.get("output_tokens")),
            ("total_tokens", usage.get("total_tokens")),
            ("cached_input_tokens", read.get("cache_read")),
            ("cache_write_input_tokens", read.get("cache_creation")),
            ("reasoning_tokens", written.get("reasoning")),
        ):
            if value is not None:
                self._usage[name] = self._usage.get(name, 0) + value
