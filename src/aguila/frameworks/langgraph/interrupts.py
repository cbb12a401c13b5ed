"""Convert the interrupts of LangGraph to ours, and the answers to those that LangGraph expects.

Most interrupts pass with their value and get the answer as it was sent. LangChain's approvals are asked as approvals of
tool calls, one interrupt for each call, so that every client can answer them. A breakpoint (``interrupt_before`` and
``interrupt_after``) asks whether to continue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from aguila.agent.questions import APPROVAL_SCHEMA
from aguila.agent.run import Run
from aguila.codec.json.values import is_array, is_object
from aguila.protocol import Interrupt, ResumeEntry

_REASON: Final = "langgraph:interrupt"
_BREAKPOINT: Final = "breakpoint:"


def ask(snapshot: Any, run: Run) -> list[Interrupt]:
    """Return the interrupts that a graph waits for. ``snapshot`` is its state after the run."""
    asked = [each for one in snapshot.interrupts for each in _convert(one, snapshot)]
    if not asked and snapshot.next:
        nodes = ", ".join(snapshot.next)
        asked.append(Interrupt(id=f"{_BREAKPOINT}{run.run_id}", reason="breakpoint", message=f"Continue with {nodes}?"))
    return asked


def _convert(one: Any, snapshot: Any) -> list[Interrupt]:
    value = one.value
    if (calls := _batched(value)) is not None:
        ids = _call_ids(snapshot, calls)
        return [_approval(f"{one.id}:{at}", call, ids[at]) for at, call in enumerate(calls)]
    if _is_approval(value):
        return [_approval(one.id, value, value.get("tool_call_id"))]
    about: dict[str, Any] = value if is_object(value) else {}
    reason = about.get("reason")
    message = value if isinstance(value, str) else about.get("message", about.get("question"))
    schema = _first(about, "responseSchema", "response_schema")
    if schema is None and is_object(one.response_schema):
        schema = one.response_schema
    return [
        Interrupt(
            id=one.id,
            reason=reason if isinstance(reason, str) else _REASON,
            message=message if isinstance(message, str) else None,
            tool_call_id=_first(about, "toolCallId", "tool_call_id"),
            response_schema=schema,
            expires_at=_first(about, "expiresAt", "expires_at"),
            metadata={"langgraph": {"raw": msgspec.to_builtins(value)}},
        )
    ]


def _first(about: dict[str, Any], *names: str) -> Any:
    return next((about[name] for name in names if about.get(name) is not None), None)


def _approval(interrupt_id: str, call: dict[str, Any], call_id: str | None) -> Interrupt:
    return Interrupt(
        id=interrupt_id,
        reason="tool_call",
        message=call.get("description") or f"Allow the call of {call['name']}?",
        tool_call_id=call_id,
        response_schema=APPROVAL_SCHEMA,
        metadata={"langgraph": {"raw": msgspec.to_builtins(call)}},
    )


def _batched(value: Any) -> list[dict[str, Any]] | None:
    """Return the calls of a HITLRequest of LangChain's HumanInTheLoopMiddleware."""
    if not is_object(value) or "review_configs" not in value:
        return None
    calls = value.get("action_requests")
    return calls if is_array(calls) and all(is_object(call) and "name" in call for call in calls) else None


def _is_approval(value: Any) -> bool:
    """Return whether a value is a ToolApprovalRequest of the same middleware."""
    return is_object(value) and value.get("type") == "tool_approval" and "name" in value


def _call_ids(snapshot: Any, calls: Sequence[dict[str, Any]]) -> list[str | None]:
    """Find the ids of the calls of an approval in the last answer, which the request does not name."""
    values: Any = snapshot.values
    messages: Any = values.get("messages") if is_object(values) else None
    made: list[Any] = list(messages[-1].tool_calls) if messages and messages[-1].type == "ai" else []
    found: list[str | None] = []
    for call in calls:
        at = next(
            (i for i, one in enumerate(made) if one["name"] == call["name"] and one["args"] == call["args"]), None
        )
        found.append(None if at is None else made.pop(at)["id"])
    return found


def read_answers(snapshot: Any, resume: Sequence[ResumeEntry]) -> dict[str, Any] | None:
    """Return the answers by the ids of LangGraph's interrupts; None to continue after a breakpoint.

    Raise LookupError for questions that the checkpoint does not have: the graph would run from its start, or repeat a
    node.
    """
    given = {entry.interrupt_id: entry.payload for entry in resume}
    if all(one.startswith(_BREAKPOINT) for one in given):
        if snapshot is None or not snapshot.next:
            raise LookupError(_not_waiting(given, snapshot))
        return None
    answers: dict[str, Any] = {}
    for one in () if snapshot is None else snapshot.interrupts:
        calls = _batched(one.value)
        if calls is not None:
            named = [f"{one.id}:{at}" for at in range(len(calls))]
            decisions = [_decision(given.pop(name, None), call) for name, call in zip(named, calls, strict=True)]
            answers[one.id] = {"decisions": decisions}
        elif one.id in given:
            payload = given.pop(one.id)
            answers[one.id] = _decision(payload, one.value) if _is_approval(one.value) else payload
    if given:
        raise LookupError(_not_waiting(given, snapshot))
    return answers


def _not_waiting(ids: Iterable[str], snapshot: Any) -> str:
    names = ", ".join(ids)
    if snapshot is not None and snapshot.values:
        reason = "a run that used the answers failed, or its process died"
        return f"the graph is past the answered interrupts {names}: {reason}; cancel them to continue the thread"
    fix = "compile the graph with a checkpointer that outlives the process"
    return f"the graph's checkpointer does not have the answered interrupts {names}; {fix}"


def _decision(payload: Any, call: dict[str, Any]) -> Any:
    """Return LangChain's decision for an approval. One that is already in LangChain's form stays."""
    if not is_object(payload) or "type" in payload:
        return payload
    if payload.get("approved") is not True:
        reason = payload.get("reason")
        return {"type": "reject", **({"message": reason} if isinstance(reason, str) else {})}
    edited = payload.get("editedArgs")
    if edited is None:
        return {"type": "approve"}
    return {"type": "edit", "edited_action": {"name": call["name"], "args": edited}}
