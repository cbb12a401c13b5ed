"""Send a model's answer through the run while it arrives, and collect it as a turn.

We choose the message ids: a vendor's id may be anything, even the same for every answer (#7429). A call keeps its id
unless the thread already has it. Calls name their message, so that a client keeps parallel calls together. Reasoning, a
file or another item after text starts a new message, to keep the order. Text after calls continues in their message,
because results must directly follow calls; the end of that text has the order and the citations in the message's
metadata.

A call is ended when it is complete, and not if the answer is cut off inside it: TOOL_CALL_END means that the arguments
are complete (TOOL-3). Arguments of parallel calls may be interleaved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import pairwise
from typing import Any

from pydantic_ai.messages import (
    FilePart,
    ModelResponsePart,
    ModelResponseStreamEvent,
    NativeToolCallPart,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)

from aguila.agent.handles import ChatHandle
from aguila.agent.run import Run
from aguila.chat import ChatUpdate, FunctionCallContent, ReasoningContent, TextContent
from aguila.chat.own_metadata import add_own_metadata
from aguila.chat.property_keys import CONTENT_ID, ENCRYPTED_VALUE, ENCRYPTED_VALUE_TYPE
from aguila.codec.json.encoder import encode
from aguila.frameworks.pydantic_ai.citations import citations_of
from aguila.frameworks.pydantic_ai.errors import FinishProblem
from aguila.frameworks.pydantic_ai.names import replace_surrogates
from aguila.frameworks.pydantic_ai.opaque import KIND, details_of, pack, whole_part
from aguila.frameworks.pydantic_ai.turn import (
    Call,
    File,
    Text,
    Thought,
    Turn,
    Value,
    send_call,
    send_file,
    send_value,
)


class AnswerWriter:
    """Send the parts of an answer through a run, and collect them as a turn.

    ``own_name`` returns our name of a tool for the name that the model has. ``holds`` returns whether the calls of a
    tool are held back until the end of the run. Calls of ``hidden`` tools are how a model gives its structured output:
    they are not shown, nor is text if ``hides_text``.
    """

    def __init__(
        self,
        run: Run,
        chat: ChatHandle,
        *,
        own_name: Callable[[str], str],
        holds: Callable[[str], bool],
        hidden: Collection[str] = (),
        hides_text: bool = False,
    ) -> None:
        self.turn = Turn(items=[])
        self._run = run
        self._chat = chat
        self._own_name = own_name
        self._holds = holds
        self._hidden = hidden
        self._hides_text = hides_text
        self._message = _Message(run.new_id("msg"))
        self._texts: dict[int, _TextOfPart] = {}  # by the index of their part, as the following
        self._calls: dict[int, tuple[Call, list[str]]] = {}
        self._open_text: tuple[int, Text, list[str]] | None = None
        self._open_thought: tuple[int, Thought, list[str]] | None = None

    async def write(self, event: ModelResponseStreamEvent) -> None:
        """Send what an event of the model's stream adds to its answer."""
        match event:
            case PartStartEvent(index=index, part=part):
                await self._begin(index, part)
            case PartDeltaEvent(index=index, delta=TextPartDelta() as text):
                await self.write_text(index, text.content_delta)
            case PartDeltaEvent(index=index, delta=ThinkingPartDelta() as thought):
                await self._write_thought(index, thought.content_delta or "")
            case PartDeltaEvent(index=index, delta=ToolCallPartDelta() as call):
                if index in self._calls and isinstance(call.args_delta, str):
                    await self._write_arguments(index, call.args_delta)
            case PartEndEvent(index=index, part=part):
                await self._finish(index, part)
            case _:  # the final result is found by pydantic-ai's agent, too
                pass

    async def _begin(self, index: int, part: ModelResponsePart) -> None:
        match part:
            case TextPart():
                self._texts[index] = _TextOfPart(part.id)
                await self.write_text(index, part.content)
            case ThinkingPart():
                await self._write_thought(index, part.content)
            case ToolCallPart():
                if part.tool_name not in self._hidden:
                    await self._begin_call(index, part)
            case FilePart():
                await self._write_file(part)
            case NativeToolCallPart():
                pass  # complete at its end
            case _:
                await self._write_whole(part)

    async def _finish(self, index: int, part: ModelResponsePart) -> None:
        match part:
            case TextPart():
                await self._finish_text(index, part)
            case ThinkingPart():
                value = pack(details_of(part))
                if value is not None:
                    await self._write_thought(index, "", value)
                await self._end_thought()
            case ToolCallPart():
                if index in self._calls:
                    await self._finish_call(index, part)
            case NativeToolCallPart():
                await self._write_whole(part)
            case _:
                pass

    async def end(self, parts: list[tuple[int, ModelResponsePart]]) -> Turn:
        """End what is open, except calls in which the answer was cut off, and return the turn.

        ``parts`` are those of the complete answer: some vendors send citations after everything else.
        """
        for index, part in parts:
            if isinstance(part, TextPart):
                await self._finish_text(index, part)
        await self._end_text()
        await self._end_thought()
        await self._leave_message()
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

    # Messages

    async def _start_message(self) -> None:
        """Start a new message, if something was sent with the id of the current one.

        A call that is held back does not count: it is sent later, and a new message would be sent before its message.
        """
        if self._message.is_sent:
            await self._leave_message()
            self._message = _Message(self._run.new_id("msg"))

    async def _leave_message(self) -> None:
        """Send what the vendor wants back with the texts of the current message, and where they join."""
        message = self._message
        has_several = any(
            not isinstance(one, str) and not isinstance(other, str) for one, other in pairwise(message.order)
        )
        texts = [one for one in message.texts if has_several or one.details]
        kept = [{"start": one.start, "length": one.length, **one.details} for one in texts]
        value = pack({"texts": kept} if kept else {})
        if value is not None:
            item = Value(self._message.id, value)
            self.turn.items.append(item)
            await send_value(self._run, item)

    # Text

    async def write_text(self, index: int, text: str) -> None:
        """Send more of the text of a part."""
        if text == "" or self._hides_text:
            return
        await self._end_thought()
        part = self._texts.setdefault(index, _TextOfPart(None))
        message = self._message
        if part.message is None:
            before = message.texts[-1] if message.texts else None
            if before is not None and not message.has_calls and (part.id is not None or before.id is not None):
                await self._end_text()  # vendors that give texts an id mean messages
                await self._start_message()
                message = self._message
            part.message, part.start = message, message.length
            message.texts.append(part)
            message.order.append(part)
        if self._open_text is None:
            item = Text(message.id)
            self.turn.items.append(item)
            self._open_text = (index, item, [])
        self._open_text[2].append(text)
        part.length += len(text)
        message.length += len(text)
        message.is_sent = True
        await self._chat.send(ChatUpdate(contents=[TextContent(text)], message_id=message.id))

    async def _finish_text(self, index: int, part: TextPart) -> None:
        own = self._texts.get(index)
        if own is None or self._hides_text:
            return
        details = details_of(part)
        if own.message is None:
            if details and not own.is_kept:  # a signature without text
                own.is_kept = True
                await self._write_whole(part)
            return
        own.details = details
        found = citations_of(part, own.start)
        if len(found) == own.citations:
            return
        own.message.citations += found[own.citations :]
        own.citations = len(found)
        if self._open_text is None or self._open_text[1].message_id != own.message.id:
            item = next(one for one in self.turn.items if isinstance(one, Text) and one.message_id == own.message.id)
            item.closing = own.message.metadata()
            async with self._run.text(message_id=own.message.id) as handle:
                handle.closing = item.closing

    async def _end_text(self) -> None:
        if self._open_text is not None:
            (_, item, texts), self._open_text = self._open_text, None
            item.text = "".join(texts)
            item.closing = self._message.metadata()
            await self._chat.close(item.closing)

    # Reasoning, and parts that are only for the model

    async def _write_thought(self, index: int, text: str, value: str | None = None) -> None:
        if text == "" and value is None:
            return
        if self._open_thought is not None and self._open_thought[0] != index:
            await self._end_thought()
        if self._open_thought is None:
            await self._end_text()
            await self._start_message()
            item = Thought(self._run.new_id("rsn"))
            self.turn.items.append(item)
            self._open_thought = (index, item, [])
        _, item, texts = self._open_thought
        if text != "":
            texts.append(text)
        its: dict[str, Any] = {CONTENT_ID: item.message_id}
        if value is not None:
            item.value = value
            its[ENCRYPTED_VALUE_TYPE] = KIND
        await self._chat.send(ChatUpdate(contents=[ReasoningContent(text, value, additional_properties=its)]))

    async def _end_thought(self) -> None:
        if self._open_thought is not None:
            (_, item, texts), self._open_thought = self._open_thought, None
            item.text = "".join(texts)
            await self._chat.close()

    async def _write_whole(self, part: ModelResponsePart) -> None:
        """Send a part that only the model can read as the value of an empty reasoning message."""
        await self._end_thought()
        await self._write_thought(-1, "", pack(whole_part(part)))
        await self._end_thought()

    # Calls and files

    async def _begin_call(self, index: int, part: ToolCallPart) -> None:
        await self._end_text()
        await self._end_thought()
        message = self._message
        message.has_calls = True
        call = Call(self._run.new_call_id(part.tool_call_id), self._own_name(part.tool_name), message.id)
        call.is_held = self._holds(call.name)
        self.turn.items.append(call)
        self._calls[index] = call, []
        message.order.append(call.call_id)
        message.is_sent = message.is_sent or not call.is_held
        await self._send_piece(call, part.args if isinstance(part.args, str) else "")
        self._calls[index][1].append(part.args if isinstance(part.args, str) else "")

    async def _write_arguments(self, index: int, text: str) -> None:
        call, texts = self._calls[index]
        if text != "":
            texts.append(text)
            await self._send_piece(call, text)

    async def _send_piece(self, call: Call, text: str, *, is_complete: bool = False) -> None:
        kept = {ENCRYPTED_VALUE: call.value, ENCRYPTED_VALUE_TYPE: KIND} if is_complete and call.value else {}
        piece = FunctionCallContent(call.call_id, call.name, text, is_complete=is_complete, additional_properties=kept)
        if not call.is_held:
            await self._chat.send(ChatUpdate(contents=[piece], message_id=call.message_id))

    async def _finish_call(self, index: int, part: ToolCallPart) -> None:
        """End a call whose arguments are complete. Those of interleaved calls are complete at the end of the answer."""
        call, texts = self._calls[index]
        call.value = pack(details_of(part))
        if isinstance(part.args, dict):  # of vendors that do not stream arguments
            await self._write_arguments(index, encode(replace_surrogates(part.args)).decode()[sum(map(len, texts)) :])
        call.arguments = "".join(texts)
        if call.arguments.strip() != "" and call.as_content().parsed_arguments is not None:
            call.is_complete = True
            await self._send_piece(call, call.arguments, is_complete=True)

    async def _write_file(self, part: FilePart) -> None:
        await self._end_text()
        await self._end_thought()
        await self._start_message()
        item = File(self._run.new_id("act"), part.content.data, part.content.media_type)
        self.turn.items.append(item)
        await send_file(self._chat, item)


