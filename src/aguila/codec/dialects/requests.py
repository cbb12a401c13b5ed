"""Write our input for a server that is known to be older (VER-11 to VER-16, ERA-4).

A version that is absent or cannot be interpreted means a current server (VER-4, VER-11): the input stays as it is. A
downgrade changes no id and no order (VER-12) and makes nothing up; at most it supplies the empty value that an older
schema requires (VER-13). Losses are reported under the rule VER-16.

====== ========================================================== ====================================================
server loses, with a notice                                       changes, silently
====== ========================================================== ====================================================
1.0    ``encryptedValueType``
0.x                                                               ``protocolVersion``
0.0.57 parts with a ``file`` source, and parts of tool messages   ``subagentRunId``
       that are not text
0.0.47 metadata (but ``filename``) and id of a media part, a      media parts and their sources: they are ``binary``
       kind that its MIME type does not imply
0.0.39 parts that are not text, ``parentRunId``                   absent content: it is the empty string
====== ========================================================== ====================================================

Each row holds for that version and those before it, except that a value with an older form is not lost.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from aguila.codec.dialects.content import Report, as_binary, unless_unchanged, without_value_types
from aguila.codec.dialects.table import Version, parse_version
from aguila.codec.notices import Notice, Warn, log_notice
from aguila.protocol import (
    AssistantMessage,
    ContentPart,
    Event,
    FileSource,
    Message,
    MessagesSnapshotEvent,
    RunAgentInput,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    TextPart,
    ToolMessage,
    UserMessage,
    replace,
)
from aguila.protocol.parts import MediaPart

T = TypeVar("T")

_CURRENT: Final[Version] = (1, 1, 0)
_FIRST: Final[Version] = (1, 0, 0)  # the first with protocol versions
_NO_SUBAGENTS: Final[Version] = (0, 0, 57)
_BINARY_PARTS: Final[Version] = (0, 0, 47)
_TEXT_ONLY: Final[Version] = (0, 0, 39)


def _version(text: str | None) -> Version:
    """Parse a protocol version (``1.0``) or the library version of a 0.x peer (``0.0.39``)."""
    return (None if text is None else parse_version(text)) or _CURRENT


def is_version(text: str) -> bool:
    """Return whether text is a version. Any other text means a current peer."""
    return parse_version(text) is not None


def downgrade_input(input: RunAgentInput, peer_version: str | None, warn: Warn = log_notice) -> RunAgentInput:  # noqa: A002
    """Rewrite an input for a server of that version. Return the same object if nothing changes."""
    peer = _version(peer_version)
    if peer >= _CURRENT:
        return input

    def report(what: str, path: str) -> None:
        message = f"{what} is lost: the peer's version, {peer_version}, cannot read it; a newer one can"
        warn(Notice(rule="VER-16", message=message, path=path))

    changes: dict[str, Any] = {}
    if peer < _FIRST and input.protocol_version is not None:
        changes["protocol_version"] = None  # an old strict parser may refuse the member (VER-1)
    if peer <= _TEXT_ONLY and input.parent_run_id is not None:
        report("parentRunId", "/parentRunId")
        changes["parent_run_id"] = None
    written = [_message(message, peer, report, f"/messages/{i}") for i, message in enumerate(input.messages)]
    messages = unless_unchanged(written, input.messages)
    if messages is not input.messages:
        changes["messages"] = messages
    return replace(input, **changes) if changes else input


def predates_versions(peer_version: str | None) -> bool:
    """Return whether a server of that version is sent no ``protocolVersion`` (VER-1)."""
    return _version(peer_version) < _FIRST


def predates_subagents(peer_version: str | None) -> bool:
    """Return whether a peer of that version predates subagents: their members in its events mean nothing (ERA-4)."""
    return _version(peer_version) <= _NO_SUBAGENTS


def strip_subagents(event: Event, warn: Warn = log_notice) -> Event | None:
    """Remove subagents from an event: their items become the agent's own. Return None for SUBAGENT_* events.

    For both directions: a peer up to 0.0.57 can neither read nor send subagents.
    """
    if isinstance(event, SubagentStartedEvent | SubagentFinishedEvent | SubagentErrorEvent):
        message = f"dropping {event.type}: the peer's version has no subagents; one of 0.0.59 or later has"
        warn(Notice(rule="VER-16", message=message, event_type=event.type))
        return None
    if isinstance(event, RunStartedEvent):
        if event.input is None:
            return event
        given = event.input
        messages = _all_unattributed(given.messages)
        return event if messages is given.messages else replace(event, input=replace(given, messages=messages))
    if isinstance(event, MessagesSnapshotEvent):
        messages = _all_unattributed(event.messages)
        return event if messages is event.messages else replace(event, messages=messages)
    if isinstance(event, RunFinishedEvent):
        outcome = event.outcome
        if not isinstance(outcome, RunFinishedInterruptOutcome):
            return event
        interrupts = _all_unattributed(outcome.interrupts)
        if interrupts is outcome.interrupts:
            return event
        return replace(event, outcome=replace(outcome, interrupts=interrupts))
    return _unattributed(event)


def _all_unattributed(objects: list[T]) -> list[T]:
    return unless_unchanged([_unattributed(one) for one in objects], objects)


def _unattributed(obj: Any) -> Any:
    # Only RUN_ERROR lacks the member.
    return obj if getattr(obj, "subagent_run_id", None) is None else replace(obj, subagent_run_id=None)


def _message(message: Message, peer: Version, report: Report, path: str) -> Message:
    changes = without_value_types(message, report, path)
    if isinstance(message, AssistantMessage) and peer <= _TEXT_ONLY and message.content is None:
        changes["content"] = ""
    if peer <= _NO_SUBAGENTS:
        if message.subagent_run_id is not None:
            changes["subagent_run_id"] = None
        if isinstance(message, UserMessage | ToolMessage) and not isinstance(message.content, str):
            content = _content(message, message.content, peer, report, f"{path}/content")
            if content is not message.content:
                changes["content"] = content
    return replace(message, **changes) if changes else message


def _content(
    message: UserMessage | ToolMessage, parts: list[ContentPart], peer: Version, report: Report, path: str
) -> str | list[Any]:
    """Rewrite parts as the peer reads them: with any source, as ``binary``, or text alone."""
    if peer <= _TEXT_ONLY or isinstance(message, ToolMessage):
        dropped = sorted({part.type for part in parts if not isinstance(part, TextPart)})
        if dropped:
            report(f"content that is not text ({', '.join(dropped)})", path)
        return "".join(part.text for part in parts if isinstance(part, TextPart))
    # A caller that knows the peer may have sent a binary part: it stays.
    media = {i: part for i, part in enumerate(parts) if isinstance(part, MediaPart)}
    if peer <= _BINARY_PARTS:
        binary = {i: as_binary(part, report, f"{path}/{i}") for i, part in media.items()}
        return [binary.get(i, part) for i, part in enumerate(parts)] if binary else parts
    files = {i for i, part in media.items() if isinstance(part.source, FileSource)}
    for i in sorted(files):
        report("a part with a file source", f"{path}/{i}")
    return [part for i, part in enumerate(parts) if i not in files] if files else parts
