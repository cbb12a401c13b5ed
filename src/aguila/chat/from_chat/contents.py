"""Write contents as events: text, reasoning, tool calls and results, in a legal order and with unique ids.

* Text of one message continues under one id: the provider's, or a new one if there is none (#3433) or the thread has it
  already. Reasoning and calls end the text. It may continue under its id after them, but not after a result.
* Reasoning is a message with its own id, also if the provider uses one id for both (#2619).
* A call has a parent only if the provider named the message (#2637, #6015). Results do not share an id (#3962).
* A call that the thread already has is not sent again. A call id that was answered before gets a new one.
* An encrypted value belongs to the item that it came with, whenever it comes (ENC-1): a call, or the message of a text,
  a result or the update. If it comes before its message, it is sent with an empty reasoning message.
* The agent and each subagent have their own lane. An item in one lane ends nothing in another (SUB-12).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from aguila.chat.from_chat.messages import make_result_content
from aguila.chat.from_chat.partial_json import read_partial
from aguila.chat.from_chat.sent_calls import SentCall, SentCalls
from aguila.chat.hooks import Preview
from aguila.chat.own_metadata import add_own_metadata
from aguila.chat.property_keys import CONTENT_ID, ENCRYPTED_VALUE, ENCRYPTED_VALUE_TYPE, METADATA, SUBAGENT_RUN_ID
from aguila.chat.types import (
    ChatMessage,
    ChatUpdate,
    Content,
    FunctionCallContent,
    FunctionResultContent,
    Properties,
    ReasoningContent,
    TextContent,
)
from aguila.codec.json.values import is_object
from aguila.codec.notices import Notice, Warn
from aguila.errors import EncodeError
from aguila.protocol import Event, Interrupt, Message, Metadata, ReasoningEncryptedValueSubtype, replace
from aguila.stream import EventWriter

_TEXT_ROLES = frozenset({"developer", "system", "assistant", "user"})

_MessageKey = tuple[str | None, str]  # the provider's message id, and the role


class _Lane:
    """The open item of one owner (the agent or a subagent), and the messages that it may continue."""

    __slots__ = ("named", "reasoning", "text")

    def __init__(self) -> None:
        self.text: tuple[_MessageKey, str] | None = None
        self.reasoning: tuple[str, str | None] | None = None  # our id, and the provider's
        self.named: dict[_MessageKey, str] = {}  # ids of messages that the provider has named


class ContentWriter:
    """Write contents as events of one run. The events are collected in ``_out``."""

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
        self._used_ids: set[str] = set()  # message ids in use
        self._calls = SentCalls()
        self._has_warned_of_state = False
        self.keeps_names = False
        """Whether a message may continue after a result, because the agent itself has chosen its id."""
        self._sent_values: dict[tuple[str, str], str] = {}  # encrypted values, by kind and id of their owner
        self._current_message: str | None = None  # the message of the current update, once there is one
        for message in messages:
            self._used_ids.add(message.id)
            self._calls.add_message(message)

    # Text

    def _write_text(self, content: TextContent, update: ChatUpdate | ChatMessage) -> None:
        if content.text == "":  # providers send empty pieces, which may have an encrypted value
            self._send_encrypted_value(content.additional_properties, update)
            return
        subagent = update.additional_properties.get(SUBAGENT_RUN_ID)
        lane = self._lane(subagent)
        key = (update.message_id, update.role)
        if lane.text is None or lane.text[0] != key:
            self._start_text(lane, key, update.author_name, subagent)
        assert lane.text is not None  # noqa: S101
        self._out += self._writer.write_text(lane.text[1], content.text, metadata=_content_metadata(content))
        if content.additional_properties:
            self._send_encrypted_value(content.additional_properties, update)

    def _start_text(self, lane: _Lane, key: _MessageKey, author_name: str | None, subagent: str | None) -> None:
        if key[1] not in _TEXT_ROLES:
            raise EncodeError(f"a stream of events cannot carry text with role {key[1]!r}")
        self._end_item(lane)
        role: Any = key[1]
        message_id = lane.named.get(key)
        if message_id is None:
            message_id = self._name_message(lane, key)
            self._out += self._writer.start_text(message_id, role=role, name=author_name, subagent=subagent)
        else:
            self._out += self._writer.start_text(message_id, role=role, subagent=subagent)
        lane.text = (key, message_id)
        self._current_message = message_id

    def _name_message(self, lane: _Lane, key: _MessageKey) -> str:
        message_id = self._unused_id(key[0])
        if key[0] is not None:
            lane.named[key] = message_id
        return message_id

    def _unused_id(self, given: str | None) -> str:
        """Return an id for a new message: the provider's, unless this thread uses it already."""
        message_id = self._new_id() if given is None or given in self._used_ids else given
        self._used_ids.add(message_id)
        return message_id

    def _lane(self, subagent: str | None) -> _Lane:
        lane = self._lanes.get(subagent)
        if lane is None:
            lane = self._lanes[subagent] = _Lane()
        return lane

    def _end_all_items(self, metadata: Metadata | None = None) -> None:
        for lane in self._lanes.values():
            self._end_item(lane, metadata)

    def _end_item(self, lane: _Lane, metadata: Metadata | None = None) -> None:
        """End the open item of a lane, which is text or reasoning."""
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
            self._end_item(lane)
            lane.reasoning = (self._unused_id(given), given)
            self._out += self._writer.start_reasoning(lane.reasoning[0], subagent=subagent)
            self._out += self._writer.start_reasoning_message(lane.reasoning[0], subagent=subagent)
        message_id = lane.reasoning[0]
        if content.text != "":
            self._out += self._writer.write_reasoning(message_id, content.text, metadata=_content_metadata(content))
        if content.protected_data is not None:
            value_type = content.additional_properties.get(ENCRYPTED_VALUE_TYPE)
            self._out += self._writer.encrypted_value(
                "message", message_id, content.protected_data, value_type=value_type, subagent=subagent
            )

    # Encrypted values

    def _send_encrypted_value(
        self, properties: Properties, update: ChatUpdate | ChatMessage, message_id: str | None = None
    ) -> None:
        """Send the encrypted value in some properties, as that of ``message_id`` or of the update's message."""
        value = properties.get(ENCRYPTED_VALUE)
        if value is None:
            return
        subagent = update.additional_properties.get(SUBAGENT_RUN_ID)
        lane, key = self._lane(subagent), (update.message_id, update.role)
        if message_id is None:
            message_id = lane.text[1] if lane.text is not None and lane.text[0] == key else lane.named.get(key)
        if message_id is not None:
            self._write_encrypted_value("message", message_id, value, properties, subagent)
            return
        self._end_item(lane)
        kind = {name: properties[name] for name in (ENCRYPTED_VALUE_TYPE,) if name in properties}
        self._write_reasoning(ReasoningContent("", value, additional_properties=kind), update.additional_properties)
        self._end_item(lane)

    def _write_encrypted_value(
        self,
        subtype: ReasoningEncryptedValueSubtype,
        entity_id: str,
        value: str,
        properties: Properties,
        owner: str | None,
    ) -> None:
        sent = self._sent_values.get((subtype, entity_id))
        if sent is not None:  # providers repeat it in every piece
            if sent != value:
                message = f"dropped a second encrypted value of {entity_id!r}, which can have only one"
                self._warn(Notice(rule="ENC-2", message=message))
            return
        self._sent_values[subtype, entity_id] = value
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
            self._write_encrypted_value("tool-call", call.call_id, value, content.additional_properties, owner)
        if call.is_ended:
            return  # the thread already has it
        if content.is_complete:
            self._write_rest(call, content)
            self._end_call(call)
        elif content.arguments != "":
            call.append(content.arguments)
            self._out += self._writer.write_tool_args(call.call_id, content.arguments)
        if self._previews:
            self._send_preview(call)

    def _start_call(self, content: FunctionCallContent, update: ChatUpdate | ChatMessage) -> SentCall:
        if content.name == "":
            raise EncodeError(f"the first piece of call {content.call_id!r} has no tool name")
        subagent = update.additional_properties.get(SUBAGENT_RUN_ID)
        lane = self._lane(subagent)
        self._end_item(lane)
        is_taken = self._calls.get(content.call_id) is not None
        call = SentCall(self._new_id() if is_taken else content.call_id, content.name)
        self._calls.add(call, content.call_id)
        parent = self._find_parent(lane, (update.message_id, update.role))
        self._current_message = (
            call.call_id if parent is None else parent
        )  # without a parent the message has the call's id
        self._out += self._writer.start_tool_call(
            content.name,
            call.call_id,
            parent_message_id=parent,
            subagent=subagent,
            metadata=_content_metadata(content),
        )
        return call

    def _find_parent(self, lane: _Lane, key: _MessageKey) -> str | None:
        """Return the parent message of a call, if the provider named it and the id is not ours (#6015)."""
        given = key[0]
        if given is None or key[1] != "assistant":
            return None
        if key not in lane.named and given not in self._used_ids:
            self._name_message(lane, key)
        return given if lane.named.get(key) == given else None

    def _end_call(self, call: SentCall) -> None:
        self._out += self._writer.end_tool_call(call.call_id)
        call.is_ended = True

    def _write_rest(self, call: SentCall, content: FunctionCallContent) -> None:
        if not content.arguments.startswith(call.arguments):
            message = f"call {call.call_id!r} ends with other arguments than were streamed; keeping the streamed ones"
            self._warn(Notice(rule="TOOL-3", message=message))
            return
        rest = content.arguments[call.length :]
        if rest != "":
            call.append(rest)
            self._out += self._writer.write_tool_args(call.call_id, rest)

    def _write_result(self, content: FunctionResultContent, update: ChatUpdate | ChatMessage) -> None:
        subagent = update.additional_properties.get(SUBAGENT_RUN_ID)
        lane = self._lane(subagent)
        self._end_item(lane)
        if not self.keeps_names:
            lane.named.clear()  # later text comes after the result, so it needs a new message
        call_id = content.call_id
        if (call := self._calls.get(call_id)) is not None:
            call_id = call.call_id
            if not call.is_ended:
                self._end_call(call)
            call.is_answered = True
        result, metadata = make_result_content(content, self._warn), _content_metadata(content)
        if content.error is not None:
            result = content.error if result == "" else result
            metadata = add_own_metadata(metadata, error=content.error)
        message_id = self._unused_id(update.message_id)
        self._out += self._writer.tool_result(
            call_id, result, message_id=message_id, subagent=subagent, metadata=metadata
        )
        if update.role == "tool" and self._current_message is None:
            self._current_message = message_id  # the first of several results
        if content.additional_properties:
            self._send_encrypted_value(content.additional_properties, update, message_id)

    def _write_questioned_call(self, content: FunctionCallContent, update: ChatUpdate | ChatMessage) -> None:
        """Send the call that a question is about, unless it was answered in this run or its name is unknown."""
        call = self._calls.get(content.call_id)
        if content.name != "" and not (call is not None and call.is_answered and not call.is_old):
            self._write_call(content, update)

    def _with_call_id(self, interrupt: Interrupt) -> Interrupt:
        """Return the interrupt with the AG-UI id of its call."""
        call = None if interrupt.tool_call_id is None else self._calls.get(interrupt.tool_call_id)
        return interrupt if call is None else replace(interrupt, tool_call_id=call.call_id)

    def _send_preview(self, call: SentCall) -> None:
        """Show the arguments in the state while they stream.

        A JSON Patch cannot append to a string, so every preview sends the whole value. A preview is sent when the text
        has grown by a sixteenth, which makes the total cost linear in the text.
        """
        previews = [preview for preview in self._previews if preview.tool == call.name]
        if not previews or (not call.is_ended and call.length - call.previewed <= call.previewed // 16):
            return
        call.previewed = call.length
        arguments, state = read_partial(call.arguments), self._writer.state
        if not is_object(arguments):
            return
        if not is_object(state):
            if not self._has_warned_of_state:
                self._has_warned_of_state = True
                message = f"the arguments of {call.name!r} are not previewed, because the state is not an object"
                self._warn(Notice(rule="left-out", message=message))
            return
        shown = dict(state)
        for preview in previews:
            if preview.argument is None:
                shown[preview.member] = arguments
            elif preview.argument in arguments:
                shown[preview.member] = arguments[preview.argument]
        self._out += self._writer.set_state(shown)


def _content_metadata(content: Content) -> dict[str, Any] | None:
    metadata = content.additional_properties.get(METADATA)
    return metadata if is_object(metadata) else None
