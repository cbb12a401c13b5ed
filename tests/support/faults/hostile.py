"""Hostile requests and hostile streams, about ``size`` bytes each if they are meant to be large."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def _input(**members: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "threadId": "hostile",
        "runId": "r",
        "messages": [],
        "tools": [],
        "context": [],
        "state": {},
        "forwardedProps": {},
        "protocolVersion": "1.1",
    }
    return {**base, **members}


def _raw(name: str, text: str) -> bytes:
    """Return an input whose member ``name`` is this text."""
    return json.dumps(_input(**{name: "@@"})).encode().replace(b'"@@"', text.encode("utf-8", "surrogatepass"), 1)


def _many(text: str, size: int) -> str:
    return "[" + ",".join([text] * max(1, size // (len(text) + 1))) + "]"


def _message(content: Any = "x", **more: Any) -> dict[str, Any]:
    return {"id": "m", "role": "user", "content": content, **more}


def _schema_bomb(levels: int, combine: str = "allOf") -> dict[str, Any]:
    parts: dict[str, Any] = {
        f"d{i}": {combine: [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(levels)
    }
    return {"$defs": {**parts, f"d{levels}": {"type": "object"}}, "$ref": "#/$defs/d0"}


MESSAGES, TOOLS = 9_000, 900
"""Counts that the default limits admit."""


def _padded(size: int, count: int, least: int, item: Callable[[int, str], dict[str, Any]]) -> list[dict[str, Any]]:
    """Make at most ``count`` items, of at least ``least`` bytes each, that have ``size`` bytes together."""
    count = min(count, size // least)
    return [item(i, "x" * (size // count - least)) for i in range(count)]


def requests(size: int) -> dict[str, bytes]:
    """Bodies of ``POST /`` by name."""
    numbers = {
        "9e307": "9e307",
        "5e-324": "5e-324",
        "-1e289": "-1e289",
        "1e309": "1e309",
        "NaN": "NaN",
        "many digits": "1" * 4000,
        "a long fraction": "0." + "1234567890" * 200,
        "2e-308": "2e-308",
    }
    found = {f"state of {name}": _raw("state", _many(text, size)) for name, text in numbers.items()}
    found |= {f"forwardedProps of {name}": _raw("forwardedProps", _many(text, size)) for name, text in numbers.items()}
    nested = {
        "arrays": "[" * (size // 2) + "]" * (size // 2),
        "objects": '{"a":' * (size // 6) + "1" + "}" * (size // 6),
        "arrays that do not end": "[" * size,
        "strings that do not end": '"' + "x" * size,
        "escapes": '"' + "\\u0041" * (size // 6) + '"',
        "surrogates": '"' + "\\ud800" * (size // 6) + '"',
        "backslashes": '"' + "\\\\" * (size // 2) + '"',
        "empty objects": _many("{}", size),
        "empty arrays": _many("[]", size),
        "nulls": _many("null", size),
        "short keys": "{" + ",".join(f'"{i}":0' for i in range(size // 10)) + "}",
        "the same key": "{" + ",".join(['"a":0'] * (size // 6)) + "}",
        "long keys": '{"' + "k" * size + '":0}',
        "prototypes": _many('{"__proto__":{"a":1}}', size),
        "arrays of one number": _many("[0]", size),
        "arrays in arrays": _many("[[[]]]", size),
        "objects of one member": _many('{"a":0}', size),
    }
    found |= {f"state of {name}": _raw("state", text) for name, text in nested.items()}
    found |= {f"messages of {name}": _raw("messages", text) for name, text in nested.items()}
    members = {
        "messages with one id": {"messages": _padded(size, MESSAGES, 50, lambda _, text: _message(text))},
        "messages of unknown roles": {
            "messages": _padded(size, MESSAGES, 60, lambda _, text: _message(text, role="wizard"))
        },
        "messages with unknown members": {
            "messages": _padded(size, MESSAGES, 60, lambda i, text: _message(text, id=f"m{i}", **{f"x{i}": i}))
        },
        "too many messages": {"messages": [_message() for _ in range(size // 50)]},
        "messages of short parts": {
            "messages": _padded(
                size, MESSAGES, 110, lambda i, _: _message([{"type": "text", "text": "x"}] * 2, id=f"m{i}")
            )
        },
        "old binary parts": {
            "messages": [_message([{"type": "binary", "mimeType": "a/b", "data": "AA=="}] * (size // 60))]
        },
        "old binary parts beside an image": {
            "messages": [
                _message(
                    [{"type": "image", "source": {"type": "data", "value": "AA==", "mimeType": "image/png"}}]
                    + [{"type": "binary", "mimeType": "a/b", "data": "AA=="}] * (size // 60)
                )
            ]
        },
        "empty parts": {"messages": [_message([{"type": "text", "text": ""}] * (size // 30))]},
        "parts of unknown types": {"messages": [_message([{"type": "spell"}] * (size // 20))]},
        "calls without results": {
            "messages": [
                {
                    "id": f"a{i}",
                    "role": "assistant",
                    "toolCalls": [{"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": "{"}}],
                }
                for i in range(size // 150)
            ]
        },
        "results without calls": {
            "messages": _padded(
                size, MESSAGES, 80, lambda i, text: {"id": f"t{i}", "role": "tool", "toolCallId": "c", "content": text}
            )
        },
        "many tools": {
            "tools": _padded(size, TOOLS, 60, lambda i, text: {"name": f"f{i}", "description": text, "parameters": {}})
        },
        "too many tools": {"tools": [{"name": "f", "description": "", "parameters": {}} for _ in range(size // 50)]},
        "tools with large schemas": {
            "tools": _padded(
                size,
                TOOLS,
                60,
                lambda i, text: {"name": f"f{i}", "description": "", "parameters": {"enum": list(text[::5])}},
            )
        },
        "a schema bomb of allOf": {"tools": [{"name": "f", "description": "", "parameters": _schema_bomb(26)}]},
        "a schema bomb of anyOf": {
            "tools": [{"name": "f", "description": "", "parameters": _schema_bomb(26, "anyOf")}]
        },
        "many context entries": {"context": [{"description": "d", "value": "v"}] * (size // 40)},
        "many answers": {
            "resume": _padded(
                size, TOOLS, 60, lambda i, text: {"interruptId": f"i{i}", "status": "resolved", "payload": text}
            )
        },
        "too many answers": {"resume": [{"interruptId": f"i{i}", "status": "resolved"} for i in range(size // 50)]},
        "one answer many times": {"resume": [{"interruptId": "i", "status": "resolved"}] * (size // 50)},
        "a long thread id": {"threadId": "t" * size},
        "a long run id": {"runId": "r" * size},
        "an empty thread id": {"threadId": ""},
        "a thread id with line breaks": {"threadId": "t\n\r\x00\x1b[31m"},
        "an unknown parent": {"parentRunId": "p" * 500},
        "its own parent": {"parentRunId": "r"},
        "a list as input": {"state": [[]] * (size // 3)},
        "a protocol version of the future": {"protocolVersion": "9" * 1000},
        "a data address": {
            "messages": [_message([{"type": "image", "source": {"type": "url", "value": "data:" + "x" * size}}])]
        },
        "many addresses": {
            "messages": [
                _message([{"type": "image", "source": {"type": "url", "value": "https://a.b/"}}] * (size // 80))
            ]
        },
        "an address of the cloud's metadata": {
            "messages": [_message([{"type": "image", "source": {"type": "url", "value": "http://169.254.169.254/"}}])]
        },
        "another scope's file": {
            "messages": [_message([{"type": "image", "source": {"type": "file", "value": "../../etc/passwd"}}])]
        },
    }
    found |= {name: json.dumps(_input(**given)).encode() for name, given in members.items()}
    found |= {
        "nothing": b"",
        "not JSON": b"x" * size,
        "not UTF-8": b"\xff" * size,
        "zeros": b"\x00" * size,
        "spaces": b" " * size,
        "a byte order mark": b"\xef\xbb\xbf" + json.dumps(_input()).encode(),
        "a list": b"[]",
        "unknown members": json.dumps({**_input(), **{f"x{i}": i for i in range(size // 12)}}).encode(),
        "members twice": json.dumps(_input()).encode()[:-1] + b',"threadId":"hostile"' * (size // 21) + b"}",
    }
    return found


IDS = {"threadId": "t", "runId": "r"}


def _sse(*events: Any) -> bytes:
    return b"".join(
        b"data: " + (each if isinstance(each, bytes) else json.dumps(each).encode()) + b"\n\n" for each in events
    )


def _run(*events: Any, ended: bool = True) -> bytes:
    ending = [{"type": "RUN_FINISHED", **IDS, "outcome": {"type": "success"}}] if ended else []
    return _sse({"type": "RUN_STARTED", **IDS}, *events, *ending)


def streams(size: int) -> dict[str, bytes]:
    """Responses of a server by name. ``threadId`` and ``runId`` are those of ``IDS``."""

    def snapshot(text: str) -> bytes:
        return b'{"type":"STATE_SNAPSHOT","snapshot":' + text.encode("utf-8", "surrogatepass") + b"}"

    copies = [{"op": "copy", "from": "", "path": f"/{i}"} for i in range(24)]
    started = {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"}
    found = {
        f"a state of {name}": _run(snapshot(_many(text, size)))
        for name, text in {
            "9e307": "9e307",
            "5e-324": "5e-324",
            "many digits": "1" * 4000,
            "nulls": "null",
            "empty objects": "{}",
            "NaN": "NaN",
        }.items()
    }
    found |= {
        "a deep state": _run(snapshot("[" * (size // 2) + "]" * (size // 2))),
        "a state that does not end": _run(snapshot("[" * size)),
        "surrogates": _run(snapshot('"' + "\\ud800" * (size // 6) + '"')),
        "copies of the state": _run(
            {"type": "STATE_SNAPSHOT", "snapshot": {"x": "y" * 1000}}, {"type": "STATE_DELTA", "delta": copies}
        ),
        "copies of an activity": _run(
            {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "P", "content": {"x": "y" * 1000}},
            {"type": "ACTIVITY_DELTA", "messageId": "a", "activityType": "P", "patch": copies},
        ),
        "many patches": _run(
            {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/a", "value": 9e307}] * (size // 45)}
        ),
        "many failing patches": _run(
            *[{"type": "STATE_DELTA", "delta": [{"op": "remove", "path": "/x"}]}] * (size // 70)
        ),
        "failing patches of a large state": _run(
            {"type": "STATE_SNAPSHOT", "snapshot": {"x": "y" * 1000}},
            {"type": "STATE_DELTA", "delta": copies[:13]},
            *[{"type": "STATE_DELTA", "delta": [{"op": "remove", "path": "/x/x"}]}] * (size // 80),
        ),
        "copies of a part of a large state": _run(
            {"type": "STATE_SNAPSHOT", "snapshot": {"x": "y" * 1000}},
            {"type": "STATE_DELTA", "delta": copies[:12]},
            *[{"type": "STATE_DELTA", "delta": [{"op": "copy", "from": "/11", "path": "/z"}]}] * (size // 90),
        ),
        "copies that are removed again": _run(
            {"type": "STATE_SNAPSHOT", "snapshot": {"x": "y" * 1000}},
            {
                "type": "STATE_DELTA",
                "delta": copies[:13]
                + [{"op": "copy", "from": "/10", "path": "/z"}, {"op": "remove", "path": "/z"}] * (size // 80),
            },
        ),
        "patches of prototypes": _run(
            {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/__proto__/a", "value": 1}]}
        ),
        "a frame that does not end": _run(ended=False) + b"data: " + b"x" * size,
        "lines without an end": b"x" * size,
        "empty lines": b"\n" * size,
        "comments": b":\n" * (size // 2),
        "ids": b"id: 1\n" * (size // 6),
        "retries": b"retry: 1\n\n" * (size // 10),
        "data lines of one event": b"data: \n" * (size // 7) + b"\n",
        "not JSON": _sse(b"x" * size),
        "zeros": b"\x00" * size,
        "not UTF-8": _sse(b"\xff" * size),
        "unknown events": _run(*[{"type": "SPELL"}] * (size // 25)),
        "unknown members": _run({"type": "CUSTOM", "name": "x", "value": 1, **{f"x{i}": i for i in range(size // 12)}}),
        "empty deltas": _run(
            started, *[{"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": ""}] * (size // 70)
        ),
        "one letter deltas": _run(
            started,
            *[{"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "x"}] * (size // 70),
            {"type": "TEXT_MESSAGE_END", "messageId": "m"},
        ),
        "messages that do not end": _run(*[{**started, "messageId": f"m{i}"} for i in range(size // 80)]),
        "steps that do not end": _run(*[{"type": "STEP_STARTED", "stepName": f"s{i}"} for i in range(size // 50)]),
        "subagents in subagents": _run(
            *[
                {
                    "type": "SUBAGENT_STARTED",
                    "subagentRunId": f"s{i}",
                    "subagentName": "s",
                    **({"parentSubagentRunId": f"s{i - 1}"} if i else {}),
                }
                for i in range(min(2_000, size // 100))
            ]
        ),
        "runs in runs": _sse(*[{"type": "RUN_STARTED", **IDS}] * (size // 50)),
        "many runs": b"".join(_run() for _ in range(size // 150)),
        "a thousand snapshots": _run(
            *[{"type": "MESSAGES_SNAPSHOT", "messages": [_message()]}] * min(1_000, size // 80)
        ),
        "a snapshot of one id": _run({"type": "MESSAGES_SNAPSHOT", "messages": [_message()] * (size // 50)}),
        "calls that do not end": _run(
            *[{"type": "TOOL_CALL_START", "toolCallId": f"c{i}", "toolCallName": "f"} for i in range(size // 70)]
        ),
        "chunks": _run(
            *[
                {"type": "TEXT_MESSAGE_CHUNK", "messageId": f"m{i}", "role": "assistant", "delta": "x"}
                for i in range(size // 90)
            ]
        ),
        "an error after the end": _run() + _sse({"type": "RUN_ERROR", "message": "x" * size}),
        "interrupts": _run(
            {
                "type": "RUN_FINISHED",
                **IDS,
                "outcome": {
                    "type": "interrupt",
                    "interrupts": [
                        {"id": f"i{i}", "reason": "r", "responseSchema": _schema_bomb(26)} for i in range(5)
                    ],
                },
            },
            ended=False,
        ),
    }
    return found
