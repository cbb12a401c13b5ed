"""One answer of a model as it was sent, so that a replay can send it again with the same ids.

A run that resumes after a question is replayed, and the model would answer differently if asked again. A file made by
the model is sent as an activity, because an assistant message cannot contain files; the model sees it again within the
run only.
"""

from __future__ import annotations

from typing import Any

import msgspec

from aguila.agent.handles import ChatHandle
from aguila.agent.run import Run
from aguila.chat import ChatUpdate, DataContent, FunctionCallContent, ReasoningContent, TextContent
from aguila.chat.media import encode_base64
from aguila.chat.own_metadata import add_own_metadata
from aguila.chat.property_keys import CONTENT_ID, ENCRYPTED_VALUE, ENCRYPTED_VALUE_TYPE, METADATA
from aguila.frameworks.pydantic_ai.opaque import KIND
from aguila.offload import LARGE, offload
from aguila.protocol import ActivitySnapshotEvent, ReasoningEncryptedValueEvent, replace

MADE_FILE = "aguila.file"
"""The activity type of a file made by the model. Its content is a message part, as of a user's file."""


class Text(msgspec.Struct, tag="text", omit_defaults=True):
    """A text. ``closing`` is the metadata that was sent with its end."""

    message_id: str
    text: str = ""
    closing: dict[str, Any] | None = None


class Value(msgspec.Struct, tag="value", omit_defaults=True):
    """The opaque value of a message with text."""

    message_id: str
    value: str


class Thought(msgspec.Struct, tag="thought", omit_defaults=True):
    """A reasoning text with its opaque value."""

    message_id: str
    text: str = ""
    value: str | None = None


class Call(msgspec.Struct, tag="call", omit_defaults=True):
    """A tool call. ``is_held``: it is sent at the end of the run, or of a later run that does not ask."""

    call_id: str
    name: str
    message_id: str
    arguments: str = ""
    value: str | None = None
    is_held: bool = False
    is_complete: bool = False

    def as_content(self) -> FunctionCallContent:
        """Return the call as a chat content."""
        kept = {} if self.value is None else {ENCRYPTED_VALUE: self.value, ENCRYPTED_VALUE_TYPE: KIND}
        return FunctionCallContent(self.call_id, self.name, self.arguments, additional_properties=kept)


class File(msgspec.Struct, tag="file", omit_defaults=True):
    """A file made by the model."""

    message_id: str
    data: bytes
    media_type: str


class Turn(msgspec.Struct, omit_defaults=True):
    """The complete answer of a model, in the order in which it was sent."""

    items: list[Text | Value | Thought | Call | File] = []
    finish_reason: str | None = None
    added_messages: list[str] = []
    """Ids of the messages that the user sent with an answer, and that the model saw before this turn."""

    @classmethod
    async def from_record(cls, record: Any) -> Turn:
        """Decode a recorded turn, offloaded if it has a large file."""
        is_large = any(len(item.get("data", "")) > LARGE for item in record.get("items", ()))
        return await offload(msgspec.convert, record, cls) if is_large else msgspec.convert(record, cls)

    async def to_record(self) -> Any:
        """Encode the turn as JSON, with files as base64, offloaded if it has a large file."""
        is_large = any(isinstance(item, File) and len(item.data) > LARGE for item in self.items)
        return await offload(msgspec.to_builtins, self) if is_large else msgspec.to_builtins(self)

    @property
    def calls(self) -> list[Call]:
        """The tool calls of the turn."""
        return [item for item in self.items if isinstance(item, Call)]

    def find_call_sent_before(self, held: Call) -> str | None:
        """Return the call of the same message that was sent before this held one, although it was made after it."""
        calls = self.calls
        later = calls[calls.index(held) + 1 :]
        return next((call.call_id for call in later if not call.is_held and call.message_id == held.message_id), None)


async def replay_turn(run: Run, chat: ChatHandle, turn: Turn) -> None:
    """Send a turn again with the same ids, except for held calls."""
    for item in turn.items:
        match item:
            case File():
                await send_file(chat, item)
            case Text():
                await chat.send(ChatUpdate(contents=[TextContent(item.text)], message_id=item.message_id))
                await chat.close(item.closing)
            case Value():
                await send_value(run, item)
            case Thought():
                its = {CONTENT_ID: item.message_id, ENCRYPTED_VALUE_TYPE: KIND}
                thought = ReasoningContent(item.text, item.value, additional_properties=its)
                await chat.send(ChatUpdate(contents=[thought]))
                await chat.close()
            case Call():
                if not item.is_held:
                    await send_call(chat, item)


async def send_call(chat: ChatHandle, call: Call, *, before: str | None = None) -> None:
    """Send a call, or the rest of it. ``before`` is the id of a later call that was sent already."""
    its = call.as_content()
    own = add_own_metadata(None, before=before)
    if own is not None:
        its = replace(its, additional_properties={**its.additional_properties, METADATA: own})
    await chat.send(ChatUpdate(contents=[its], message_id=call.message_id))


async def send_value(run: Run, item: Value) -> None:
    """Send the opaque value of a message."""
    await run.emit(
        ReasoningEncryptedValueEvent(
            subtype="message",
            entity_id=item.message_id,
            encrypted_value=item.value,
            encrypted_value_type=KIND,
        )
    )


async def send_file(chat: ChatHandle, item: File) -> None:
    """Send a file as an activity, unless a hook replaces it."""
    family = item.media_type.partition("/")[0]
    text = await offload(encode_base64, item.data) if len(item.data) > LARGE else encode_base64(item.data)
    source = {"type": "data", "value": text, "mimeType": item.media_type}
    content = {"type": family if family in ("image", "audio", "video") else "document", "source": source}
    shown = ActivitySnapshotEvent(message_id=item.message_id, activity_type=MADE_FILE, content=content)
    await chat.send(ChatUpdate(contents=[DataContent(item.data, item.media_type, raw_representation=shown)]))
