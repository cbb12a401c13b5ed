"""The causes that the rows of ``differential`` look for in raw streams, and their readings of outcomes.

A cause is looked for in the stream that was sent, never in its outcome. A reading takes an ``Outcome`` of either side,
which it may change, and returns it without the difference that does not matter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from streams.broken_streams import OPAQUE, Case, Raw

from aguila.errors import PatchError
from aguila.protocol.events import EventType
from aguila.stream.patch import apply_patch

EVENT_TYPES = sorted(str(event_type) for event_type in EventType)
ASPECTS = ("messages", "state", "interrupts", "runs", "events")


@dataclass
class Outcome:
    """The outcome of a stream on one side. ``verdict`` is accepted, rejected, or (ours only) truncated."""

    verdict: str
    error: str = ""
    messages: Any = None
    state: Any = None
    interrupts: Any = None
    runs: Any = None
    events: Any = None


# Where causes are looked for


def known(case: Case) -> list[Raw]:
    """Return the events of the stream that are objects of a known type."""
    return [event for event in case.events if isinstance(event, dict) and event.get("type") in EVENT_TYPES]


def of(case: Case, *types: str) -> list[Raw]:
    return [event for event in known(case) if event["type"] in types]


def objects(value: Any) -> Iterator[Raw]:
    """Yield a value and all objects below it that the schema may describe."""
    if isinstance(value, dict):
        yield value
        for name, member in value.items():
            if name not in OPAQUE:
                yield from objects(member)
    elif isinstance(value, list):
        for item in value:
            yield from objects(item)


def anywhere(is_cause: Callable[[Raw], bool]) -> Callable[[Case], bool]:
    return lambda case: any(is_cause(raw) for raw in objects(known(case)))


# Streams, words, patches


def is_cut_off(case: Case) -> bool:
    events = known(case)
    return not events or events[-1]["type"] not in ("RUN_FINISHED", "RUN_ERROR")


def read_cut_off(outcome: Outcome) -> Outcome:
    return replace(outcome, verdict="accepted")


def without_value_type(outcome: Outcome) -> Outcome:
    for raw in objects([outcome.messages, outcome.events]):
        raw.pop("encryptedValueType", None)
    return outcome


CHUNKS = ("TEXT_MESSAGE_CHUNK", "TOOL_CALL_CHUNK", "REASONING_MESSAGE_CHUNK")


def without_timestamps(outcome: Outcome) -> Outcome:
    for event in outcome.events:
        if event["type"].startswith(("TEXT_MESSAGE_", "TOOL_CALL_", "REASONING_MESSAGE_")):
            event.pop("timestamp", None)
    return outcome


def with_input_defaults(outcome: Outcome) -> Outcome:
    for event in outcome.events:
        if "input" in event:
            event["input"] = {"tools": [], "context": [], **event["input"]}
    return outcome


def has_unknown_word(raw: Raw) -> bool:
    """Return whether a member with several possible values has an unknown one."""
    if raw.get("type") in ("TEXT_MESSAGE_START", "TEXT_MESSAGE_CHUNK"):
        return isinstance(raw.get("role"), str) and raw["role"] not in ("developer", "system", "assistant", "user")
    if raw.get("type") == "REASONING_ENCRYPTED_VALUE":
        return isinstance(raw.get("subtype"), str) and raw["subtype"] not in ("tool-call", "message")
    return isinstance(raw.get("status"), str) and raw["status"] not in ("resolved", "cancelled")


def lacks_kind(raw: Raw) -> bool:
    """Return whether an object has a message without a role, a part without a type, or a source without one."""
    messages, parts, source = raw.get("messages"), raw.get("content"), raw.get("source")
    members = [(one, "role") for one in messages] if isinstance(messages, list) else []
    members += [(one, "type") for one in parts] if isinstance(parts, list) else []
    return any(
        isinstance(one, dict) and not isinstance(one.get(name), str) for one, name in [*members, (source, "type")]
    )


def lacks_id(raw: Raw) -> bool:
    """Return whether an object has a message without an id."""
    messages = raw.get("messages")
    return isinstance(messages, list) and any(isinstance(one, dict) and one.get("id") is None for one in messages)


def has_older_null(raw: Raw) -> bool:
    """Return whether an event has a null that only older servers send."""
    member = {"RUN_STARTED": "parentRunId", "RUN_ERROR": "code"}.get(str(raw.get("type")))
    return member in raw and raw[member] is None


def operations(case: Case) -> list[Raw]:
    patches = [event.get("delta") for event in of(case, "STATE_DELTA")]
    patches += [event.get("patch", event.get("delta")) for event in of(case, "ACTIVITY_DELTA")]
    return [op for patch in patches if isinstance(patch, list) for op in patch if isinstance(op, dict)]


def without_proto(outcome: Outcome) -> Outcome:
    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: clean(member) for name, member in value.items() if name != "__proto__"}
        return [clean(item) for item in value] if isinstance(value, list) else value

    return replace(outcome, **{aspect: clean(getattr(outcome, aspect)) for aspect in ASPECTS})


def any_operation(is_cause: Callable[[Raw], bool]) -> Callable[[Case], bool]:
    return lambda case: any(is_cause(operation) for operation in operations(case))


def steps(operation: Raw) -> list[str]:
    pointers = [operation.get("path"), operation.get("from")]
    return [step for pointer in pointers if isinstance(pointer, str) for step in pointer.split("/")[1:]]


def met_by_operations(case: Case) -> Iterator[tuple[Any, Raw]]:
    """Yield every operation on the state with the document it meets, by RFC 6902."""
    state = case.state
    for event in of(case, "STATE_SNAPSHOT", "STATE_DELTA"):
        if event["type"] == "STATE_SNAPSHOT":
            state = event.get("snapshot")
            continue
        document, patch = state, event.get("delta")
        for operation in filter(is_known_operation, patch if isinstance(patch, list) else ()):
            yield document, operation
            try:
                document = apply_patch(document, [operation])
            except PatchError:
                break
        else:
            state = document


def is_known_operation(operation: Any) -> bool:
    return isinstance(operation, dict) and operation.get("op") in ("add", "remove", "replace", "move", "copy", "test")


def changes_scalar(case: Case) -> bool:
    """Return whether an operation looks for a member of a state that is a bare string, number, boolean or null."""
    return any(
        not isinstance(document, dict | list) and operation.get("path") != ""
        for document, operation in met_by_operations(case)
    )


def moves_document(operation: Raw) -> bool:
    return operation.get("op") in ("move", "copy") and "" in (operation.get("from"), operation.get("path"))


def is_odd_index(step: str) -> bool:
    return step == "" or (len(step) > 1 and step[0] == "0" and step.isdigit())


INHERITED = frozenset({"toString", "constructor", "hasOwnProperty", "valueOf", "isPrototypeOf", "toLocaleString"})


def moves_within_array(operation: Raw) -> bool:
    ends = [str(operation.get(name)).rpartition("/") for name in ("from", "path")]
    return operation.get("op") == "move" and ends[0][0] == ends[1][0] and all(end[2].isdigit() for end in ends)


def is_no_activity(operation: Raw) -> bool:
    """Return whether an operation may turn an activity's content into anything but an object."""
    if operation.get("path") != "":
        return False
    return operation.get("op") not in ("add", "replace") or not isinstance(operation.get("value"), dict)


