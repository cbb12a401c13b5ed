"""Layer: chat. The contents that make up a conversation, to events: text, reasoning, calls and their results.

Below: ``EventWriter``, which cannot write an illegal event. Above: ``updates_out``, which asks hooks first and knows
what else an update may hold. Here are the order and the ids:

* Text of one message goes on under one id: the provider's, or one that is minted when it has none (#3433) or when the
  thread has that id already. Reasoning and calls end the text; it may go on under its id after them, but not after a
  result, which stands between.
* Reasoning is a message with an id of its own, even if the provider shares one with the text (#2619).
* A call names its parent only if the provider named the message (#2637, #6015), and results never share an id (#3962).
* A call that the thread has already is not sent again (P21); a call id that was answered before gets a new one.
* An artefact goes to what it came with, whenever it comes (ENC-1): a call, or the message of a text, a result or the
  update itself. One that comes before its message is that of an empty reasoning message.
* The agent itself and each subagent have a lane of their own: who speaks in one ends nothing in another (SUB-12).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from aguila.chat.content import (
    Content,
    FunctionCallContent,
    FunctionResultContent,
    Properties,
    ReasoningContent,
    TextContent,
)
from aguila.chat.hooks import Preview
from aguila.chat.keys import CONTENT_ID, ENCRYPTED_VALUE, ENCRYPTED_VALUE_TYPE, METADATA, SUBAGENT_RUN_ID
from aguila.chat.message import ChatMessage, ChatUpdate
from aguila.chat.messages_out import result_content
from aguila.chat.own_metadata import with_own
from aguila.chat.partial_json import read_partial
from aguila.chat.sent_calls import SentCall, SentCalls
from aguila.codec.notice import Notice, Warn
from aguila.codec.values import is_object
from aguila.errors import EncodeError
from aguila.protocol import Event, Interrupt, Message, Metadata, ReasoningEncryptedValueSubtype, replace
from aguila.stream import EventWriter

_TEXT_ROLES = frozenset({"developer", "system", "assistant", "user"})

_Key = tuple[str | None, str]  # the provider's message id, and the role


class _Lane:
    """What is open for one owner, the agent itself or a subagent, and what may go on."""

    __slots__ = ("named", "reasoning", "text")

    def __init__(self) -> None:
        self.text: tuple[_Key, str] | None = None
        self.reasoning: tuple[str, str | None] | None = None  # our id and the provider's
        self.named: dict[_Key, str] = {}  # messages that the provider has named


class ContentWriter:
    """Writes contents as events of one run. What is written gathers in ``_out``."""

    def __init__(
        self,
        writer: EventWriter,
        messages: Iterable[Message],
        previews: Sequence[Preview],
        new_id: Callable[[], str],
        warn: Warn,
    ) -> None:
        self._writer = writer
        self._previews = previews
        self._new_id = new_id
        self._warn = warn
        self._out: list[Event] = []
        self._lanes: dict[str | None, _Lane] = {}
        self._taken: set[str] = set()  # message ids that mean something already
        self._calls = SentCalls()
        self._was_told_of_state = False
        self.keeps_names = False
        """Whether a message may go on after a result: its id is that of an agent which knows what it does."""
        self._signed: dict[tuple[str, str], str] = {}  # artefacts that were sent, by what has them
        self._host: str | None = None  # the message that an update with an artefact is in, once there is one
        for message in messages:
            self._taken.add(message.id)
            self._calls.remember(message)

    # Text

    def _write_text(self, content: TextContent, update: ChatUpdate | ChatMessage) -> None:
        if content.text == "":  # providers send empty pieces; they say nothing (P21), but may have an artefact
            self._sign(content.additional_properties, update)
            return
        subagent = update.additional_properties.get(SUBAGENT_RUN_ID)
        lane = self._lane(subagent)
        key = (update.message_id, update.role)
        if lane.text is None or lane.text[0] != key:
            self._start_text(lane, key, update.author_name, subagent)
        assert lane.text is not None  # noqa: S101
        self._out += self._writer.write_text(lane.text[1], content.text, metadata=_metadata(content))
        if content.additional_properties:
            self._sign(content.additional_properties, update)

    def _start_text(self, lane: _Lane, key: _Key, author_name: str | None, subagent: str | None) -> None:
        if key[1] not in _TEXT_ROLES:
            raise EncodeError(f"a stream of events cannot carry text of role {key[1]!r}")
        self._end_lane(lane)
        role: Any = None if key[1] == "assistant" else key[1]
        message_id = lane.named.get(key)
        if message_id is None:
            message_id = self._name(lane, key)
            self._out += self._writer.start_text(message_id, role=role, name=author_name, subagent=subagent)
        else:
            self._out += self._writer.start_text(message_id, role=role, subagent=subagent)
        lane.text = (key, message_id)
        self._host = message_id

    def _name(self, lane: _Lane, key: _Key) -> str:
        message_id = self._id(key[0])
        if key[0] is not None:
            lane.named[key] = message_id
        return message_id

    def _id(self, given: str | None) -> str:
        """An id for a new message: the provider's, if it has one that means nothing else in this thread."""
        message_id = self._new_id() if given is None or given in self._taken else given
        self._taken.add(message_id)
        return message_id

    def _lane(self, subagent: str | None) -> _Lane:
        lane = self._lanes.get(subagent)
        if lane is None:
            lane = self._lanes[subagent] = _Lane()
        return lane

    def _end_all(self, metadata: Metadata | None = None) -> None:
        for lane in self._lanes.values():
            self._end_lane(lane, metadata)

    def _end_lane(self, lane: _Lane, metadata: Metadata | None = None) -> None:
        """End what is open in a lane: there is text or reasoning, never both."""
        if lane.reasoning is not None:
            message_id, lane.reasoning = lane.reasoning[0], None
            self._out += self._writer.end_reasoning_message(message_id)
            self._out += self._writer.end_reasoning(message_id)
        elif lane.text is not None:
            message_id, lane.text = lane.text[1], None
            self._out += self._writer.end_text(message_id, metadata=metadata)

    # Reasoning

    def _write_reasoning(self, content: ReasoningContent, properties: Properties) -> None:
        if content.text == "" and content.protected_data is None:
            return
        subagent = properties.get(SUBAGENT_RUN_ID)
        lane = self._lane(subagent)
        given = content.additional_properties.get(CONTENT_ID)
        if lane.reasoning is None or (given is not None and given != lane.reasoning[1]):
            self._end_lane(lane)
            lane.reasoning = (self._id(given), given)
            self._out += self._writer.start_reasoning(lane.reasoning[0], subagent=subagent)
            self._out += self._writer.start_reasoning_message(lane.reasoning[0], subagent=subagent)
        message_id = lane.reasoning[0]
        if content.text != "":
            self._out += self._writer.write_reasoning(message_id, content.text, metadata=_metadata(content))
        if content.protected_data is not None:
            value_type = content.additional_properties.get(ENCRYPTED_VALUE_TYPE)
            self._out += self._writer.encrypted_value(
                "message", message_id, content.protected_data, value_type=value_type, subagent=subagent
            )

    # Artefacts

    def _sign(self, properties: Properties, update: ChatUpdate | ChatMessage, host: str | None = None) -> None:
        """Send the artefact among some properties as that of the message which an update is in, or which is told."""
        value = properties.get(ENCRYPTED_VALUE)
        if value is None:
            return
        subagent = update.additional_properties.get(SUBAGENT_RUN_ID)
        lane, key = self._lane(subagent), (update.message_id, update.role)
        if host is None:
            host = lane.text[1] if lane.text is not None and lane.text[0] == key else lane.named.get(key)
        if host is not None:
            self._write_artefact("message", host, value, properties, subagent)
            return
        self._end_lane(lane)
        kind = {name: properties[name] for name in (ENCRYPTED_VALUE_TYPE,) if name in properties}
        self._write_reasoning(ReasoningContent("", value, additional_properties=kind), update.additional_properties)
        self._end_lane(lane)

    def _write_artefact(
        self,
        subtype: ReasoningEncryptedValueSubtype,
        entity_id: str,
        value: str,
        properties: Properties,
        owner: str | None,
    ) -> None:
        sent = self._signed.get((subtype, entity_id))
        if sent is not None:  # what is told again in every piece is told once
            if sent != value:
                message = f"left out a second encrypted value of {entity_id!r}, which keeps one"
                self._warn(Notice(rule="ENC-2", message=message))
            return
        self._signed[subtype, entity_id] = value
        value_type = properties.get(ENCRYPTED_VALUE_TYPE)
        self._out += self._writer.encrypted_value(subtype, entity_id, value, value_type=value_type, subagent=owner)

    # Calls and results

    def _write_call(self, content: FunctionCallContent, update: ChatUpdate | ChatMessage) -> None:
        if self._calls.is_new(content):
            call = self._start_call(content, update)
        else:
            call = cast("SentCall", self._calls.get(content.call_id))
        value = content.additional_properties.get(ENCRYPTED_VALUE)
        if value is not None and not call.is_old:
            owner = update.additional_properties.get(SUBAGENT_RUN_ID)
            self._write_artefact("tool-call", call.call_id, value, content.additional_properties, owner)
        if call.is_ended:
            return  # the thread has it
        if content.is_complete:
            self._write_rest(call, content)
            self._end_call(call)
        elif content.arguments != "":
            call.grow(content.arguments)
            self._out += self._writer.write_tool_args(call.call_id, content.arguments)
        if self._previews:
            self._preview(call)

    def _start_call(self, content: FunctionCallContent, update: ChatUpdate | ChatMessage) -> SentCall:
        if content.name == "":
            raise EncodeError(f"the first piece of call {content.call_id!r} does not name the tool")
        subagent = update.additional_properties.get(SUBAGENT_RUN_ID)
        lane = self._lane(subagent)
        self._end_lane(lane)
        is_taken = self._calls.get(content.call_id) is not None
        call = SentCall(self._new_id() if is_taken else content.call_id, content.name)
        self._calls.add(call, content.call_id)
        parent = self._parent(lane, (update.message_id, update.role))
        self._host = call.call_id if parent is None else parent  # a call without one is in a message of its own id
        self._out += self._writer.start_tool_call(
            content.name,
            call.call_id,
            parent_message_id=parent,
            subagent=subagent,
            metadata=_metadata(content),
        )
        return call

    def _parent(self, lane: _Lane, key: _Key) -> str | None:
        """The message that makes a call, if the provider named it and it is not an id that we made up (#6015)."""
        given = key[0]
        if given is None or key[1] != "assistant":
            return None
        if key not in lane.named and given not in self._taken:
            self._name(lane, key)
        return given if lane.named.get(key) == given else None

    def _end_call(self, call: SentCall) -> None:
        self._out += self._writer.end_tool_call(call.call_id)
        call.is_ended = True

    def _write_rest(self, call: SentCall, content: FunctionCallContent) -> None:
        if not content.arguments.startswith(call.arguments):
            message = f"call {call.call_id!r} ends with other arguments than it was streamed with; these stand"
            self._warn(Notice(rule="TOOL-3", message=message))
            return
        rest = content.arguments[call.length :]
        if rest != "":
            call.grow(rest)
            self._out += self._writer.write_tool_args(call.call_id, rest)

    def _write_result(self, content: FunctionResultContent, update: ChatUpdate | ChatMessage) -> None:
        subagent = update.additional_properties.get(SUBAGENT_RUN_ID)
        lane = self._lane(subagent)
        self._end_lane(lane)
        if not self.keeps_names:
            lane.named.clear()  # whatever these say next stands after the result
        call_id = content.call_id
        if (call := self._calls.get(call_id)) is not None:
            call_id = call.call_id
            if not call.is_ended:
                self._end_call(call)
            call.is_answered = True
        result, metadata = result_content(content, self._warn), _metadata(content)
        if content.error is not None:
            result = content.error if result == "" else result
            metadata = with_own(metadata, error=content.error)
        message_id = self._id(update.message_id)
        self._out += self._writer.tool_result(
            call_id, result, message_id=message_id, subagent=subagent, metadata=metadata
        )
        if update.role == "tool" and self._host is None:
            self._host = message_id  # of several the first
        if content.additional_properties:
            self._sign(content.additional_properties, update, message_id)

    def _write_gated(self, content: FunctionCallContent, update: ChatUpdate | ChatMessage) -> None:
        """Show the call that a question is about, unless it was shown in this run or nobody knows it."""
        call = self._calls.get(content.call_id)
        if content.name != "" and not (call is not None and call.is_answered and not call.is_old):
            self._write_call(content, update)

    def _gating(self, interrupt: Interrupt) -> Interrupt:
        """The interrupt with the id that its call has on the wire."""
        call = None if interrupt.tool_call_id is None else self._calls.get(interrupt.tool_call_id)
        return interrupt if call is None else replace(interrupt, tool_call_id=call.call_id)

    def _preview(self, call: SentCall) -> None:
        """Show arguments in the state while they grow.

        A JSON Patch cannot append to a string, so every preview sends all of it: they come as the text grows by a
        sixteenth, and the whole costs a multiple of the text and not its square.
        """
        previews = [preview for preview in self._previews if preview.tool == call.name]
        if not previews or (not call.is_ended and call.length - call.previewed <= call.previewed // 16):
            return
        call.previewed = call.length
        arguments, state = read_partial(call.arguments), self._writer.state
        if not is_object(arguments):
            return
        if not is_object(state):
            if not self._was_told_of_state:
                self._was_told_of_state = True
                message = f"the arguments of {call.name!r} are not shown: the state is no object"
                self._warn(Notice(rule="left-out", message=message))
            return
        shown = dict(state)
        for preview in previews:
            if preview.argument is None:
                shown[preview.member] = arguments
            elif preview.argument in arguments:
                shown[preview.member] = arguments[preview.argument]
        self._out += self._writer.set_state(shown)


def _metadata(content: Content) -> dict[str, Any] | None:
    metadata = content.additional_properties.get(METADATA)
    return metadata if is_object(metadata) else None
