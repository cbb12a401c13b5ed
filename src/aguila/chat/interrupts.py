"""Map interrupts to question contents and resume entries to answer contents, in both directions (INT).

An interrupt for a tool call is an approval request, any other an interrupt request. The mapping is lossless, except
that older spellings of an approval (``accepted``, ``edited_args``, an echoed ``toolCall``) are read but not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aguila.chat.property_keys import METADATA, PAYLOAD, SUBAGENT_RUN_ID
from aguila.chat.types import (
    ApprovalRequestContent,
    ApprovalResponseContent,
    ChatMessage,
    FunctionCallContent,
    InterruptRequestContent,
    InterruptResponseContent,
    Properties,
)
from aguila.codec import encode
from aguila.codec.json.values import is_object
from aguila.protocol import Interrupt, ResumeEntry

TOOL_CALL = "tool_call"
"""The reason of an interrupt that asks for approval of a call."""

Request = ApprovalRequestContent | InterruptRequestContent
Response = ApprovalResponseContent | InterruptResponseContent

_APPROVAL_MEMBERS = frozenset({"approved", "accepted", "editedArgs", "edited_args", "reason", "toolCall"})
_LEGACY = "aguila"  # metadata member in which the compatibility rules keep data of older formats


def read_interrupt(interrupt: Interrupt, calls: Mapping[str, FunctionCallContent]) -> Request:
    """Convert an interrupt to a content. ``calls`` are the calls seen so far, by id."""
    properties: Properties = {}
    if interrupt.metadata is not None:
        properties[METADATA] = interrupt.metadata
    if interrupt.subagent_run_id is not None:
        properties[SUBAGENT_RUN_ID] = interrupt.subagent_run_id
    tool_call_id = interrupt.tool_call_id
    if interrupt.reason == TOOL_CALL and tool_call_id is not None:
        call = calls.get(tool_call_id)
        return ApprovalRequestContent(
            interrupt.id,
            _named_call(interrupt, tool_call_id) if call is None else call,
            message=interrupt.message,
            response_schema=interrupt.response_schema,
            expires_at=interrupt.expires_at,
            additional_properties=properties,
            raw_representation=interrupt,
        )
    return InterruptRequestContent(
        interrupt.id,
        interrupt.reason,
        message=interrupt.message,
        response_schema=interrupt.response_schema,
        expires_at=interrupt.expires_at,
        tool_call_id=tool_call_id,
        additional_properties=properties,
        raw_representation=interrupt,
    )


def _named_call(interrupt: Interrupt, call_id: str) -> FunctionCallContent:
    """Return the call of an approval that the stream did not have. Older peers put it into the interrupt."""
    kept: Any = (interrupt.metadata or {}).get(_LEGACY)
    payload: Any = kept.get("payload") if is_object(kept) else None
    name: Any = payload.get("functionName") if is_object(payload) else None
    if not isinstance(name, str):
        return FunctionCallContent(call_id, "")
    arguments: Any = payload.get("functionArguments")
    if arguments is None:
        return FunctionCallContent(call_id, name)
    text = arguments if isinstance(arguments, str) else encode(arguments).decode()
    return FunctionCallContent(call_id, name, text)


def write_interrupt(content: Request) -> Interrupt:
    """Convert a question content to an interrupt."""
    is_approval = isinstance(content, ApprovalRequestContent)
    properties = content.additional_properties
    return Interrupt(
        id=content.interrupt_id,
        reason=TOOL_CALL if is_approval else content.reason,
        message=content.message,
        tool_call_id=content.call.call_id if is_approval else content.tool_call_id,
        response_schema=content.response_schema,
        expires_at=content.expires_at,
        metadata=properties.get(METADATA),
        subagent_run_id=properties.get(SUBAGENT_RUN_ID),
    )


def read_answer(entry: ResumeEntry) -> Response:
    """Convert a resume entry to a content: an approval if its payload has ``approved``. Other members are kept."""
    properties: Properties = {} if entry.metadata is None else {METADATA: entry.metadata}
    payload: Any = entry.payload
    if entry.status == "resolved" and is_object(payload):
        approved = payload.get("approved", payload.get("accepted"))
        edited = payload.get("editedArgs", payload.get("edited_args"))
        reason = payload.get("reason")
        if isinstance(approved, bool) and (edited is None or is_object(edited)):
            besides = {name: value for name, value in payload.items() if name not in _APPROVAL_MEMBERS}
            if besides:
                properties[PAYLOAD] = besides
            return ApprovalResponseContent(
                entry.interrupt_id,
                approved,
                edited_arguments=edited,
                reason=reason if isinstance(reason, str) else None,
                additional_properties=properties,
                raw_representation=entry,
            )
    return InterruptResponseContent(
        entry.interrupt_id, payload, entry.status, additional_properties=properties, raw_representation=entry
    )


def write_answer(content: Response) -> ResumeEntry:
    """Convert an answer content to a resume entry."""
    metadata = content.additional_properties.get(METADATA)
    if isinstance(content, InterruptResponseContent):
        return ResumeEntry(
            interrupt_id=content.interrupt_id, status=content.status, payload=content.payload, metadata=metadata
        )
    besides = content.additional_properties.get(PAYLOAD)
    payload: dict[str, Any] = {"approved": content.approved, **(besides if is_object(besides) else {})}
    if content.edited_arguments is not None:
        payload["editedArgs"] = content.edited_arguments
    if content.reason is not None:
        payload["reason"] = content.reason
    return ResumeEntry(interrupt_id=content.interrupt_id, status="resolved", payload=payload, metadata=metadata)


def as_resume_entries(messages: Iterable[ChatMessage]) -> list[ResumeEntry]:
    """Convert the answers in chat messages to resume entries, in order. The last answer to a question counts."""
    entries: dict[str, ResumeEntry] = {}
    for message in messages:
        for content in message.contents:
            if isinstance(content, (ApprovalResponseContent, InterruptResponseContent)):
                entries[content.interrupt_id] = write_answer(content)
    return list(entries.values())


def as_response_contents(entries: Iterable[ResumeEntry] | None) -> list[Response]:
    """Convert the answers of a run's input (``input.resume``) to contents."""
    return [] if entries is None else [read_answer(entry) for entry in entries]


def unwrap_response(payload: Any, schema: Any) -> Any:
    """Return the text of an older client's answer ``{"response": text}`` if the schema requires a string."""
    is_text = is_object(schema) and schema.get("type") == "string"
    return payload["response"] if is_text and is_object(payload) and payload.keys() == {"response"} else payload
