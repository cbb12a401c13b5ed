"""Random streams as a consumer meets them, valid and broken in many ways, from a seed.

``random_case(seed)`` gives the JSON texts of one stream, what its consumer started from, and the names of the damage
done. The stream is one of ``random_stream``; each kind of damage is one function of ``DAMAGE``, which changes a
list of raw events and says whether it found something to change. Damage of one kind can cancel itself out, or do
nothing that matters: the point is to send what real peers send, not to know the verdict.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from streams.random_streams import random_stream

Raw = dict[str, Any]

OPAQUE = frozenset({"metadata", "rawEvent", "snapshot", "value", "event", "result", "forwardedProps", "payload"})
TAGS = ("sub-1", "sub-2", "sub-9", "")
JUNK: tuple[Any, ...] = (0, 1.5, True, "junk", "", [], {}, ["x"], {"type": "x"}, [None], {"op": "add"})


@dataclass
class Case:
    """One stream, with the messages and state that its consumer starts from."""

    seed: int
    messages: list[Raw]
    state: Any
    events: list[Any]
    damage: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def body(self) -> str:
        """The stream as SSE."""
        return "".join(f"data: {text}\n\n" for text in self.texts)


def random_case(seed: int) -> Case:
    """Build the case of a seed, always the same."""
    rng = random.Random(seed)
    size = rng.choice((2, 5, 10, 20, 20, 40, 60))
    collisions = rng.random() < 0.3
    stream = random_stream(rng, size, collisions=collisions, surrogates=rng.random() < 0.1)
    case = Case(seed, _history(rng), _initial_state(rng), msgspec.to_builtins(stream))
    for _ in range(rng.choice((0, 1, 1, 1, 1, 2, 3))):
        name = rng.choice(NAMES)
        if case.events and DAMAGE[name](rng, case.events):
            case.damage.append(name)
    case.texts = [json.dumps(event, ensure_ascii=True, separators=(",", ":")) for event in case.events]
    if rng.random() < 0.03:  # last of all, since it leaves no objects to damage
        case.damage.append(rng.choice(tuple(TEXT_DAMAGE)))
        TEXT_DAMAGE[case.damage[-1]](rng, case.texts)
        case.events = [_parsed(text) for text in case.texts]
    return case


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _history(rng: random.Random) -> list[Raw]:
    """Messages from before the stream; some share ids with what the stream will say."""
    kinds: tuple[Raw, ...] = (
        {"role": "user", "id": "text-0", "content": "hi"},
        {"role": "user", "id": "old-1", "content": [{"type": "text", "text": "hi"}], "name": "ann"},
        {"role": "assistant", "id": "text-1", "content": "so far", "metadata": {"a": 1}},
        {
            "role": "assistant",
            "id": "old-2",
            "toolCalls": [{"id": "call-0", "type": "function", "function": {"name": "search", "arguments": "{}"}}],
        },
        {"role": "tool", "id": "answer-0", "content": "42", "toolCallId": "call-0"},
        {"role": "reasoning", "id": "reasoning-0", "content": "hm", "encryptedValue": "sealed"},
        {"role": "activity", "id": "activity-0", "activityType": "plan", "content": {"list": [1], "a": {"b": 1}}},
        {"role": "system", "id": "old-3", "content": "be kind"},
    )
    return [copy.deepcopy(kind) for kind in kinds if rng.random() < 0.25]


def _initial_state(rng: random.Random) -> Any:
    choices: tuple[Any, ...] = ({}, {}, {"a": 1, "list": [1, 2]}, {"a": {"b": None}, "c~": [], "d/e": "x"}, [1, 2], 0)
    return copy.deepcopy(rng.choice(choices))


# Where an event can be damaged


def _places(value: Any, *, opaque: bool = False) -> Iterator[tuple[Any, Any]]:
    """Yield every member and element below a value, as its container and key; what is opaque counts as a leaf."""
    if isinstance(value, dict):
        for key in value:
            yield value, key
            if opaque or key not in OPAQUE:
                yield from _places(value[key], opaque=opaque)
    elif isinstance(value, list):
        for key in range(len(value)):
            yield value, key
            yield from _places(value[key], opaque=opaque)


def _place(rng: random.Random, events: list[Raw]) -> tuple[Any, Any]:
    event = rng.choice([event for event in events if event])
    if rng.random() < 0.4:  # nested places would drown the event's own members
        return event, rng.choice(list(event))
    return rng.choice(list(_places(event)))


def _find(events: Any, wanted: Callable[[Raw], bool]) -> list[Raw]:
    return [c[k] for c, k in _places(events) if isinstance(c[k], dict) and wanted(c[k])]


def _of_type(events: list[Raw], *types: str) -> list[Raw]:
    return [event for event in events if event.get("type") in types]


def _inside(rng: random.Random, events: list[Raw]) -> int:
    """Return a position after the first event."""
    return rng.randrange(min(1, len(events)), len(events) + 1)


# Sequence


def _drop(rng: random.Random, events: list[Raw]) -> bool:
    del events[rng.randrange(len(events))]
    return True


def _duplicate(rng: random.Random, events: list[Raw]) -> bool:
    i = rng.randrange(len(events))
    at = i + 1 if rng.random() < 0.5 else rng.randrange(i, len(events)) + 1
    events.insert(at, copy.deepcopy(events[i]))
    return True


def _reorder(rng: random.Random, events: list[Raw]) -> bool:
    if len(events) < 2:
        return False
    i = rng.randrange(len(events))
    event = events.pop(i)
    events.insert(max(0, i + rng.choice((-3, -2, -1, 1, 2, 3))), event)
    return True


def _truncate(rng: random.Random, events: list[Raw]) -> bool:
    del events[rng.randrange(1, len(events) + 1) :]
    return True


def _retag(rng: random.Random, events: list[Raw]) -> bool:
    event = rng.choice(events)
    if rng.random() < 0.3:
        return event.pop("subagentRunId", None) is not None
    event["subagentRunId"] = rng.choice((*TAGS, None) if rng.random() < 0.2 else TAGS)
    return True


def _rename(rng: random.Random, events: list[Raw]) -> bool:
    """Give one item the id of another."""
    keys = ("messageId", "toolCallId", "id", "parentMessageId", "entityId", "stepName", "parentSubagentRunId")
    named = [(c, k) for c, k in _places(events) if k in keys and isinstance(c[k], str)]
    if len(named) < 2:
        return False
    (target, key), (source, other) = rng.choice(named), rng.choice(named)
    target[key] = source[other]
    return True


def _splice(rng: random.Random, events: list[Raw]) -> bool:
    """Insert events of another stream, which does not know the open items and owners of this one."""
    others = msgspec.to_builtins(random_stream(rng, 30, surrogates=False))
    start = rng.randrange(len(others))
    if rng.random() < 0.8:
        others = [event for event in others if event["type"] in STANDALONE]
        rng.shuffle(others)
        start = 0
    at = _inside(rng, events)
    events[at:at] = others[start : start + rng.randrange(1, 4)]
    return bool(others)


STANDALONE = frozenset({"MESSAGES_SNAPSHOT", "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA", "REASONING_ENCRYPTED_VALUE", "RAW",
                        "TOOL_CALL_RESULT", "STATE_SNAPSHOT", "STATE_DELTA", "CUSTOM"})  # fmt: skip


# Values


def _wrong_type(rng: random.Random, events: list[Raw]) -> bool:
    container, key = _place(rng, events)
    container[key] = copy.deepcopy(rng.choice(JUNK))
    return True


def _null(rng: random.Random, events: list[Raw]) -> bool:
    container, key = _place(rng, events)
    container[key] = None
    return True


def _null_optional(rng: random.Random, events: list[Raw]) -> bool:
    """Write null for an absent member, as older peers do; some are tolerated (ERA-5)."""
    names = ("rawEvent", "result", "outcome", "parentMessageId", "timestamp", "metadata", "subagentRunId", "name",
             "input", "parentRunId", "usage", "delta", "role", "encryptedValue", "error", "replace")  # fmt: skip
    target = rng.choice(events)
    nested = _find(target, lambda raw: "role" in raw or "function" in raw or raw.get("type") in ("text", "image"))
    if nested and rng.random() < 0.4:
        target = rng.choice(nested)
    absent = [name for name in names if name not in target]
    target[rng.choice(absent)] = None
    return True


def _missing(rng: random.Random, events: list[Raw]) -> bool:
    container, key = _place(rng, events)
    if key == "type" and rng.random() < 0.7:
        return False
    del container[key]
    return True


def _out_of_range(rng: random.Random, events: list[Raw]) -> bool:
    values = (2**53 - 1, 2**53, -(2**53), 1.5, -1, 0, 3.0, 1e15, 1e300, True, "5")
    if rng.random() < 0.5 and (ends := _of_type(events, "RUN_FINISHED", "RUN_ERROR")):
        counts = ("inputTokens", "outputTokens", "totalTokens", "cachedInputTokens", "reasoningTokens")
        rng.choice(ends)["usage"] = [{"model": "m", rng.choice(counts): rng.choice(values)}]
    else:
        rng.choice(events)["timestamp"] = rng.choice(values)
    return True


def _number(rng: random.Random, events: list[Raw]) -> bool:
    """Numbers that JavaScript and Python do not see alike, in places where anything goes."""
    values = (2**53 + 1, -(2**60) - 1, 10**30, 1e22, -0.0, 1.0, 1e-7, 0.1 + 0.2, 1e16)
    value = rng.choice(values)
    states = _of_type(events, "STATE_SNAPSHOT")
    if states and rng.random() < 0.5:
        rng.choice(states)["snapshot"] = {"a": value, "list": [value]}
    else:
        rng.choice(events)["metadata"] = {"n": value}
    return True


def _odd_key(rng: random.Random, events: list[Raw]) -> bool:
    """Use names that are special in JavaScript, and unknown ones, where any name is allowed."""
    name = rng.choice(("__proto__", "constructor", "toString", "length", "", "type", "aguila", "ag-ui", "é"))
    value = {name: rng.choice((1, None, {"a": 1}))}
    states = _of_type(events, "STATE_SNAPSHOT")
    if states and rng.random() < 0.5:
        rng.choice(states)["snapshot"] = {"a": value, **value}
    else:
        rng.choice(events)["metadata"] = value
    return True


def _surrogate(rng: random.Random, events: list[Raw]) -> bool:
    """Put a lone surrogate into any text."""
    texts = [(c, k) for c, k in _places(events, opaque=True) if isinstance(c[k], str) and k not in ("type", "role")]
    container, key = rng.choice(texts)
    container[key] += rng.choice(("\ud83d", "\ude42"))
    return True


# The unknown


def _unknown_event(rng: random.Random, events: list[Raw]) -> bool:
    event = rng.choice(
        (
            {"type": "FUTURE_EVENT", "messageId": "text-0"},
            {"type": "run_started"},
            {"type": "toString"},
            {"type": "STATE"},
            {"type": "FUTURE_CHUNK", "delta": None, "subagentRunId": None},
        )
    )
    at = 0 if rng.random() < 0.1 else _inside(rng, events)
    events.insert(at, dict(event))
    return True


def _unknown_member(rng: random.Random, events: list[Raw]) -> bool:
    target = rng.choice(events)
    if rng.random() < 0.5:
        target = rng.choice([target, *_find({k: v for k, v in target.items() if k not in OPAQUE}, lambda _: True)])
    names = ("future", "toString", "constructor", "__proto__", "message_id", "subagentRunID", "hasOwnProperty")
    target[rng.choice(names)] = rng.choice((1, None, {"a": [1]}, "x"))
    return True


def _unknown_value(rng: random.Random, events: list[Raw]) -> bool:
    """Use a value of a later version: a role, a subtype, a kind of part, a source, an outcome."""
    choices: list[Callable[[], bool]] = [
        lambda: _set(rng, _of_type(events, "TEXT_MESSAGE_START", "TEXT_MESSAGE_CHUNK"), "role", "narrator"),
        lambda: _set(rng, _of_type(events, "REASONING_MESSAGE_START"), "role", "assistant"),
        lambda: _set(rng, _of_type(events, "TOOL_CALL_RESULT"), "role", rng.choice(("tool", "user"))),
        lambda: _set(rng, _of_type(events, "REASONING_ENCRYPTED_VALUE"), "subtype", "span"),
        lambda: _set(rng, _of_type(events, "RUN_FINISHED"), "outcome", rng.choice(OUTCOMES)),
        lambda: _set(rng, _of_type(events, "SUBAGENT_FINISHED"), "outcome", rng.choice(OUTCOMES)),
        lambda: _set(rng, _find(events, lambda m: "role" in m and "id" in m), "role", rng.choice(("narrator", "tool"))),
        lambda: _set(rng, _find(events, lambda m: "function" in m), "type", "procedure"),
        lambda: _add_part(rng, events, rng.choice(PARTS)),
        lambda: _set(rng, _inputs(events), "resume", [{"interruptId": "i", "status": rng.choice(STATUSES)}]),
    ]
    return rng.choice(choices)()


def _set(rng: random.Random, targets: list[Raw], name: str, value: Any) -> bool:
    if not targets:
        return False
    rng.choice(targets)[name] = copy.deepcopy(value)
    return True


def _inputs(events: list[Raw]) -> list[Raw]:
    return [event["input"] for event in _of_type(events, "RUN_STARTED") if isinstance(event.get("input"), dict)]


STATUSES = ("resolved", "later")
OUTCOMES: tuple[Any, ...] = (
    {"type": "paused"},
    {"type": "paused", "interrupts": [{"id": "i", "reason": "r"}]},
    {},
    {"type": 5},
    [],
    "done",
    {"type": "success", "interrupts": [{"id": "i", "reason": "r"}]},
    {"type": "success", "pendingToolCallIds": ["call-0", 1]},
    {"type": "interrupt", "interrupts": []},
    {"type": "interrupt", "interrupts": [{"id": "i", "reason": "r", "future": 1}], "pendingToolCallIds": ["x"]},
    {"type": "interrupt", "interrupts": [{"id": "i", "reason": "r", "subagentRunId": None}]},
    {"type": "cancelled", "interrupts": 5},
    {"type": "suspended", "interruptIds": ["i", 5]},
    {"type": "suspended", "interruptIds": None},
    {"type": "suspended"},
)

PARTS: tuple[Any, ...] = (
    {"type": "hologram", "text": "x"},
    {"text": "x"},
    "x",
    None,
    {"type": "text"},
    {"type": "text", "text": "x", "metadata": 5, "id": "p"},
    {"type": "image", "source": {"type": "url", "value": "u"}, "metadata": {"a": 1}},
    {"type": "image", "source": {"type": "data", "value": "u"}},
    {"type": "audio", "source": {"type": "data", "value": "QQ==", "mimeType": "audio/x", "future": 1}},
    {"type": "video", "source": {"type": "torrent", "value": "u"}},
    {"type": "document", "source": {"value": "u"}},
    {"type": "document", "source": {"type": "file", "value": "f", "provider": "p"}, "future": 1},
    {"type": "document", "source": "f"},
)


def _contents(events: list[Raw]) -> list[Raw]:
    """Return the objects that may have a list of parts."""
    messages = _find(events, lambda raw: raw.get("role") in ("user", "tool") and "content" in raw)
    return [*_of_type(events, "TOOL_CALL_RESULT"), *messages]


def _add_part(rng: random.Random, events: list[Raw], *parts: Any) -> bool:
    targets = _contents(events)
    if not targets:
        return False
    target = rng.choice(targets)
    content = target.get("content")
    content = content if isinstance(content, list) else [{"type": "text", "text": "x"}]
    content[rng.randrange(len(content) + 1) : 0] = copy.deepcopy(list(parts))
    target["content"] = content
    return True


# Patches

OPERATIONS: tuple[Any, ...] = (
    {"path": "/a", "value": 1},
    {"op": None, "path": "/a", "value": 1},
    {"op": 5, "path": "/a"},
    {"op": "merge", "path": "/a", "value": {}},
    {"op": "Add", "path": "/a", "value": {}},
    {"op": "add", "path": "/a"},
    {"op": "replace", "path": "/a", "value": None},
    {"op": "test", "path": "/a"},
    {"op": "remove"},
    {"op": "remove", "path": 5},
    {"op": "remove", "path": "a"},
    {"op": "remove", "path": "/a~2"},
    {"op": "remove", "path": "/a~"},
    {"op": "remove", "path": "/a", "value": 1, "from": 5},
    {"op": "remove", "path": "/a", "__proto__": 1},
    {"op": "remove", "path": ""},
    {"op": "copy", "path": "/b"},
    {"op": "copy", "path": "/b", "from": "/list"},
    {"op": "copy", "path": "/b", "from": ""},
    {"op": "copy", "path": "", "from": "/a"},
    {"op": "move", "path": "/a/b", "from": "/a"},
    {"op": "move", "path": "/a", "from": "/a"},
    {"op": "move", "path": "/list", "from": "/list/0"},
    {"op": "move", "path": "/a", "from": ""},
    {"op": "move", "path": "/list/2", "from": "/list/0"},
    {"op": "move", "path": "", "from": "/list"},
    {"op": "add", "path": "/list/01", "value": 1},
    {"op": "replace", "path": "/list/00", "value": 1},
    {"op": "remove", "path": "/list/-"},
    {"op": "add", "path": "/list/-1", "value": 1},
    {"op": "add", "path": "/list/1e0", "value": 1},
    {"op": "add", "path": "/list/", "value": 1},
    {"op": "add", "path": "/list/length", "value": 0},
    {"op": "test", "path": "/list/length", "value": 1},
    {"op": "add", "path": "/list/9", "value": 1},
    {"op": "test", "path": "/list", "value": [True]},
    {"op": "test", "path": "/a", "value": 1.0},
    {"op": "test", "path": "", "value": {}},
    {"op": "add", "path": "/__proto__", "value": {"x": 1}},
    {"op": "add", "path": "/constructor", "value": 1},
    {"op": "add", "path": "/constructor/prototype", "value": 1},
    {"op": "test", "path": "/toString", "value": 1},
    {"op": "replace", "path": "/toString", "value": 1},
    {"op": "copy", "path": "/b", "from": "/toString"},
    {"op": "remove", "path": "/hasOwnProperty"},
    {"op": "add", "path": "/toString/x", "value": 1},
    {"op": "add", "path": "/", "value": 1},
    {"op": "add", "path": "/a/x", "value": 1},
    {"op": "replace", "path": "", "value": 7},
    {"op": "replace", "path": "", "value": "text"},
    {"op": "replace", "path": "", "value": None},
    {"op": "replace", "path": "", "value": [1, 2]},
    "x",
    None,
    [],
)


def _patch(rng: random.Random, events: list[Raw]) -> bool:
    targets = _of_type(events, "STATE_DELTA", "ACTIVITY_DELTA")
    if not targets:
        return False
    event = rng.choice(targets)
    name = "delta" if event["type"] == "STATE_DELTA" else "patch"
    operations = event.get(name)
    if not isinstance(operations, list) or rng.random() < 0.05:
        event[name] = rng.choice(({}, "x", {"op": "remove", "path": "/a"}, []))
        return True
    if rng.random() < 0.5:  # something to work on, for the state may be anything by now
        operations.append({"op": "replace", "path": "", "value": {"list": [1, 2], "a": {"b": 1}}})
    for _ in range(rng.choice((1, 1, 2))):
        operations.append(copy.deepcopy(rng.choice(OPERATIONS)))
    return True


# Chunks


def _chunk(rng: random.Random, events: list[Raw]) -> bool:
    chunks = _of_type(events, "TEXT_MESSAGE_CHUNK", "TOOL_CALL_CHUNK", "REASONING_MESSAGE_CHUNK")
    if not chunks:
        return False
    chunk = rng.choice(chunks)
    names = {
        "TEXT_MESSAGE_CHUNK": ("messageId", "role", "name", "delta"),
        "TOOL_CALL_CHUNK": ("toolCallId", "toolCallName", "parentMessageId", "delta"),
        "REASONING_MESSAGE_CHUNK": ("messageId", "delta"),
    }[chunk["type"]]
    name = rng.choice(names)
    kind = rng.random()
    if kind < 0.4:
        return chunk.pop(name, None) is not None
    if kind < 0.8:
        chunk[name] = rng.choice(("user", "assistant", "")) if name == "role" else rng.choice(("", "other", "search"))
        return True
    # Another chunk of the same kind, in any lane, with as little as possible.
    extra: Raw = {"type": chunk["type"], **rng.choice(({}, {"delta": "x"}, {"metadata": {"k": 1}}, {"rawEvent": 1}))}
    if rng.random() < 0.3:
        extra["subagentRunId"] = rng.choice(TAGS)
    events.insert(_inside(rng, events), extra)
    return True


# Older peers


def _thinking(rng: random.Random, events: list[Raw]) -> bool:
    span: list[Raw] = [
        {"type": "THINKING_START", **rng.choice(({}, {"title": "t"}))},
        {"type": "THINKING_TEXT_MESSAGE_START"},
        {"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "hm"},
        {"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": rng.choice(("", "…", "x"))},
        {"type": "THINKING_TEXT_MESSAGE_END"},
        {"type": "THINKING_END"},
    ]
    if rng.random() < 0.2:
        del span[rng.randrange(len(span))]
    if rng.random() < 0.15:
        rng.choice(span)["messageId"] = rng.choice(("think-1", "reasoning-0"))
    if rng.random() < 0.15:
        rng.choice(span)["metadata"] = {"k": 1}
    at = _inside(rng, events)
    for event in span:
        events.insert(at, event)
        at += rng.choice((1, 1, 1, 2)) if at < len(events) - 1 else 1
    return True


BINARY: tuple[Raw, ...] = (
    {"type": "binary", "mimeType": "image/png", "data": "QQ=="},
    {"type": "binary", "mimeType": "audio/wav", "url": "u", "filename": "f"},
    {"type": "binary", "mimeType": "video/mp4", "data": "QQ==", "url": "u"},
    {"type": "binary", "mimeType": "application/pdf", "id": "file-1"},
    {"type": "binary", "mimeType": "text/plain", "id": "file-1", "url": "u", "filename": "f"},
    {"type": "binary", "data": "QQ=="},
    {"type": "binary", "mimeType": 5, "data": "QQ=="},
    {"type": "binary", "mimeType": "image/png"},
    {"type": "binary", "mimeType": "image", "url": "", "data": ""},
    {"type": "binary", "mimeType": "image/png", "data": 5},
    {"type": "binary", "mimeType": "image/png", "url": "u", "metadata": {"a": 1}},
    {"type": "binary", "mimeType": "image/png", "url": "u", "filename": None},
    {"type": "binary", "mimeType": "IMAGE/PNG", "url": "u"},
)


def _binary(rng: random.Random, events: list[Raw]) -> bool:
    part = rng.choice(BINARY)
    twin = {"type": "image", "source": {"type": "data", "value": "QQ==", "mimeType": "image/png"}}
    parts = [part] if rng.random() < 0.7 else [part, twin]
    return _add_part(rng, events, *parts)


def _tolerated_null(rng: random.Random, events: list[Raw]) -> bool:
    """Write one of the nulls of ERA-5, or a similar one that is not on its list."""
    media = {"type": rng.choice(("image", "text")), "source": {"type": "url", "value": "u"}, "metadata": None}
    if media["type"] == "text":
        media = {"type": "text", "text": "x", "metadata": None}
    choices: list[Callable[[], bool]] = [
        lambda: _set(rng, events, "rawEvent", None),
        lambda: _set(rng, _of_type(events, "RUN_FINISHED", "SUBAGENT_FINISHED"), "result", None),
        lambda: _set(rng, _of_type(events, "RUN_FINISHED", "SUBAGENT_FINISHED"), "outcome", None),
        lambda: _set(rng, _of_type(events, "TOOL_CALL_START", "TOOL_CALL_CHUNK"), "parentMessageId", None),
        lambda: _set(rng, _inputs(events), rng.choice(("forwardedProps", "state", "tools", "parentRunId")), None),
        lambda: _set(rng, _inputs(events), "tools", [{"name": "t", "description": "d", "parameters": None}]),
        lambda: _set(rng, _inputs(events), "resume", [{"interruptId": "i", "status": "resolved", "payload": None}]),
        lambda: _add_part(rng, events, media),
    ]
    return rng.choice(choices)()


OLD_OUTCOMES = ("success", "cancelled", "interrupt")


def _older_shape(rng: random.Random, events: list[Raw]) -> bool:
    """Shapes of drafts and of other SDKs that the official client does not read."""
    at = _inside(rng, events)
    choices: list[Callable[[], bool]] = [
        lambda: _set(rng, _of_type(events, "RUN_FINISHED"), "outcome", rng.choice(OLD_OUTCOMES)),
        lambda: _set(rng, _of_type(events, "RUN_FINISHED"), "interrupt", {"id": "i", "payload": {"prompt": "?"}}),
        lambda: _set(
            rng,
            _of_type(events, "RUN_FINISHED"),
            "outcome",
            {"type": "interrupt", "interrupts": [{"id": "i", "payload": {"functionName": "f"}}]},
        ),
        lambda: _insert(
            events,
            at,
            {"type": "STEP_STARTED", "stepId": "s1", "stepName": "old"},
            {"type": "STEP_FINISHED", "stepId": "s1", "status": "done"},
        ),
        lambda: _insert(
            events,
            at,
            {"type": "ACTIVITY_SNAPSHOT", "activityId": "activity-9", "activityType": "plan", "state": {"list": []}},
            {"type": "ACTIVITY_DELTA", "activityId": "activity-9", "delta": [{"op": "add", "path": "/a", "value": 1}]},
        ),
        lambda: _insert(events, at, {"type": "META", "metaType": "thumbs_up", "payload": {}}),
        lambda: _insert(
            events,
            at,
            {"type": "REASONING_START", "messageId": "text-0", "encryptedContent": "sealed"},
            {"type": "REASONING_END", "messageId": "text-0"},
        ),
        lambda: _set(rng, _inputs(events), "resume", {"interruptId": "i", "status": "resolved"}),
        lambda: _set(rng, _inputs(events), "resume", [{"id": "i", "response": 1}]),
        lambda: _add_part(rng, events, {"type": "Text", "text": "x"}),
    ]
    return rng.choice(choices)()


def _insert(events: list[Raw], at: int, *new: Raw) -> bool:
    events[at:at] = copy.deepcopy(list(new))
    return True


# Text


def _no_event(rng: random.Random, texts: list[str]) -> None:
    """Insert values that are no events: no type, or no object."""
    text = rng.choice(("{}", '{"type":""}', '{"type":5}', '{"type":null}', "[]", "null", "1", '"RAW"', "[DONE]"))
    texts.insert(rng.randrange(len(texts) + 1), text)


def _broken_text(rng: random.Random, texts: list[str]) -> None:
    """JSON that a parser may stumble over."""
    if not texts:
        texts.append("{")
    i = rng.randrange(len(texts))
    text = texts[i]
    texts[i] = rng.choice(
        (
            text[:-1],
            text + " ",
            text + "}",
            text[:-1] + ',"timestamp":NaN}',
            text[:-1] + ',"metadata":{"a":1},"metadata":{"b":2}}',
            text[:-1] + ',"metadata":{"n":1e400}}',
            text[:-1] + ',"rawEvent":"\\ud83d"}',
            text.replace(":", " : ", 1),
            f"[{text}]",
        )
    )


DAMAGE: dict[str, Callable[[random.Random, list[Raw]], bool]] = {
    "drop": _drop,
    "duplicate": _duplicate,
    "reorder": _reorder,
    "truncate": _truncate,
    "splice": _splice,
    "retag": _retag,
    "rename": _rename,
    "wrong type": _wrong_type,
    "null": _null,
    "null for absent": _null_optional,
    "missing member": _missing,
    "out of range": _out_of_range,
    "number": _number,
    "odd key": _odd_key,
    "surrogate half": _surrogate,
    "unknown event": _unknown_event,
    "unknown member": _unknown_member,
    "unknown value": _unknown_value,
    "patch": _patch,
    "chunk": _chunk,
    "thinking": _thinking,
    "binary part": _binary,
    "tolerated null": _tolerated_null,
    "older shape": _older_shape,
}
TEXT_DAMAGE: dict[str, Callable[[random.Random, list[str]], None]] = {
    "no event": _no_event,
    "broken text": _broken_text,
}
NAMES = (*DAMAGE, "patch", "patch")  # patches have the most ways to be odd
KINDS = (*DAMAGE, *TEXT_DAMAGE)
"""All kinds of damage."""