def loses_activity(case: Case) -> bool:
    patches = [event.get("patch") for event in of(case, "ACTIVITY_DELTA")]
    return any(is_no_activity(op) for patch in patches if isinstance(patch, list) for op in filter(is_object, patch))


def messages(case: Case) -> Iterator[Raw]:
    """Yield every complete message of the history, of a snapshot and of an echoed input."""
    lists = [case.messages, *(event.get("messages") for event in of(case, "MESSAGES_SNAPSHOT"))]
    lists += [event["input"].get("messages") for event in of(case, "RUN_STARTED") if is_object(event.get("input"))]
    for messages in lists:
        if isinstance(messages, list):
            yield from filter(is_object, messages)


def is_object(value: Any) -> bool:
    return isinstance(value, dict)


def ids(raws: Iterable[Raw], name: str) -> list[str]:
    return [raw[name] for raw in raws if isinstance(raw.get(name), str)]


def messages_of_role(case: Case, *roles: str) -> set[str]:
    return set(ids((message for message in messages(case) if message.get("role") in roles), "id"))


TEXTS = ("TEXT_MESSAGE_START", "TEXT_MESSAGE_CHUNK")
THOUGHTS = ("REASONING_MESSAGE_START", "REASONING_MESSAGE_CHUNK")
CALLS = ("TOOL_CALL_START", "TOOL_CALL_CHUNK")


def repeats_result(case: Case) -> bool:
    results = ids(of(case, "TOOL_CALL_RESULT"), "messageId")
    held = messages_of_role(case, "tool")
    return len(results) > len(set(results)) or not held.isdisjoint(results)


def others(case: Case) -> set[str]:
    """Return the ids of messages that are not tool messages."""
    streamed = ids(of(case, *TEXTS, *THOUGHTS, "ACTIVITY_SNAPSHOT"), "messageId")
    hosts = ids(of(case, *CALLS), "toolCallId") + ids(of(case, *CALLS), "parentMessageId")
    roles = ("user", "assistant", "system", "developer", "reasoning", "activity")
    return {*streamed, *hosts, *messages_of_role(case, *roles)}


def result_shares_id(case: Case) -> bool:
    tools = {*ids(of(case, "TOOL_CALL_RESULT"), "messageId"), *messages_of_role(case, "tool")}
    return not tools.isdisjoint(others(case))


