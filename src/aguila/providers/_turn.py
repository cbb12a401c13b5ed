"""Layer: providers. One answer of a model, kept to be told again.

Below: ``Run`` and its handles. Above: ``_teller``, which gathers it, ``_loop``. A run that resumes after a question is
replayed, and a model asked again would say something else; so a turn is a JSON value that can be recorded, with all ids
that it was told under. A file that the model makes is told as an activity, as an assistant's message cannot hold one;
the model is shown it again within the run only.
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
from aguila.providers._artefact import Place, placed
from aguila.providers._citations import CITATIONS, Citation
from aguila.providers._reading import FINISH_REASON

MADE_FILE = "aguila.file"
"""The type of the activity that is a file which the model made; its content is the part that a user's would be."""


class Text(msgspec.Struct, tag="text", omit_defaults=True):
    """What was said; ``offset`` is how much its message had said before. Empty, it is only an artefact after calls.

    ``closing`` is the metadata that its end told of the message.
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
    """What was thought."""

    message_id: str
    text: str = ""
    artefact: str | None = None
    artefact_type: str | None = None


class Call(msgspec.Struct, tag="call", omit_defaults=True):
    """A call that was made; ``is_held`` while nobody was told of it."""

    call_id: str
    name: str
    message_id: str
    arguments: str = ""
    artefact: str | None = None
    artefact_type: str | None = None
    is_held: bool = False
    is_complete: bool = False

    def as_content(self) -> FunctionCallContent:
        """The call as it stands in the chat."""
        return FunctionCallContent(
            self.call_id,
            self.name,
            self.arguments,
            additional_properties=_properties(self.artefact, self.artefact_type),
        )


class File(msgspec.Struct, tag="file", omit_defaults=True):
    """A file that was made."""

    message_id: str
    data: bytes
    media_type: str
    artefact: str | None = None
    artefact_type: str | None = None


class Turn(msgspec.Struct, omit_defaults=True):
    """All that a model answered, in order."""

    items: list[Text | Thought | Call | File] = []
    finish_reason: str | None = None
    heard: list[str] = []
    """The messages that the user sent along with an answer, and that the model was shown before it said this."""

    @classmethod
    async def recalled(cls, record: Any) -> Turn:
        """Decode a recorded turn, offloaded if it has a large file."""
        is_large = any(len(item.get("data", "")) > LARGE for item in record.get("items", ()))
        return await offload(msgspec.convert, record, cls) if is_large else msgspec.convert(record, cls)

    async def as_record(self) -> Any:
        """Encode the turn as JSON, with files as base64, offloaded if it has a large file."""
        is_large = any(isinstance(item, File) and len(item.data) > LARGE for item in self.items)
        return await offload(msgspec.to_builtins, self) if is_large else msgspec.to_builtins(self)

    @property
    def calls(self) -> list[Call]:
        """The calls that it makes."""
        return [item for item in self.items if isinstance(item, Call)]

    def told_before(self, held: Call) -> str | None:
        """The call of the same message that was told before this one, which was held, although it was made after."""
        calls = self.calls
        later = calls[calls.index(held) + 1 :]
        return next((call.call_id for call in later if not call.is_held and call.message_id == held.message_id), None)

    def as_message(self) -> ChatMessage:
        """The answer as it stands in the chat."""
        contents: list[Content] = []
        for item in self.items:
            match item:
                case Text():
                    value = placed(item.artefact, item.place)
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


async def retell(run: Run, chat: ChatHandle, turn: Turn) -> None:
    """Tell a turn again as it was told before, under the same ids, but for what was held back."""
    for item in turn.items:
        match item:
            case File():
                await tell_file(chat, item)
            case Text():
                if item.text != "":
                    await chat.tell(ChatUpdate(contents=[TextContent(item.text)], message_id=item.message_id))
                    await chat.close(item.closing)
                if item.artefact is not None and not item.is_held:
                    await tell_artefact(run, item)
            case Thought():
                its = {CONTENT_ID: item.message_id, ENCRYPTED_VALUE_TYPE: item.artefact_type}
                thought = ReasoningContent(item.text, item.artefact, additional_properties=its)
                await chat.tell(ChatUpdate(contents=[thought]))
                await chat.close()
            case Call():
                if not item.is_held:
                    await tell_call(chat, item)


async def tell_call(chat: ChatHandle, call: Call, *, before: str | None = None) -> None:
    """Tell a call, or what was not told of it, and which other it was ``before`` although that was told already."""
    its = call.as_content()
    own = add_own_metadata(None, before=before)
    if own is not None:
        its = replace(its, additional_properties={**its.additional_properties, METADATA: own})
    await chat.tell(ChatUpdate(contents=[its], message_id=call.message_id))


async def tell_artefact(run: Run, item: Text) -> None:
    """Tell the artefact of a text."""
    place = None if item.place is None else item.place.moved(item.offset)
    value = placed(item.artefact, place)
    await run.emit(
        ReasoningEncryptedValueEvent(
            subtype="message",
            entity_id=item.message_id,
            encrypted_value="" if value is None else value,
            encrypted_value_type=item.artefact_type,
        )
    )


async def tell_file(chat: ChatHandle, item: File) -> None:
    """Tell a file: as an activity, unless a hook knows better."""
    family = item.media_type.partition("/")[0]
    text = await offload(encode_base64, item.data) if len(item.data) > LARGE else encode_base64(item.data)
    source = {"type": "data", "value": text, "mimeType": item.media_type}
    content = {"type": family if family in ("image", "audio", "video") else "document", "source": source}
    shown = ActivitySnapshotEvent(message_id=item.message_id, activity_type=MADE_FILE, content=content)
    await chat.tell(ChatUpdate(contents=[DataContent(item.data, item.media_type, raw_representation=shown)]))
