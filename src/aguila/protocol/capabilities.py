"""What an agent declares about itself (CAP).

Every field is optional. Absent means undeclared, not unsupported (CAP-2). Only ``False`` means unsupported.
"""

from __future__ import annotations

from typing import Any

from aguila.protocol._base import Count, Maybe, Metadata, Wire
from aguila.protocol.run import Tool


class IdentityCapabilities(Wire, frozen=True, kw_only=True):
    """The name and version of the agent."""

    name: Maybe[str] = None
    type: Maybe[str] = None
    description: Maybe[str] = None
    version: Maybe[str] = None
    provider: Maybe[str] = None
    documentation_url: Maybe[str] = None
    metadata: Maybe[Metadata] = None


class TransportCapabilities(Wire, frozen=True, kw_only=True):
    """The transports that the agent supports."""

    streaming: Maybe[bool] = None
    websocket: Maybe[bool] = None
    http_binary: Maybe[bool] = None
    push_notifications: Maybe[bool] = None
    resumable: Maybe[bool] = None


class ToolsCapabilities(Wire, frozen=True, kw_only=True):
    """The agent's own tools, and its support for front-end tools (CAP-7)."""

    supported: Maybe[bool] = None
    items: Maybe[list[Tool]] = None
    parallel_calls: Maybe[bool] = None
    client_provided: Maybe[bool] = None


class OutputCapabilities(Wire, frozen=True, kw_only=True):
    """What the agent can produce besides text."""

    structured_output: Maybe[bool] = None
    supported_mime_types: Maybe[list[str]] = None


class StateCapabilities(Wire, frozen=True, kw_only=True):
    """How the agent shares and stores state."""

    snapshots: Maybe[bool] = None
    deltas: Maybe[bool] = None
    memory: Maybe[bool] = None
    persistent_state: Maybe[bool] = None


class SubagentInfo(Wire, frozen=True, kw_only=True):
    """A subagent that the agent can invoke (a definition, not an invocation)."""

    name: str
    description: Maybe[str] = None


class MultiAgentCapabilities(Wire, frozen=True, kw_only=True):
    """How the agent works with other agents."""

    supported: Maybe[bool] = None
    delegation: Maybe[bool] = None
    handoffs: Maybe[bool] = None
    subagents: Maybe[list[SubagentInfo]] = None


class ReasoningCapabilities(Wire, frozen=True, kw_only=True):
    """Whether and how the agent shows its reasoning."""

    supported: Maybe[bool] = None
    streaming: Maybe[bool] = None
    encrypted: Maybe[bool] = None


class MultimodalInputCapabilities(Wire, frozen=True, kw_only=True):
    """The kinds of parts that the agent can read."""

    image: Maybe[bool] = None
    audio: Maybe[bool] = None
    video: Maybe[bool] = None
    pdf: Maybe[bool] = None
    file: Maybe[bool] = None


class MultimodalOutputCapabilities(Wire, frozen=True, kw_only=True):
    """The kinds of parts that the agent can produce."""

    image: Maybe[bool] = None
    audio: Maybe[bool] = None


class MultimodalCapabilities(Wire, frozen=True, kw_only=True):
    """Media that the agent can read and produce."""

    input: Maybe[MultimodalInputCapabilities] = None
    output: Maybe[MultimodalOutputCapabilities] = None


class ExecutionCapabilities(Wire, frozen=True, kw_only=True):
    """How the agent runs code, and its limits (``max_execution_time`` in milliseconds)."""

    code_execution: Maybe[bool] = None
    sandboxed: Maybe[bool] = None
    max_iterations: Maybe[Count] = None
    max_execution_time: Maybe[Count] = None


class HumanInTheLoopCapabilities(Wire, frozen=True, kw_only=True):
    """How humans take part in a run."""

    supported: Maybe[bool] = None
    approvals: Maybe[bool] = None
    interventions: Maybe[bool] = None
    feedback: Maybe[bool] = None
    interrupts: Maybe[bool] = None
    approve_with_edits: Maybe[bool] = None


class AgentCapabilities(Wire, frozen=True, kw_only=True):
    """All capabilities of an agent."""

    identity: Maybe[IdentityCapabilities] = None
    transport: Maybe[TransportCapabilities] = None
    tools: Maybe[ToolsCapabilities] = None
    output: Maybe[OutputCapabilities] = None
    state: Maybe[StateCapabilities] = None
    multi_agent: Maybe[MultiAgentCapabilities] = None
    reasoning: Maybe[ReasoningCapabilities] = None
    multimodal: Maybe[MultimodalCapabilities] = None
    execution: Maybe[ExecutionCapabilities] = None
    human_in_the_loop: Maybe[HumanInTheLoopCapabilities] = None
    custom: Maybe[dict[str, Any]] = None
