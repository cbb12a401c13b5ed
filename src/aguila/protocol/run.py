"""The input of a run, its outcomes, interrupts and usage (IN, INT, LIFE, USE)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec

from aguila.protocol._base import AnyJSON, Count, Described, Maybe, Metadata, Tagged, Wire
from aguila.protocol.messages import Message

PROTOCOL_VERSION = "1.1"
"""The protocol version that Aguila implements and declares (VER-1, VER-2)."""

State = Any
"""The state that an agent shares with its user interface: any JSON value."""

ResumeStatus = Literal["resolved", "cancelled"]
"""Whether an interrupt was answered or declined."""


class Tool(Described, frozen=True, kw_only=True):
    """A tool that the front end offers. ``parameters`` is a JSON Schema by convention."""

    parameters: Maybe[AnyJSON] = None
    metadata: Maybe[Metadata] = None


class Context(Wire, frozen=True, kw_only=True):
    """Information that the application gives to the model (IN-10)."""

    description: str
    value: str


class ResumeEntry(Wire, frozen=True, kw_only=True):
    """The answer to an interrupt, or the response that declines it (INT-7, INT-8)."""

    interrupt_id: str
    status: ResumeStatus
    payload: Maybe[AnyJSON] = None
    metadata: Maybe[Metadata] = None


class RunAgentInput(Wire, frozen=True, kw_only=True):
    """The request for a run: the whole history for the agent, its tools, context and state (IN-5)."""

    thread_id: str
    run_id: str
    messages: list[Message]
    protocol_version: Maybe[str] = None
    parent_run_id: Maybe[str] = None
    state: Maybe[AnyJSON] = None
    tools: Maybe[list[Tool]] = None
    context: Maybe[list[Context]] = None
    forwarded_props: Maybe[AnyJSON] = None
    resume: Maybe[list[ResumeEntry]] = None


class Interrupt(Wire, frozen=True, kw_only=True):
    """A question that a run was interrupted for (INT-4)."""

    id: str
    reason: str
    message: Maybe[str] = None
    tool_call_id: Maybe[str] = None
    response_schema: Maybe[dict[str, Any]] = None
    expires_at: Maybe[str] = None
    metadata: Maybe[Metadata] = None
    subagent_run_id: Maybe[str] = None


class RunFinishedSuccessOutcome(Tagged, tag_field="type", tag="success", frozen=True, kw_only=True):
    """The run succeeded. Calls left to the front end are listed (FT-3)."""

    type: ClassVar[Literal["success"]] = "success"
    pending_tool_call_ids: Maybe[list[str]] = None


class RunFinishedInterruptOutcome(Tagged, tag_field="type", tag="interrupt", frozen=True, kw_only=True):
    """The run is interrupted. It continues in a later run that answers every interrupt (INT-1)."""

    type: ClassVar[Literal["interrupt"]] = "interrupt"
    interrupts: Annotated[list[Interrupt], msgspec.Meta(min_length=1)]


class RunFinishedCancelledOutcome(Tagged, tag_field="type", tag="cancelled", frozen=True, kw_only=True):
    """The run was cancelled on purpose: neither success nor failure (LIFE-8, LIFE-11)."""

    type: ClassVar[Literal["cancelled"]] = "cancelled"


RunFinishedOutcome = RunFinishedSuccessOutcome | RunFinishedInterruptOutcome | RunFinishedCancelledOutcome
"""How a run that did not fail has ended. Absent means success (LIFE-3)."""


class SubagentFinishedSuccessOutcome(Tagged, tag_field="type", tag="success", frozen=True, kw_only=True):
    """The subagent succeeded."""

    type: ClassVar[Literal["success"]] = "success"


class SubagentFinishedSuspendedOutcome(Tagged, tag_field="type", tag="suspended", frozen=True, kw_only=True):
    """The subagent waits for the answers to interrupts, and may continue in a later run (SUB-7)."""

    type: ClassVar[Literal["suspended"]] = "suspended"
    interrupt_ids: Maybe[list[str]] = None


SubagentFinishedOutcome = SubagentFinishedSuccessOutcome | SubagentFinishedSuspendedOutcome
"""How an invocation of a subagent has ended. Absent means success."""


class TokenUsage(Wire, frozen=True, kw_only=True):
    """Tokens of one provider and model. Totals include their parts; unknown is absent, never 0 (USE-2 to USE-5)."""

    provider: Maybe[str] = None
    model: Maybe[str] = None
    input_tokens: Maybe[Count] = None
    output_tokens: Maybe[Count] = None
    total_tokens: Maybe[Count] = None
    reasoning_tokens: Maybe[Count] = None
    cached_input_tokens: Maybe[Count] = None
    cache_write_input_tokens: Maybe[Count] = None
