"""Undo how TanStack AI's client regroups the messages of a thread before it sends them back.

The client merges an answer into one message, with text, tool calls and their results as parts. It sends that back as
other messages than the thread has: calls under new message ids, results and reasoning under derived ids. It keeps no
state, and sends ``{}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from aguila.codec import encode
from aguila.codec.json.text import SHORT_JSON
from aguila.errors import NotFound
from aguila.offload import offload
from aguila.protocol import AssistantMessage, Message, ReasoningMessage, ToolCall, ToolMessage, UserMessage
from aguila.server.runs.start_request import StartRequest
from aguila.server.threads.cache import Threads


async def restore_request(request: StartRequest, threads: Threads) -> StartRequest:
    """Replace regrouped messages of a start request by the thread's own.

    The request keeps its fingerprint, so that the same request finds its run again.
    """
    request = request.with_fingerprint()
    given = request.input
    try:
        view = await threads.at(request.scope, given.thread_id, given.parent_run_id)
    except NotFound:
        return request
    messages = restore_messages(given.messages, view.conversation.messages)
    if messages is given.messages and given.state != {}:
        return request
    restored = replace(given, messages=list(messages), state=None if given.state == {} else given.state)
    body = await offload(encode, restored) if len(request.body) > SHORT_JSON else encode(restored)
    return replace(request, input=restored, body=body)


def restore_messages(sent: Sequence[Message], held: Sequence[Message]) -> Sequence[Message]:
    """Replace each regrouped answer by the thread's own messages.

    An answer is the messages between two user messages. If the client changed or omitted something in it, it stays as
    it was sent. New tool results are kept.
    """
    answers = {turn[0].id: turn[1:] for turn in _split_turns(held) if isinstance(turn[0], UserMessage)}
    found: list[Message] = []
    is_changed = False
    for turn in _split_turns(sent):
        own = answers.get(turn[0].id) if isinstance(turn[0], UserMessage) else None
        restored = None if own is None else _restore_answer(turn[1:], own)
        if restored is None:
            found += turn
        else:
            found += [turn[0], *restored]
            is_changed = is_changed or restored != turn[1:]
    return found if is_changed else sent


def _split_turns(messages: Iterable[Message]) -> list[list[Message]]:
    """Split messages before each user message."""
    turns: list[list[Message]] = []
    for message in messages:
        if isinstance(message, UserMessage) or not turns:
            turns.append([])
        turns[-1].append(message)
    return turns


def _restore_answer(sent: Sequence[Message], own: Sequence[Message]) -> list[Message] | None:
    """Return the thread's own answer with the client's new tool results; None if the client changed the answer."""
    texts = {
        message.id: message.content for message in own if isinstance(message, AssistantMessage) and message.content
    }
    calls = dict(_list_calls(own))
    answered = {message.tool_call_id for message in own if isinstance(message, ToolMessage)}
    thoughts = {message.content for message in own if isinstance(message, ReasoningMessage)}
    new: list[Message] = []
    seen: set[str] = set()
    for message in sent:
        if isinstance(message, ReasoningMessage):
            if message.content not in thoughts:
                return None
        elif isinstance(message, ToolMessage):
            if message.tool_call_id not in calls:
                return None
            if message.tool_call_id not in answered:
                new.append(message)
        elif not isinstance(message, AssistantMessage):
            return None
        else:
            if message.content and texts.get(message.id) != message.content:
                return None
            if any(calls.get(call_id) != call for call_id, call in _list_calls([message])):
                return None
            seen.update([message.id] if message.content else [])
            seen.update(call_id for call_id, _ in _list_calls([message]))
    return [*own, *new] if seen == {*texts, *calls} else None


def _list_calls(messages: Iterable[Message]) -> Iterable[tuple[str, tuple[str, str]]]:
    """Yield the id, the name and the arguments of each call."""
    for message in messages:
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls or ():
                if isinstance(call, ToolCall):
                    yield call.id, (call.function.name, call.function.arguments)