def host_shares_id(case: Case) -> bool:
    streamed = ids(of(case, *TEXTS, *THOUGHTS, "ACTIVITY_SNAPSHOT", "TOOL_CALL_RESULT"), "messageId")
    parents = ids(of(case, *CALLS), "parentMessageId")
    calls = ids(of(case, *CALLS), "toolCallId")
    return not {*streamed, *parents, *ids(messages(case), "id")}.isdisjoint(calls)


def repeats_id_in_list(case: Case) -> bool:
    lists = [event.get("messages") for event in of(case, "MESSAGES_SNAPSHOT")]
    lists += [event["input"].get("messages") for event in of(case, "RUN_STARTED") if is_object(event.get("input"))]
    for messages in lists:
        named = ids(filter(is_object, messages), "id") if isinstance(messages, list) else []
        if len(named) > len(set(named)):
            return True
    return False


def writes_onto_parts(case: Case) -> bool:
    holders = [message for message in messages(case) if isinstance(message.get("content"), list)]
    holders += [
        {"id": event.get("messageId")}
        for event in of(case, "TOOL_CALL_RESULT")
        if isinstance(event.get("content"), list)
    ]
    kinds = ("TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT", *TEXTS, *THOUGHTS)
    return not set(ids(holders, "id")).isdisjoint(ids(of(case, *kinds), "messageId"))


# Older peers


def thinking(case: Case) -> list[Raw]:
    return [event for event in case.events if is_object(event) and str(event.get("type")).startswith("THINKING_")]


MINTED = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


def with_counted_ids(outcome: Outcome) -> Outcome:
    """Return the outcome with generated ids numbered in the order in which the events name them."""
    names: dict[str, str] = {}

    def count(raw: Raw, member: str) -> None:
        if MINTED.fullmatch(str(raw.get(member))):
            raw[member] = names.setdefault(raw[member], f"minted-{len(names)}")

    for event in outcome.events:
        count(event, "messageId")
    for message in outcome.messages:
        count(message, "id")
    return outcome


def without_kept(outcome: Outcome) -> Outcome:
    """Return the outcome without the data of older shapes under our metadata key."""
    for raw in objects([outcome.messages, outcome.events, outcome.interrupts]):
        metadata = raw.get("metadata")
        if isinstance(metadata, dict) and metadata.pop("aguila", None) is not None and not metadata:
            del raw["metadata"]
    return outcome


def without_other_sources(outcome: Outcome) -> Outcome:
    """Return the outcome without the id of a part that had data or a URL beside it, and without its metadata."""
    for raw in objects([outcome.messages, outcome.events]):
        if is_object(raw.get("source")):
            raw.pop("id", None)
    return without_kept(outcome)


def part_lists(case: Case, *, in_results: bool = True) -> Iterator[list[Any]]:
    results = of(case, "TOOL_CALL_RESULT") if in_results else []
    for raw in (*results, *messages(case)):
        if isinstance(raw.get("content"), list):
            yield raw["content"]


def any_part(is_cause: Callable[[Raw], bool]) -> Callable[[Case], bool]:
    return lambda case: any(is_object(part) and is_cause(part) for parts in part_lists(case) for part in parts)


def result_part(is_cause: Callable[[Raw], bool]) -> Callable[[Case], bool]:
    def look(case: Case) -> bool:
        contents = [event.get("content") for event in of(case, "TOOL_CALL_RESULT")]
        parts = [part for content in contents if isinstance(content, list) for part in content]
        return any(is_object(part) and is_cause(part) for part in parts)

    return look


def given(part: Raw) -> list[str]:
    """Return the members of a binary part that refer to its content."""
    if part.get("type") != "binary":
        return []
    return [name for name in ("data", "url", "id") if part.get(name) is not None]


def resumes(case: Case) -> list[Any]:
    inputs = [event.get("input") for event in of(case, "RUN_STARTED")]
    return [raw["resume"] for raw in inputs if is_object(raw) and "resume" in raw]


def has_old_answer(case: Case) -> bool:
    entries = [entry for resume in resumes(case) if isinstance(resume, list) for entry in resume]
    return any(is_object(entry) and not {"interruptId", "status"} <= entry.keys() for entry in entries)


def interrupts(case: Case) -> Iterator[Raw]:
    for event in of(case, "RUN_FINISHED"):
        outcome = event.get("outcome")
        if is_object(outcome) and isinstance(outcome.get("interrupts"), list):
            yield from filter(is_object, outcome["interrupts"])


def has_infinity(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(has_infinity, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and not math.isfinite(value)


def has_big_integer(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(has_big_integer, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and abs(value) >= 2**53


def as_doubles(outcome: Outcome) -> Outcome:
    def double(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: double(member) for name, member in value.items()}
        if isinstance(value, list):
            return [double(item) for item in value]
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value

    return replace(outcome, **{aspect: double(getattr(outcome, aspect)) for aspect in ASPECTS})
