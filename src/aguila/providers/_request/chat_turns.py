"""Join consecutive Chat Completions messages of the same role.

OpenAI accepts any order, but the templates of compatible servers refuse two messages of one role in a row. Histories
have such messages: two user messages before an answer, an answer split by reasoning, instructions before a system
message. Within a run an answer is one message, so joining also makes this run and later runs send the same.

Nothing is lost: texts are joined by line breaks, parts and reasoning details are concatenated, and if names differ
each text starts with its name. A message with ``extra_content`` is not joined: it is the signature of that text
alone, and Gemini's endpoint, which sends it, accepts messages of one role in a row.
"""

from __future__ import annotations

from typing import Any

from aguila.providers._request.media import Block


def join_turns(messages: list[Block]) -> list[Block]:
    """Join neighbours of one role. Results stay separate, because each answers a call."""
    groups: list[list[Block]] = []
    for message in messages:
        if groups and _belongs_to(groups[-1], message):
            groups[-1].append(message)
        else:
            groups.append([message])
    return [group[0] if len(group) == 1 else _merge(group) for group in groups]


def _belongs_to(group: list[Block], message: Block) -> bool:
    before = group[-1]
    is_apart = any(name in before for name in ("tool_calls", "extra_content")) or "extra_content" in message
    return before["role"] == message["role"] and message["role"] != "tool" and not is_apart


def _merge(group: list[Block]) -> Block:
    names = {message.get("name") for message in group}
    contents = [message["content"] if len(names) == 1 else _prefix_name(message) for message in group]
    made: Block = {}
    for message in group:
        made |= message
    if details := [detail for message in group for detail in message.get("reasoning_details", ())]:
        made["reasoning_details"] = details
    made["content"] = _join_contents([content for content in contents if content is not None])
    if len(names) > 1:
        made.pop("name", None)
    return made


def _prefix_name(message: Block) -> Any:
    """Return the content of a message, after the name of its author."""
    name, content = message.get("name"), message["content"]
    if name is None:
        return content
    if isinstance(content, list):
        return [{"type": "text", "text": f"{name}:"}, *content]
    return f"{name}:" if content is None else f"{name}: {content}"


def _join_contents(contents: list[Any]) -> Any:
    if all(isinstance(content, str) for content in contents):
        return "\n".join(contents) if contents else None
    parts: list[Block] = []
    for content in contents:
        parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return parts
