"""One answer of a model as a record that can be replayed.

A run that resumes after a question is replayed, and the model would answer differently if asked again. So a turn is a
JSON value with all ids that it was sent with. A file made by the model is sent as an activity, because an assistant
message cannot contain files; the model sees it again within the run only.
"""

from __future__ import annotations

from typing import Any

import msgspec

from aguila.agent.handles import ChatHandle
from aguila.agent.run import Run
from aguila.chat import (
    ChatMessage,
    ChatUpdate,
    Content,
    DataContent,
    FunctionCallContent,
    ReasoningContent,
    TextContent,
)
from aguila.chat.media import encode_base64
from aguila.chat.own_metadata import add_own_metadata
from aguila.chat.property_keys import CONTENT_ID, ENCRYPTED_VALUE, ENCRYPTED_VALUE_TYPE, METADATA
from aguila.offload import LARGE, offload
from aguila.protocol import ActivitySnapshotEvent, ReasoningEncryptedValueEvent, replace
from aguila.providers._encrypted_values import Place, pack_place
from aguila.providers._response.citations import CITATIONS, Citation
from aguila.providers._response.reader import FINISH_REASON

MADE_FILE = "aguila.file"
"""The activity type of a file made by the model. Its content is a message part, as of a user's file."""


class Text(msgspec.Struct, tag="text", omit_defaults=True):
    """A text. ``offset`` is the length of its message before it. An empty text only has an opaque value after calls.

    ``closing`` is the metadata that was sent with its end.
    """

    message_id: str
    text: str = ""
    artefact: str | None = None
    artefact_type: str | None = None
    offset: int = 0
    place: Place | None = None
    is_held: bool = False
    citations: list[Citation] = []
    closing: dict[str, Any] | None = None


class Thought(msgspec.Struct, tag="thought", omit_defaults=True):
    """A reasoning text."""

    message_id: str
    text: str = ""
    artefact: str | None = None
    artefact_type: str | None = None


class Call(msgspec.Struct, tag="call", omit_defaults=True):
    """A tool call. ``is_held``: it was not sent yet."""

    call_id: str
    name: str
    message_id: str
    arguments: str = ""
    artefact: str | None = None
    artefact_type: str | None = None
    is_held: bool = False
    is_complete: bool = False

    def as_content(self) -> FunctionCallContent:
        """Return the call as a chat content."""
        return FunctionCallContent(
            self.call_id,
            self.name,
            self.arguments,
            additional_properties=_properties(self.artefact, self.artefact_type),
        )


class File(msgspec.Struct, tag="file", omit_defaults=True):
    """A file made by the model."""

    message_id: str
    data: bytes
    media_type: str
    artefact: str | None = None
    artefact_type: str | None = None


class Turn(msgspec.Struct, omit_defaults=True):
    """The complete answer of a model, in order."""

    items: list[Text | Thought | Call | File] = []
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

    def as_message(self) -> ChatMessage:
        """Return the answer as a chat message."""
        contents: list[Content] = []
        for item in self.items:
            match item:
                case Text():
                    value = pack_place(item.artefact, item.place)
                    kept = _properties(value, item.artefact_type)
                    if item.citations:
                        kept[CITATIONS] = item.citations
                    contents.append(TextContent(item.text, additional_properties=kept))
                case File():
                    kept = _properties(item.artefact, item.artefact_type)
                    contents.append(DataContent(item.data, item.media_type, additional_properties=kept))
                case Thought():
                    kind = {} if item.artefact_type is None else {ENCRYPTED_VALUE_TYPE: item.artefact_type}
                    contents.append(ReasoningContent(item.text, item.artefact, additional_properties=kind))
                case Call():
                    contents.append(item.as_content())
        properties = {} if self.finish_reason is None else {FINISH_REASON: self.finish_reason}
        return ChatMessage("assistant", contents, additional_properties=properties)


def _properties(value: str | None, value_type: str | None) -> dict[str, Any]:
    kept = {ENCRYPTED_VALUE: value, ENCRYPTED_VALUE_TYPE: value_type}
    return {} if value is None else {name: each for name, each in kept.items() if each is not None}


async def replay_turn(run: Run, chat: ChatHandle, turn: Turn) -> None:
    """Send a turn again with the same ids, except for held calls."""
    for item in turn.items:
        match item:
            case File():
                await send_file(chat, item)
            case Text():
                if item.text != "":
                    await chat.send(ChatUpdate(contents=[TextContent(item.text)], message_id=item.message_id))
                    await chat.close(item.closing)
                if item.artefact is not None and not item.is_held:
                    await send_encrypted_value(run, item)
            case Thought():
                its = {CONTENT_ID: item.message_id, ENCRYPTED_VALUE_TYPE: item.artefact_type}
                thought = ReasoningContent(item.text, item.artefact, additional_properties=its)
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


async def send_encrypted_value(run: Run, item: Text) -> None:
    """Send the opaque value of a text."""
    place = None if item.place is None else item.place.moved(item.offset)
    value = pack_place(item.artefact, place)
    await run.emit(
        ReasoningEncryptedValueEvent(
            subtype="message",
            entity_id=item.message_id,
            encrypted_value="" if value is None else value,
            encrypted_value_type=item.artefact_type,
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
