"""Layer: stream. The producer's side: a method for everything a run can say.

Above: the server's ``Run`` handle, and anyone who writes a stream by hand. Below: ``emit``, which decides whether it
may be said now and remembers that it was. Here are only the words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aguila.protocol import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    ContentPart,
    CustomEvent,
    JsonPatchOperation,
    Message,
    MessagesSnapshotEvent,
    Metadata,
    RawEvent,
    ReasoningEncryptedValueEvent,
    ReasoningEncryptedValueSubtype,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentFinishedOutcome,
    SubagentStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageRole,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguila.stream.documents import own_json
from aguila.stream.emit import Emitter, Events
from aguila.stream.rules import REASONING_MESSAGE, REASONING_SPAN, TEXT, TOOL_CALL


class EventWriter(Emitter):
    """Writes the events of one run, and cannot write an illegal one.

    Every method returns the events to send, in order, or raises ``IllegalStep`` and has changed nothing. Where a method
    names what it opens, the event with the new id is the last one returned. Who writes for a subagent passes its id as
    ``subagent``; continuations get their opener's tag by themselves.

    Only the order is judged, not the values that events hold: what ``emit`` is given is sent as it is, and a NaN in it
    is found when the event is encoded. The methods that take JSON from an agent copy it, which finds it at once.
    """

    # Text

    def start_text(
        self,
        message_id: str | None = None,
        *,
        role: TextMessageRole | None = None,
        name: str | None = None,
        subagent: str | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """Open a text message. An id that was closed before is opened again, and its text goes on (TXT-3)."""
        return self.write(
            TextMessageStartEvent(
                message_id=self._id(message_id), role=role, name=name, subagent_run_id=subagent, metadata=metadata
            )
        )

    def write_text(self, message_id: str, delta: str, *, metadata: Metadata | None = None) -> Events:
        """More text of an open message."""
        tag = self._verifier.tag_of(TEXT, message_id)
        return self.write(
            TextMessageContentEvent(message_id=message_id, delta=delta, subagent_run_id=tag, metadata=metadata)
        )

    def end_text(self, message_id: str, *, metadata: Metadata | None = None) -> Events:
        """Close a text message."""
        tag = self._verifier.tag_of(TEXT, message_id)
        return self.write(TextMessageEndEvent(message_id=message_id, subagent_run_id=tag, metadata=metadata))

    # Tool calls

    def start_tool_call(
        self,
        name: str,
        tool_call_id: str | None = None,
        *,
        parent_message_id: str | None = None,
        subagent: str | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """Open a tool call, on the message named as its parent."""
        return self.write(
            ToolCallStartEvent(
                tool_call_id=self._id(tool_call_id),
                tool_call_name=name,
                parent_message_id=parent_message_id,
                subagent_run_id=subagent,
                metadata=metadata,
            )
        )

    def write_tool_args(self, tool_call_id: str, delta: str, *, metadata: Metadata | None = None) -> Events:
        """More of an open call's argument text."""
        tag = self._verifier.tag_of(TOOL_CALL, tool_call_id)
        return self.write(
            ToolCallArgsEvent(tool_call_id=tool_call_id, delta=delta, subagent_run_id=tag, metadata=metadata)
        )

    def end_tool_call(self, tool_call_id: str, *, metadata: Metadata | None = None) -> Events:
        """Close a tool call: its arguments are complete (TOOL-3)."""
        tag = self._verifier.tag_of(TOOL_CALL, tool_call_id)
        return self.write(ToolCallEndEvent(tool_call_id=tool_call_id, subagent_run_id=tag, metadata=metadata))

    def tool_result(
        self,
        tool_call_id: str,
        content: str | list[ContentPart],
        *,
        message_id: str | None = None,
        subagent: str | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """Answer a call, as a tool message with an id of its own (TOOL-5)."""
        return self.write(
            ToolCallResultEvent(
                message_id=self._id(message_id),
                tool_call_id=tool_call_id,
                content=content,
                role="tool",
                subagent_run_id=subagent,
                metadata=metadata,
            )
        )

    # Reasoning

    def start_reasoning(
        self, span_id: str | None = None, *, subagent: str | None = None, metadata: Metadata | None = None
    ) -> Events:
        """Open a span of reasoning, which may hold several reasoning messages and is none itself (RSN-2)."""
        return self.write(
            ReasoningStartEvent(message_id=self._id(span_id), subagent_run_id=subagent, metadata=metadata)
        )

    def end_reasoning(self, span_id: str, *, metadata: Metadata | None = None) -> Events:
        """Close a span of reasoning."""
        tag = self._verifier.tag_of(REASONING_SPAN, span_id)
        return self.write(ReasoningEndEvent(message_id=span_id, subagent_run_id=tag, metadata=metadata))

    def start_reasoning_message(
        self, message_id: str | None = None, *, subagent: str | None = None, metadata: Metadata | None = None
    ) -> Events:
        """Open a reasoning message."""
        return self.write(
            ReasoningMessageStartEvent(
                message_id=self._id(message_id), role="reasoning", subagent_run_id=subagent, metadata=metadata
            )
        )

    def write_reasoning(self, message_id: str, delta: str, *, metadata: Metadata | None = None) -> Events:
        """More text of an open reasoning message."""
        tag = self._verifier.tag_of(REASONING_MESSAGE, message_id)
        return self.write(
            ReasoningMessageContentEvent(message_id=message_id, delta=delta, subagent_run_id=tag, metadata=metadata)
        )

    def end_reasoning_message(self, message_id: str, *, metadata: Metadata | None = None) -> Events:
        """Close a reasoning message."""
        tag = self._verifier.tag_of(REASONING_MESSAGE, message_id)
        return self.write(ReasoningMessageEndEvent(message_id=message_id, subagent_run_id=tag, metadata=metadata))

    def encrypted_value(
        self,
        subtype: ReasoningEncryptedValueSubtype,
        entity_id: str,
        value: str,
        *,
        value_type: str | None = None,
        subagent: str | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """Hand the consumer an opaque artefact to keep with a message or call and to return (ENC-1)."""
        return self.write(
            ReasoningEncryptedValueEvent(
                subtype=subtype,
                entity_id=entity_id,
                encrypted_value=value,
                encrypted_value_type=value_type,
                subagent_run_id=subagent,
                metadata=metadata,
            )
        )

    # Steps and subagents

    def start_step(self, name: str, *, subagent: str | None = None, metadata: Metadata | None = None) -> Events:
        """Open a step; its name may be open once per owner (STEP-1)."""
        return self.write(StepStartedEvent(step_name=name, subagent_run_id=subagent, metadata=metadata))

    def finish_step(self, name: str, *, subagent: str | None = None, metadata: Metadata | None = None) -> Events:
        """Close a step of the same owner (STEP-4)."""
        return self.write(StepFinishedEvent(step_name=name, subagent_run_id=subagent, metadata=metadata))

    def start_subagent(
        self,
        name: str,
        subagent_run_id: str | None = None,
        *,
        description: str | None = None,
        parent_subagent_run_id: str | None = None,
        parent_tool_call_id: str | None = None,
        parent_message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """Announce one invocation of a subagent."""
        return self.write(
            SubagentStartedEvent(
                subagent_run_id=self._id(subagent_run_id),
                name=name,
                description=description,
                parent_subagent_run_id=parent_subagent_run_id,
                parent_tool_call_id=parent_tool_call_id,
                parent_message_id=parent_message_id,
                metadata=metadata,
            )
        )

    def finish_subagent(
        self,
        subagent_run_id: str,
        result: Any = None,
        *,
        outcome: SubagentFinishedOutcome | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """Close what this invocation left open, then the invocation."""
        return self._end_subagent(
            SubagentFinishedEvent(subagent_run_id=subagent_run_id, result=result, outcome=outcome, metadata=metadata)
        )

    def fail_subagent(
        self, subagent_run_id: str, message: str, code: str | None = None, *, metadata: Metadata | None = None
    ) -> Events:
        """Close what this invocation left open, then report that it failed; the run goes on (SUB-6)."""
        return self._end_subagent(
            SubagentErrorEvent(subagent_run_id=subagent_run_id, message=message, code=code, metadata=metadata)
        )

    # Messages, activities, and the rest

    def messages_snapshot(self, messages: Sequence[Message], *, metadata: Metadata | None = None) -> Events:
        """Restate the messages (MSGS-1)."""
        return self.write(MessagesSnapshotEvent(messages=list(messages), metadata=metadata))

    def activity_snapshot(
        self,
        activity_type: str,
        content: dict[str, Any],
        message_id: str | None = None,
        *,
        replace: bool | None = None,
        subagent: str | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """Create an activity message, or replace its content."""
        return self.write(
            ActivitySnapshotEvent(
                message_id=self._id(message_id),
                activity_type=activity_type,
                content=own_json(content),
                replace=replace,
                subagent_run_id=subagent,
                metadata=metadata,
            )
        )

    def activity_delta(
        self,
        message_id: str,
        patch: Sequence[JsonPatchOperation],
        *,
        activity_type: str | None = None,
        subagent: str | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """Change an activity's content by a JSON Patch; its type stays unless another one is given (ACT-7)."""
        if activity_type is None:
            activity_type = self._duties.activity_types.get(message_id, "")
        return self.write(
            ActivityDeltaEvent(
                message_id=message_id,
                activity_type=activity_type,
                patch=own_json(list(patch)),
                subagent_run_id=subagent,
                metadata=metadata,
            )
        )

    def custom(self, name: str, value: Any, *, subagent: str | None = None, metadata: Metadata | None = None) -> Events:
        """An event whose meaning the application defines."""
        return self.write(CustomEvent(name=name, value=own_json(value), subagent_run_id=subagent, metadata=metadata))

    def raw(
        self,
        event: Any,
        *,
        source: str | None = None,
        subagent: str | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """An event of another system, beside the standard events that say the same (PASS-3)."""
        return self.write(RawEvent(event=own_json(event), source=source, subagent_run_id=subagent, metadata=metadata))
