"""Compatibility rules for events: steps, activities, thinking, META, outcomes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from aguila.codec.compat.context import OpenStep, Raw, RuleContext, move_to_metadata, omit
from aguila.codec.json.values import is_array, is_object
from aguila.errors import DecodeError


def step_by_id(raw: Raw, context: RuleContext) -> Raw:
    """Read a step with a ``stepId``, whose end may lack the name. Current steps pair by name (STEP-4).

    If a step of that name is open under another id, the step gets a name of its own, and the one it came with is kept
    in the metadata.
    """
    step_id, owner = raw.get("stepId"), raw.get("subagentRunId")
    if not isinstance(step_id, str):
        return raw
    context.report("stepId")
    step: OpenStep | None = None
    if raw["type"] == "STEP_FINISHED":
        step = context.steps.pop(step_id, None)
        if "stepName" not in raw:
            raw = {**raw, "stepName": step_id if step is None else step.given}
    elif (
        isinstance(name := raw.get("stepName"), str) and isinstance(owner, str | None) and step_id not in context.steps
    ):
        step = context.steps[step_id] = OpenStep(owner, _unused_name(name, step_id, owner, context), name)
    if step is None or step.name == step.given or raw["stepName"] != step.given:
        return move_to_metadata(raw, "stepId", "parentStepId", "status", "result")
    return {**move_to_metadata(raw, "stepName", "stepId", "parentStepId", "status", "result"), "stepName": step.name}


def _unused_name(name: str, step_id: str, owner: str | None, context: RuleContext) -> str:
    """Return ``name``, or a name made from it that no open step of this owner has."""
    taken = {step.name for step in context.steps.values() if step.owner == owner}
    unused, count = name, 1
    while unused in taken:
        unused = f"{name} ({step_id})" if count == 1 else f"{name} ({step_id}, {count})"
        count += 1
    return unused


def activity_id(raw: Raw, context: RuleContext) -> Raw:
    """Read an activity with an ``activityId`` and a state of any type as one with a message id and an object."""
    activity = raw.get("activityId")
    if not isinstance(activity, str) or "messageId" in raw:
        return raw
    context.report("activityId")
    event = {**omit(raw, "activityId"), "messageId": activity}
    if raw["type"] == "ACTIVITY_SNAPSHOT":
        if "state" in raw and "content" not in raw:
            state = event.pop("state")
            if is_object(state):
                context.wrapped_activities.discard(activity)
                event["content"] = state
            else:
                context.wrapped_activities.add(activity)
                event["content"] = {"value": state}
        return event
    if "delta" in raw and "patch" not in raw:
        patch = event.pop("delta")
        event["patch"] = _patch_of_value(patch) if activity in context.wrapped_activities else patch
    if "activityType" not in raw:
        event["activityType"] = context.activities.get(activity, "unknown")
    return event


def _patch_of_value(patch: Any) -> Any:
    """Return a patch of a state as a patch of ``{"value": state}``. What is malformed stays, and is refused later."""
    if not is_array(patch):
        return patch
    return [
        {
            name: f"/value{value}" if name in ("path", "from") and isinstance(value, str) else value
            for name, value in operation.items()
        }
        if is_object(operation)
        else operation
        for operation in patch
    ]


_REASONING_TYPES = {
    "THINKING_START": "REASONING_START",
    "THINKING_TEXT_MESSAGE_START": "REASONING_MESSAGE_START",
    "THINKING_TEXT_MESSAGE_CONTENT": "REASONING_MESSAGE_CONTENT",
    "THINKING_TEXT_MESSAGE_END": "REASONING_MESSAGE_END",
    "THINKING_END": "REASONING_END",
}


def thinking(raw: Raw, context: RuleContext) -> Raw:
    """Read THINKING_* as REASONING_*. Each span and each message gets an id, which its later events share (ERA-2)."""
    old: str = raw["type"]
    context.report("type")
    event = {**raw, "type": _REASONING_TYPES[old]}
    opens = old.endswith("_START")
    is_span = old in ("THINKING_START", "THINKING_END")
    if "messageId" not in raw:
        current = context.span if is_span else context.message
        if opens or current is None:
            if not opens:
                # It gets an id, so that the verifier refuses it.
                context.report("type", "thinking continues that was never started")
            current = context.reasoning_id()
        event["messageId"] = current
    still_open = None if old.endswith("_END") else event["messageId"]
    if is_span:
        context.span = still_open
    else:
        context.message = still_open
    if old == "THINKING_TEXT_MESSAGE_START":
        event["role"] = "reasoning"
    if old == "THINKING_START" and event.get("title") is not None:
        context.report("title", "the title of thinking is moved to the metadata")
    return move_to_metadata(event, "title") if old == "THINKING_START" else event


def reasoning_role(raw: Raw, context: RuleContext) -> Raw:
    """Read the role ``assistant`` of a reasoning message, from a draft, as ``reasoning``. It is malformed in 1.x."""
    if raw.get("role") != "assistant" or not (context.is_before_1_0 or context.is_wide):
        return raw
    context.report("role")
    return {**raw, "role": "reasoning"}


def encrypted_content(raw: Raw, context: RuleContext) -> Raw:
    """Read the encrypted value of REASONING_START, from a draft, as that of its message, once the message starts.

    Its message has the id of the span, or is the next one of its owner. If the span ends before, the value gets a
    message without text.
    """
    message_id, owner = raw.get("messageId"), raw.get("subagentRunId")
    if not isinstance(message_id, str):
        return raw
    held = context.encrypted
    if raw["type"] == "REASONING_START":
        value = raw.get("encryptedContent")
        if not isinstance(value, str):
            return raw
        context.report("encryptedContent")
        event = {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "message", "entityId": message_id}
        envelope = {name: raw[name] for name in ("timestamp", "subagentRunId") if name in raw}
        held[message_id] = {**event, "encryptedValue": value, **envelope}
        return omit(raw, "encryptedContent")
    if raw["type"] == "REASONING_END":
        if message_id in held:
            item = {"messageId": message_id} | ({} if owner is None else {"subagentRunId": owner})
            start = {"type": "REASONING_MESSAGE_START", **item, "role": "reasoning"}
            context.preceding += [start, held.pop(message_id), {"type": "REASONING_MESSAGE_END", **item}]
        return raw
    spans = [span for span, event in held.items() if event.get("subagentRunId") == owner]
    span = message_id if message_id in held else spans[-1] if spans else None
    if span is not None:
        context.following.append({**held.pop(span), "entityId": message_id})
    return raw


def meta_event(raw: Raw, context: RuleContext) -> Raw:
    """Read META, from a draft, as RAW. CUSTOM would close the chunk streams that are open around it.

    Outside a run, where RAW is illegal, it stays META.
    """
    if context.run_id is None:
        return raw
    context.report("type")
    envelope = ("timestamp", "rawEvent", "metadata", "subagentRunId")
    kept = {name: raw[name] for name in envelope if name in raw}
    return {"type": "RAW", "event": omit(raw, *envelope), "source": "meta", **kept}


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso_timestamp(raw: Raw, context: RuleContext) -> Raw:
    """Read an ISO 8601 date as milliseconds since 1970. Without an offset it is UTC."""
    text = raw.get("timestamp")
    if not isinstance(text, str):
        return raw
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        milliseconds = (moment - _EPOCH) // timedelta(milliseconds=1)
    except ValueError:
        return raw  # not a date: validation refuses it
    context.report("timestamp")
    return {**raw, "timestamp": milliseconds}


def custom_value(raw: Raw, context: RuleContext) -> Raw:
    """Add the value null to a CUSTOM event that has only a name."""
    if "value" in raw:
        return raw
    context.report("value")
    return {**raw, "value": None}


def sibling_interrupt(raw: Raw, context: RuleContext) -> Raw:
    """Move interrupts beside the outcome into it. The outcome was the string ``interrupt`` or absent.

    Raises ``DecodeError`` if the string has no interrupt beside it.
    """
    outcome = raw.get("outcome", "interrupt")
    is_bare_object = is_object(outcome) and outcome.get("type") == "interrupt" and "interrupts" not in outcome
    if not is_bare_object and outcome != "interrupt":
        return raw
    for member in ("interrupt", "interrupts"):
        found = raw.get(member)
        interrupts: list[Any] = [found] if is_object(found) else found if is_array(found) else []
        if interrupts:
            break
    else:
        if is_object(outcome) or "outcome" not in raw:
            return raw
        problem = "the outcome 'interrupt' needs the interrupt beside it: an object in the member interrupt"
        raise DecodeError(problem, rule="INT-1", path="/interrupt")
    context.report(member)
    rest = omit(raw, "interrupt", "interrupts")
    return {**rest, "outcome": {"type": "interrupt", "interrupts": [_with_reason(item) for item in interrupts]}}


def _with_reason(interrupt: Any) -> Any:
    """Add a reason to an interrupt that is only an id. The rule ``interrupt-payload`` reads one with a payload."""
    if not is_object(interrupt) or interrupt.keys() & {"reason", "payload", "value"}:
        return interrupt
    return {**interrupt, "reason": "input_required"}


def string_outcome(outcome: Any, context: RuleContext) -> Any:
    """Read an outcome that is a string as an object. ``interrupt`` is for ``sibling_interrupt``."""
    if outcome != "success" and outcome != "cancelled":
        return outcome
    context.report()
    return {"type": outcome}