class _TextOfPart:
    """The text of one part, in its message. ``citations`` are those that were sent."""

    __slots__ = ("citations", "details", "id", "is_kept", "length", "message", "start")

    def __init__(self, id: str | None) -> None:  # noqa: A002 - pydantic-ai's word
        self.id = id
        self.message: _Message | None = None
        self.start = 0
        self.length = 0
        self.details: dict[str, Any] = {}
        self.citations = 0
        self.is_kept = False


class _Message:
    """The output that was sent under one message id."""

    __slots__ = ("citations", "has_calls", "id", "is_sent", "length", "order", "texts")

    def __init__(self, message_id: str) -> None:
        self.id = message_id
        self.order: list[_TextOfPart | str] = []  # texts and call ids
        self.texts: list[_TextOfPart] = []
        self.citations: list[dict[str, Any]] = []
        self.is_sent = False  # False while it has only held calls
        self.has_calls = False
        self.length = 0  # of its text so far

    def metadata(self) -> dict[str, Any] | None:
        """Return the metadata of the message: the order of texts and calls, if they are mixed, and the citations."""
        order = [one if isinstance(one, str) else one.length for one in self.order]
        calls = [index for index, one in enumerate(order) if isinstance(one, str)]
        is_mixed = any(isinstance(one, int) for one in order[calls[0] :]) if calls else False
        return add_own_metadata(None, order=order if is_mixed else None, citations=self.citations or None)
