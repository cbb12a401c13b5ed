"""Send a model's answer through the run while it arrives, and collect it as a turn.

We choose the message ids: a provider's id may be anything, even the same for every answer (#7429). A call keeps the
provider's id unless the thread already has it. Calls name their message, so that a client keeps parallel calls
together. Reasoning, a file or another item after text starts a new message, to keep the order. Text after calls
continues in their message, because results must directly follow calls; the end of that text has the order and the
citations in the message's metadata.

A call is ended when it is complete, and not if the answer is cut off inside it: TOOL_CALL_END means that the arguments
are complete (TOOL-3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from aguila.agent.handles import ChatHandle
from aguila.agent.run import Run
from aguila.chat import (
    ChatUpdate,
    DataContent,
    ErrorContent,
    FunctionCallContent,
    ReasoningContent,
    TextContent,
    UsageContent,
)
from aguila.chat.own_metadata import add_own_metadata
from aguila.chat.property_keys import CONTENT_ID, ENCRYPTED_VALUE, ENCRYPTED_VALUE_TYPE
from aguila.codec.notices import Notice, log_notice
from aguila.errors import RunFailed
from aguila.protocol import TokenUsage, replace
from aguila.providers._agent.turn_record import (
    Call,
    File,
    Text,
    Thought,
    Turn,
    send_call,
    send_encrypted_value,
    send_file,
)
from aguila.providers._encrypted_values import Place
from aguila.providers._response.citations import Citation, citations_of
from aguila.providers._response.errors import FinishProblem
from aguila.providers._response.reader import FINISH_REASON, USAGE_SO_FAR


class StreamWriter:
    """Send the updates of a model through a run, and collect them as a turn.

    ``holds`` returns whether the calls of a tool are held back: they are sent at the end of the turn.
    """

    def __init__(self, run: Run, chat: ChatHandle, holds: Callable[[str], bool]) -> None:
        self.turn = Turn(items=[])
        self._run = run
        self._chat = chat
        self._holds = holds
        self._message = _Message(run.new_id("msg"))
        self._messages = [self._message]
        self._length = 0  # of all texts so far
        self._text: tuple[Text, list[str]] | None = None
        self._thought: tuple[Thought, list[str], Any] | None = None
        self._calls: dict[str, tuple[Call, list[str]]] = {}  # by the provider's id
        self._so_far: TokenUsage | None = None

    async def write(self, update: ChatUpdate) -> None:
        """Send the contents of an update. Raises ``RunFailed`` for an error content."""
        self._so_far = update.additional_properties.get(USAGE_SO_FAR, self._so_far)
        for content in update.contents:
            match content:
                case TextContent():
                    await self._write_text(content)
                case ReasoningContent():
                    await self._write_reasoning(content)
                case FunctionCallContent():
                    await self._write_call(content)
                case DataContent():
                    await self._write_file(content)
                case UsageContent():
                    self._so_far = None
                    self._run.add_usage(content.usage)
                case ErrorContent():
                    raise RunFailed(content.message, code=content.code)
                case _:
                    kind = type(content).__name__
                    log_notice(
                        Notice(rule="providers", message=f"dropped {kind}, which is not valid in a model's answer")
                    )
        reason = update.additional_properties.get(FINISH_REASON)
        if isinstance(reason, str):
            self.turn.finish_reason = reason

    def report_usage(self) -> None:
        """Report the usage so far, if the answer did not reach its end (USE-1)."""
        usage, self._so_far = self._so_far, None
        if usage is not None:
            self._run.add_usage(usage)

    async def end(self) -> Turn:
        """End the open items, except calls in which the answer was cut off, and return the turn."""
        await self._end_text()
        await self._end_reasoning()
        reason = self.turn.finish_reason
        is_cut = reason is None or FinishProblem.of(reason) is not None
        for call, texts in self._calls.values():
            call.arguments = "".join(texts)
            has_all = call.arguments.strip() != "" and call.as_content().parsed_arguments is not None
            was_complete = call.is_complete
            call.is_complete = was_complete or has_all or not is_cut
            if call.is_complete and not was_complete and not call.is_held:
                await send_call(self._chat, call)
        return self.turn

    def _start_message(self) -> None:
        """Start a new message, if something was sent with the id of the current one.

        A call that is held back does not count: it is sent later, and a new message would be sent before its message.
        """
        if self._message.is_sent or self._message.is_signed:
            self._message = _Message(self._run.new_id("msg"), self._length)
            self._messages.append(self._message)

    async def _write_text(self, content: TextContent) -> None:
        message = self._message
        if content.text != "":
            await self._end_reasoning()
            given = content.additional_properties.get(CONTENT_ID)
            is_after_signed = message.is_signed and not message.has_calls
            if self._text is not None and (is_after_signed or given != message.text_id):
                await self._end_text()  # a signed part or another item is not joined with later text
                if not message.has_calls:
                    self._start_message()
                    message = self._message
            message.text_id = given
            if self._text is None:
                message.is_used = True
                item = Text(message.id, offset=message.length)
                self.turn.items.append(item)
                self._text = (item, [])
            self._text[1].append(content.text)
            message.is_sent = True
            message.length += len(content.text)
            self._length += len(content.text)
            plain = _without(content, ENCRYPTED_VALUE, ENCRYPTED_VALUE_TYPE)  # sent separately, with its place
            await self._chat.send(ChatUpdate(contents=[plain], message_id=message.id))
        if ENCRYPTED_VALUE in content.additional_properties:
            await self._write_encrypted_value(content)
        for citation in citations_of(content):
            await self._cite(citation)

    async def _cite(self, citation: Citation) -> None:
        """Send a citation with the end of its text. If the text has ended, open it again (TXT-3)."""
        start = self._length if citation.start is None else citation.start
        message = next((one for one in reversed(self._messages) if one.length and one.begins <= start), None)
        if message is None:
            log_notice(Notice(rule="providers", message="dropped a citation outside the text of the answer"))
            return
        in_message = citation.within(message.begins, message.length)
        message.citations.append(in_message)
        texts = [one for one in self.turn.items if isinstance(one, Text) and one.message_id == message.id]
        at = message.length if in_message.start is None else in_message.start
        item = next((one for one in reversed(texts) if one.offset <= at), texts[0])
        item.citations.append(in_message.within(item.offset, message.length - item.offset))
        if self._text is None or self._text[0].message_id != message.id:
            item.closing = message.metadata()
            async with self._run.text(message_id=message.id) as handle:
                handle.closing = item.closing

    async def _write_encrypted_value(self, content: TextContent) -> None:
        """Send the opaque value of a piece of text, which may be empty."""
        message = self._message
        value = content.additional_properties[ENCRYPTED_VALUE]
        value_type = content.additional_properties.get(ENCRYPTED_VALUE_TYPE)
        if not message.is_used:  # there is no message yet for the value
            kind = {} if value_type is None else {ENCRYPTED_VALUE_TYPE: value_type}
            await self._write_reasoning(ReasoningContent("", value, additional_properties=kind))
            await self._end_reasoning()
            return
        if message.is_signed:
            log_notice(Notice(rule="ENC-1", message="dropped a second encrypted value of one message"))
            return
        message.is_signed = True
        if self._text is None:
            item = Text(message.id, offset=message.length)
            self.turn.items.append(item)
        else:
            item = self._text[0]
        start = message.length - len(content.text) - item.offset
        item.artefact, item.artefact_type = value, value_type
        item.place = Place(
            start=start, length=len(content.text), is_after_calls=message.has_calls and content.text == ""
        )
        item.is_held = not message.is_sent
        if not item.is_held:
            await send_encrypted_value(self._run, item)

    async def _end_text(self) -> None:
        if self._text is not None:
            (item, texts), self._text = self._text, None
            item.text = "".join(texts)
            message = next(one for one in reversed(self._messages) if one.id == item.message_id)
            message.order.append(len(item.text))
            item.closing = message.metadata()
            await self._chat.close(item.closing)

    async def _write_reasoning(self, content: ReasoningContent) -> None:
        if content.text == "" and content.protected_data is None:
            return
        given = content.additional_properties.get(CONTENT_ID)
        if self._thought is not None and given != self._thought[2]:
            await self._end_reasoning()
        if self._thought is None:
            await self._end_text()
            self._start_message()
            item = Thought(self._run.new_id("rsn"))
            self.turn.items.append(item)
            self._thought = (item, [], given)
        item, texts, _ = self._thought
        if content.text != "":
            texts.append(content.text)
        if content.protected_data is not None:
            item.artefact = content.protected_data
            item.artefact_type = content.additional_properties.get(ENCRYPTED_VALUE_TYPE)
        properties = {**content.additional_properties, CONTENT_ID: item.message_id}
        await self._chat.send(ChatUpdate(contents=[replace(content, additional_properties=properties)]))

    async def _end_reasoning(self) -> None:
        if self._thought is not None:
            (item, texts, _), self._thought = self._thought, None
            item.text = "".join(texts)
            await self._chat.close()

    async def _write_call(self, content: FunctionCallContent) -> None:
        known = self._calls.get(content.call_id)
        if known is None:
            await self._end_text()
            await self._end_reasoning()
            known = self._calls[content.call_id] = self._start_call(content), []
        call, texts = known
        so_far = sum(map(len, texts)) if content.is_complete else 0
        more = content.arguments[so_far:]
        if more != "":
            texts.append(more)
        if content.is_complete:
            call.is_complete = True
        artefact = content.additional_properties.get(ENCRYPTED_VALUE)
        if artefact is not None and call.artefact is None:
            call.artefact, call.artefact_type = artefact, content.additional_properties.get(ENCRYPTED_VALUE_TYPE)
        if not call.is_held:
            its = replace(content, call_id=call.call_id)
            await self._chat.send(ChatUpdate(contents=[its], message_id=call.message_id))

    def _start_call(self, content: FunctionCallContent) -> Call:
        self._message.is_used = self._message.has_calls = True
        call = Call(self._run.new_call_id(content.call_id), content.name, self._message.id)
        self.turn.items.append(call)
        self._message.order.append(call.call_id)
        call.is_held = self._holds(call.name)
        if not call.is_held:
            self._message.is_sent = True
        return call

    async def _write_file(self, content: DataContent) -> None:
        await self._end_text()
        await self._end_reasoning()
        self._start_message()
        properties = content.additional_properties
        item = File(
            self._run.new_id("act"),
            content.data,
            content.media_type,
            properties.get(ENCRYPTED_VALUE),
            properties.get(ENCRYPTED_VALUE_TYPE),
        )
        self.turn.items.append(item)
        await send_file(self._chat, item)


class _Message:
    """The output that was sent under one message id."""

    __slots__ = (
        "begins",
        "citations",
        "has_calls",
        "id",
        "is_sent",
        "is_signed",
        "is_used",
        "length",
        "order",
        "text_id",
    )

    def __init__(self, message_id: str, begins: int = 0) -> None:
        self.id = message_id
        self.begins = begins  # position in the whole answer
        self.order: list[int | str] = []  # text lengths and call ids
        self.citations: list[Citation] = []
        self.is_used = False
        self.is_sent = False  # False while it has only held calls
        self.has_calls = False
        self.is_signed = False
        self.length = 0  # of its text so far
        self.text_id: Any = None  # the provider's id of the item of its text

    def metadata(self) -> dict[str, Any] | None:
        """Return the metadata of the message: the order of texts and calls, if they are mixed, and the citations."""
        calls = [index for index, one in enumerate(self.order) if isinstance(one, str)]
        is_mixed = any(isinstance(one, int) for one in self.order[calls[0] :]) if calls else False
        return add_own_metadata(
            None,
            order=list(self.order) if is_mixed else None,
            citations=msgspec.to_builtins(self.citations) if self.citations else None,
        )


def _without(content: TextContent, *names: str) -> TextContent:
    properties = content.additional_properties
    if not properties or not any(name in properties for name in names):
        return content
    return replace(content, additional_properties={key: properties[key] for key in properties if key not in names})
