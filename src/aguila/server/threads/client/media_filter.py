"""Pass on only the references to media that ``App(trust=Trust(media=...))`` admits.

A request is refused if a new user message has another reference: the user can send the file in another way. In older
messages and in results such a part is left out with a notice, because a refusal would end the thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

from aguila.chat.allowed_media import AllowedMedia
from aguila.codec.json.values import is_array
from aguila.codec.notices import Notice
from aguila.protocol import MediaPart, Message, RunAgentInput, ToolMessage, UserMessage, replace
from aguila.server.config.errors import Rejected

_content = attrgetter("content")


def has_parts(messages: Sequence[Message]) -> bool:
    """Return whether a message has parts, which may be references."""
    return list in map(type, map(_content, messages))


def check_new_media(messages: Sequence[Message], sent: Sequence[Message], allowed: AllowedMedia) -> None:
    """Raise ``Rejected`` (422) if a user message at the end has a reference that is not admitted.

    ``sent`` are the messages of the request. The path in the error refers to them.
    """
    for message in reversed(messages):
        if message.role == "assistant":
            return
        if message.role == "user":
            for index, problem in _problems(message.content, allowed):
                at = next((at for at, one in enumerate(sent) if one.id == message.id), len(sent) - 1)
                text = f"the part is not passed on: {problem}"
                raise Rejected(422, "media_not_allowed", text, f"/messages/{at}/content/{index}")


def leave_out_media(input: RunAgentInput, allowed: AllowedMedia) -> tuple[RunAgentInput, list[Notice]]:  # noqa: A002
    """Leave out the parts that are not admitted; return the input, and a notice of each part."""
    notices: list[Notice] = []
    filtered: list[Message] = []
    for at, message in enumerate(input.messages):
        refused = dict(_problems(message.content, allowed))
        if refused and isinstance(message, UserMessage | ToolMessage):
            left = [part for index, part in enumerate(message.content) if index not in refused]
            filtered.append(replace(message, content=left or ""))
            notices += [
                Notice(
                    rule="allowed-media",
                    message=f"a part of message {message.id!r} is left out: {problem}",
                    path=f"/messages/{at}/content/{index}",
                )
                for index, problem in refused.items()
            ]
        else:
            filtered.append(message)
    return (replace(input, messages=filtered) if notices else input), notices


def _problems(content: object, allowed: AllowedMedia) -> Iterator[tuple[int, str]]:
    """Iterate over index and problem of the parts that are not admitted."""
    if is_array(content):
        for index, part in enumerate(content):
            problem = allowed.find_problem(part.source) if isinstance(part, MediaPart) else None
            if problem is not None:
                yield index, problem
