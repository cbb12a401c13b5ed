"""The list of compatibility rules: every older shape that is accepted, by name.

A rule is a function of a raw value and a ``RuleContext``. It returns the same object if nothing changes, never changes
its argument, and never repairs a malformed known value (VER-14) unless its level is ``wide``. No other code
accepts older shapes.
"""

from __future__ import annotations

from aguila.codec.compat import documents, events, spelling
from aguila.codec.compat.context import Rule


def _null(name: str, member: str, *places: str) -> Rule:
    """Make a rule that reads a null member as absent: those of ERA-5, and two that the founding documents need."""
    return Rule(name, (32,), f"a null {member} is read as absent", places, spelling.drop_null(member))


_SPELLING = (
    Rule(
        name="part-type-case",
        rows=(36,),
        summary="a part's type in another case is read in lower case",
        places=("ContentPart",),
        apply=spelling.part_type_case,
        stage="spelling",
    ),
    Rule(
        name="snake-case",
        level="wide",
        rows=(31,),
        summary="snake_case members are read as camelCase",
        places=("*",),
        apply=spelling.snake_case,
        stage="spelling",
    ),
)

_EVENTS = (
    _null("null-raw-event", "rawEvent", "Event"),
    _null("null-result", "result", "RunFinishedEvent", "SubagentFinishedEvent"),
    _null("null-outcome", "outcome", "RunFinishedEvent"),
    _null("null-parent-message-id", "parentMessageId", "ToolCallStartEvent", "ToolCallChunkEvent"),
    # Not in ERA-5: older servers send both, and a refused RUN_ERROR would hide the error that it reports.
    _null("null-error-code", "code", "RunErrorEvent"),
    _null("null-parent-run-id", "parentRunId", "RunStartedEvent"),
    Rule(
        name="step-by-id",
        rows=(1,),
        summary="a step is identified by its stepName, made unique if needed; its stepId is kept as metadata",
        places=("StepStartedEvent", "StepFinishedEvent"),
        apply=events.step_by_id,
    ),
    Rule(
        name="activity-id",
        rows=(2, 3),
        summary="activityId, state and delta are read as messageId, content and patch",
        places=("ActivitySnapshotEvent", "ActivityDeltaEvent"),
        apply=events.activity_id,
    ),
    Rule(
        name="thinking-events",
        rows=(4,),
        summary="THINKING_* is read as REASONING_*",
        places=(
            "ThinkingStartEvent",
            "ThinkingTextMessageStartEvent",
            "ThinkingTextMessageContentEvent",
            "ThinkingTextMessageEndEvent",
            "ThinkingEndEvent",
        ),
        apply=events.thinking,
    ),
    Rule(
        name="reasoning-role",
        rows=(5,),
        summary="a reasoning message of the role 'assistant' is read as one of the role 'reasoning'",
        places=("ReasoningMessageStartEvent",),
        apply=events.reasoning_role,
    ),
    Rule(
        name="reasoning-encrypted-content",
        rows=(6,),
        summary="encryptedContent is read as the encrypted value of the reasoning message",
        places=(
            "ReasoningStartEvent",
            "ReasoningMessageStartEvent",
            "ReasoningMessageChunkEvent",
            "ReasoningEndEvent",
        ),
        apply=events.encrypted_content,
    ),
    Rule(
        name="sibling-interrupt",
        rows=(7,),
        summary="an interrupt beside the outcome is read as part of it",
        places=("RunFinishedEvent",),
        apply=events.sibling_interrupt,
    ),
    Rule(
        name="string-outcome",
        rows=(7,),
        summary="an outcome that is a string is read as an object of that type",
        places=("RunFinishedOutcome",),
        apply=events.string_outcome,
    ),
    Rule(
        name="custom-value",
        level="wide",
        rows=(20,),
        summary="a CUSTOM event without value has the value null",
        places=("CustomEvent",),
        apply=events.custom_value,
    ),
    Rule(
        name="meta-event",
        rows=(23,),
        summary="META in a run is read as RAW with the source 'meta'",
        places=("MetaEvent",),
        apply=events.meta_event,
    ),
    Rule(
        name="iso-timestamp",
        level="wide",
        rows=(25,),
        summary="a timestamp in ISO 8601 is read as milliseconds",
        places=("Event",),
        apply=events.iso_timestamp,
    ),
)

_DOCUMENTS = (
    _null("null-forwarded-props", "forwardedProps", "RunAgentInput"),
    _null("null-state", "state", "RunAgentInput"),
    _null("null-tool-parameters", "parameters", "Tool"),
    _null("null-part-metadata", "metadata", "ImagePart", "AudioPart", "VideoPart", "DocumentPart"),
    Rule(
        name="interrupt-payload",
        rows=(8,),
        summary="an interrupt's payload is read as reason, message and toolCallId",
        places=("Interrupt",),
        apply=documents.interrupt_payload,
    ),
    Rule(
        name="single-resume-object",
        rows=(9,),
        summary="a resume object is read as a list",
        places=("ResumeEntry[]",),
        apply=documents.single_resume,
    ),
    Rule(
        name="resume-aliases",
        rows=(9,),
        summary="an alias of interruptId or payload is read as that name",
        places=("ResumeEntry",),
        apply=documents.resume_aliases,
    ),
    _null("null-resume-payload", "payload", "ResumeEntry"),
    Rule(
        name="resume-status",
        rows=(9,),
        summary="a resume entry without status is read as resolved",
        places=("ResumeEntry",),
        apply=documents.resume_status,
    ),
    Rule(
        name="binary-part",
        rows=(11, 12, 13),
        summary="a binary part is read as the media part of its MIME type",
        places=("ContentPart[]", "ContentPart"),
        apply=documents.binary_part,
    ),
    Rule(
        name="message-id",
        rows=(17,),
        summary="a message without id is given one",
        places=("Message[]", "Message"),
        apply=documents.message_id,
    ),
    Rule(
        name="tool-description",
        rows=(26,),
        summary="a tool without description has an empty one",
        places=("Tool",),
        apply=documents.tool_description,
    ),
    Rule(
        name="tool-call-type",
        level="wide",
        rows=(),
        summary="a tool call without type is read as a function",
        places=("ToolCall",),
        apply=documents.tool_call_type,
    ),
    Rule(
        name="subagents-alias",
        rows=(33,),
        summary="subAgents is read as subagents",
        places=("MultiAgentCapabilities",),
        apply=documents.subagents_alias,
    ),
)

_NULLS = (
    Rule(
        name="null-optional",
        level="wide",
        rows=(32,),
        summary="a null in an optional place is read as absent",
        places=("*",),
        apply=spelling.null_optional,
        stage="nulls",
    ),
)

RULES: tuple[Rule, ...] = (*_SPELLING, *_EVENTS, *_DOCUMENTS, *_NULLS)
"""All rules. The rules of one place apply in this order."""
