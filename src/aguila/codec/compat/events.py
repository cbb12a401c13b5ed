"""Layer: codec, compatibility. Rules about events: steps, activities, thinking, META, outcomes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from aguila.codec.compat.context import Raw, RuleContext, move_to_metadata, omit
from aguila.codec.json.values import is_array, is_object


def step_by_id(raw: Raw, context: RuleContext) -> Raw:
    """Steps once had ids, parents and results, and ended without a name; today they pair by name (STEP-4)."""
    step_id = raw.get("stepId")
    if not isinstance(step_id, str):
        return raw
    context.report("stepId")
    if raw["type"] == "STEP_FINISHED":
        name = context.steps.pop(step_id, step_id)
        if "stepName" not in raw:
            raw = {**raw, "stepName": name}
    elif isinstance(name := raw.get("stepName"), str):
        context.steps[step_id] = name
    return move_to_metadata(raw, "stepId", "parentStepId", "status", "result")


def activity_id(raw: Raw, context: RuleContext) -> Raw:
    """Activities once had an id and a state of any kind; today they are messages with an object for content."""
    activity = raw.get("activityId")
    if not isinstance(activity, str) or "messageId" in raw:
        return raw
    context.report("activityId")
    event = {**omit(raw, "activityId"), "messageId": activity}
    if raw["type"] == "ACTIVITY_SNAPSHOT":
        if "state" in raw and "content" not in raw:
            state = event.pop("state")
            event["content"] = state if is_object(state) else {"value": state}
        return event
    if "delta" in raw and "patch" not in raw:
        event["patch"] = event.pop("delta")
    if "activityType" not in raw:
        event["activityType"] = context.activities.get(activity, "unknown")
    return event


_REASONING_TYPES = {
    "THINKING_START": "REASONING_START",
    "THINKING_TEXT_MESSAGE_START": "REASONING_MESSAGE_START",
    "THINKING_TEXT_MESSAGE_CONTENT": "REASONING_MESSAGE_CONTENT",
    "THINKING_TEXT_MESSAGE_END": "REASONING_MESSAGE_END",
    "THINKING_END": "REASONING_END",
}


def thinking(raw: Raw, context: RuleContext) -> Raw:
    """Thinking had no ids: each span and each message is given one, and what follows in it gets the same (ERA-2)."""
    old: str = raw["type"]
    context.report("type")
    event = {**raw, "type": _REASONING_TYPES[old]}
    opens = old.endswith("_START")
    is_span = old in ("THINKING_START", "THINKING_END")
    if "messageId" not in raw:
        current = context.span if is_span else context.message
        if opens or current is None:
            if not opens:
                # It gets an id all the same, and then fails verification, whose verdict this is.
                context.report("type", "thinking goes on that was never started")
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
        context.report("title", "thinking has no title today; it is kept in the metadata")
    return move_to_metadata(event, "title") if old == "THINKING_START" else event


def reasoning_role(raw: Raw, context: RuleContext) -> Raw:
    """A draft gave reasoning messages the role of the assistant."""
    if raw.get("role") != "assistant":
        return raw
    context.report("role")
    return {**raw, "role": "reasoning"}


def encrypted_content(raw: Raw, context: RuleContext) -> Raw:
    """A draft put the encrypted value on the start of the span; today it is an event that follows."""
    value, span = raw.get("encryptedContent"), raw.get("messageId")
    if not isinstance(value, str) or not isinstance(span, str):
        return raw
    context.report("encryptedContent")
    sealed = {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "message", "entityId": span, "encryptedValue": value}
    envelope = {name: raw[name] for name in ("timestamp", "subagentRunId") if name in raw}
    context.following.append({**sealed, **envelope})
    return omit(raw, "encryptedContent")


def meta_event(raw: Raw, context: RuleContext) -> Raw | None:
    """A side note of a draft. RAW and not CUSTOM: it must not close the chunk streams that are open around it."""
    if context.run_id is None:
        context.report("type", "META outside of a run is dropped: RAW is legal only within one")
        return None
    context.report("type")
    envelope = ("timestamp", "rawEvent", "metadata", "subagentRunId")
    kept = {name: raw[name] for name in envelope if name in raw}
    return {"type": "RAW", "event": omit(raw, *envelope), "source": "meta", **kept}


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso_timestamp(raw: Raw, context: RuleContext) -> Raw:
    """A date in ISO 8601 is read as milliseconds since 1970, and as UTC where it does not say otherwise."""
    text = raw.get("timestamp")
    if not isinstance(text, str):
        return raw
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        milliseconds = (moment - _EPOCH) // timedelta(milliseconds=1)
    except ValueError:
        return raw  # no date either: malformed, and refused as such
    context.report("timestamp")
    return {**raw, "timestamp": milliseconds}


def custom_value(raw: Raw, context: RuleContext) -> Raw:
    """A CUSTOM event could once be a name alone."""
    if "value" in raw:
        return raw
    context.report("value")
    return {**raw, "value": None}


def sibling_interrupt(raw: Raw, context: RuleContext) -> Raw:
    """Interrupts once stood beside the outcome, which was the string ``interrupt`` or was left out."""
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
        return raw
    context.report(member)
    rest = omit(raw, "interrupt", "interrupts")
    return {**rest, "outcome": {"type": "interrupt", "interrupts": [_with_reason(item) for item in interrupts]}}


def _with_reason(interrupt: Any) -> Any:
    """Beside an outcome an interrupt could be an id alone. One with a payload is read by a rule of its own."""
    if not is_object(interrupt) or interrupt.keys() & {"reason", "payload", "value"}:
        return interrupt
    return {**interrupt, "reason": "input_required"}


def string_outcome(outcome: Any, context: RuleContext) -> Any:
    """Outcomes were strings. ``interrupt`` alone does not say what was asked: it stays, and is refused."""
    if outcome != "success" and outcome != "cancelled":
        return outcome
    context.report()
    return {"type": outcome}
