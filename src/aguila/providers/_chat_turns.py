"""Layer: providers. Messages of Chat Completions, with those that follow each other in one role joined.

Below: nothing. Above: ``openai_chat``. OpenAI takes any order, but templates of servers that speak its language refuse
two messages of one role in a row. A history has such: a user who says more before the answer comes, an answer that
thoughts have cut in two, instructions before a system message. Within a run an answer is one message, so joining also
makes both runs send the same.

Nothing is lost: texts stand below each other, parts and details of thoughts one after the other, and where names
differ each text begins with its own. What has an ``extra_content`` stays apart: it is a signature of that text alone,
and Gemini's endpoint, which gives it, takes messages of one role in a row.
"""

from __future__ import annotations

from typing import Any

from aguila.providers._media import Block


def joined(messages: list[Block]) -> list[Block]:
    """The messages with neighbours of one role made one. Results stay apart: each answers a call."""
    groups: list[list[Block]] = []
    for message in messages:
        if groups and _goes_on(groups[-1], message):
            groups[-1].append(message)
        else:
            groups.append([message])
    return [group[0] if len(group) == 1 else _one(group) for group in groups]


def _goes_on(group: list[Block], message: Block) -> bool:
    before = group[-1]
    is_apart = any(name in before for name in ("tool_calls", "extra_content")) or "extra_content" in message
    return before["role"] == message["role"] and message["role"] != "tool" and not is_apart


def _one(group: list[Block]) -> Block:
    names = {message.get("name") for message in group}
    contents = [message["content"] if len(names) == 1 else _named(message) for message in group]
    made: Block = {}
    for message in group:
        made |= message
    if details := [detail for message in group for detail in message.get("reasoning_details", ())]:
        made["reasoning_details"] = details
    made["content"] = _content([content for content in contents if content is not None])
    if len(names) > 1:
        made.pop("name", None)
    return made


def _named(message: Block) -> Any:
    """What a message says, with the name of who says it before it."""
    name, content = message.get("name"), message["content"]
    if name is None:
        return content
    if isinstance(content, list):
        return [{"type": "text", "text": f"{name}:"}, *content]
    return f"{name}:" if content is None else f"{name}: {content}"


def _content(contents: list[Any]) -> Any:
    if all(isinstance(content, str) for content in contents):
        return "\n".join(contents) if contents else None
    parts: list[Block] = []
    for content in contents:
        parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return parts
