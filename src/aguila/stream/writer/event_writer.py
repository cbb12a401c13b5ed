"""``EventWriter``: one method for each kind of event that a run can write."""

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
from aguila.stream.json_values import copy_json
from aguila.stream.verification.rules import REASONING_MESSAGE, REASONING_SPAN, TEXT, TOOL_CALL
from aguila.stream.writer.run_writer import Events, RunWriter


class EventWriter(RunWriter):
    """Write the events of one run, and never an illegal one.

    Every method returns the events to send, in order. If a rule would be broken, it raises ``IllegalStep`` and the
    writer is unchanged. If a method makes a new id, the event with that id is the last one returned. To write for a
    subagent, pass its id as ``subagent`` when you open an item; later events of the item get the same tag.

    Only the order of events is checked, not their values. An event passed to ``emit`` is sent as it is, and a NaN in it
    is found when the event is encoded. Methods that take JSON values copy and check them at once.
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
        """Open a text message. The id of a closed message opens it again, and text is appended (TXT-3).

        The role, ``assistant`` by default, is always written: the .NET SDK 0.0.5 fails without one.
        """
        return self.write(
            TextMessageStartEvent(
                message_id=self._id(message_id),
                role="assistant" if role is None else role,
                name=name,
                subagent_run_id=subagent,
                metadata=metadata,
            )
        )

    def write_text(self, message_id: str, delta: str, *, metadata: Metadata | None = None) -> Events:
        """Append text to an open message."""
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
        """Open a tool call on its parent message."""
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
        """Append text to the arguments of an open call."""
        tag = self._verifier.tag_of(TOOL_CALL, tool_call_id)
        return self.write(
            ToolCallArgsEvent(tool_call_id=tool_call_id, delta=delta, subagent_run_id=tag, metadata=metadata)
        )

    def end_tool_call(self, tool_call_id: str, *, metadata: Metadata | None = None) -> Events:
        """Close a tool call, whose arguments are then complete (TOOL-3)."""
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
        """Write the result of a call, as a tool message with its own id (TOOL-5)."""
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
        """Open a reasoning span, which may contain several reasoning messages and is not a message itself (RSN-2)."""
        return self.write(
            ReasoningStartEvent(message_id=self._id(span_id), subagent_run_id=subagent, metadata=metadata)
        )

    def end_reasoning(self, span_id: str, *, metadata: Metadata | None = None) -> Events:
        """Close a reasoning span."""
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
        """Append text to an open reasoning message."""
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
        """Write an opaque value that the consumer stores with a message or call and sends back (ENC-1)."""
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
        """Open a step. Each owner may have one open step of a name (STEP-1)."""
        return self.write(StepStartedEvent(step_name=name, subagent_run_id=subagent, metadata=metadata))

    def finish_step(self, name: str, *, subagent: str | None = None, metadata: Metadata | None = None) -> Events:
        """Close a step of this owner (STEP-4)."""
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
        """Announce an invocation of a subagent."""
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
        """Close the open items of an invocation, then the invocation."""
        return self.end_subagent(
            SubagentFinishedEvent(subagent_run_id=subagent_run_id, result=result, outcome=outcome, metadata=metadata)
        )

    def fail_subagent(
        self, subagent_run_id: str, message: str, code: str | None = None, *, metadata: Metadata | None = None
    ) -> Events:
        """Close the open items of an invocation, then report its failure. The run continues (SUB-6)."""
        return self.end_subagent(
            SubagentErrorEvent(subagent_run_id=subagent_run_id, message=message, code=code, metadata=metadata)
        )

    # Messages, activities and other events

    def messages_snapshot(self, messages: Sequence[Message], *, metadata: Metadata | None = None) -> Events:
        """Write a snapshot of the messages (MSGS-1)."""
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
                content=copy_json(content),
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
        """Change the content of an activity by a JSON Patch, and its type if one is given (ACT-7)."""
        if activity_type is None:
            activity_type = self._producer_rules.activity_types.get(message_id, "")
        return self.write(
            ActivityDeltaEvent(
                message_id=message_id,
                activity_type=activity_type,
                patch=copy_json(list(patch)),
                subagent_run_id=subagent,
                metadata=metadata,
            )
        )

    def custom(self, name: str, value: Any, *, subagent: str | None = None, metadata: Metadata | None = None) -> Events:
        """Write an event that the application defines."""
        return self.write(CustomEvent(name=name, value=copy_json(value), subagent_run_id=subagent, metadata=metadata))

    def raw(
        self,
        event: Any,
        *,
        source: str | None = None,
        subagent: str | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """Write an event of another system, in addition to the standard events with the same meaning (PASS-3)."""
        return self.write(RawEvent(event=copy_json(event), source=source, subagent_run_id=subagent, metadata=metadata))
