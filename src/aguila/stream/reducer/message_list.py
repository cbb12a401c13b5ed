"""The messages of a conversation in order, with lookup by id.

Only ``apply_snapshot`` and ``replace_from`` cost more when there are more messages. The order is a linked list, so that
a tool result can be inserted after its call without moving the rest. A Python list is made when a view is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aguila.protocol import Message
from aguila.stream.reducer.message_builder import MessageBuilder, ToolCallBuilder


class MessageList:
    """Messages in order and by id, and tool calls by id.

    Normally an id belongs to one message. If messages of different roles share one (see ``reducer``), the id means the
    first that is not a tool message, and ``find`` finds the others by role.
    """

    __slots__ = ("_dirty", "_duplicate_calls", "_head", "_is_reordered", "_last_results", "_list", "_same_id", "_tail",
                 "by_id", "calls")  # fmt: skip

    def __init__(self) -> None:
        self.by_id: dict[str, MessageBuilder] = {}
        self.calls: dict[str, ToolCallBuilder] = {}
        self._same_id: dict[tuple[str, str], MessageBuilder] = {}  # by id and role, if not in ``by_id``
        self._duplicate_calls: set[str] = set()  # ids of calls that several messages have
        # The last of the tool messages that directly follow a message, so that a thousand results for one message are
        # not walked a thousand times. It may be an earlier one, never a later one.
        self._last_results: dict[MessageBuilder, MessageBuilder] = {}
        self._head: MessageBuilder | None = None
        self._tail: MessageBuilder | None = None
        self._list: list[Message] = []  # the last view
        self._dirty: list[MessageBuilder] = []
        self._is_reordered = False

    def view(self) -> list[Message]:
        """Return the messages in order: the same list again if nothing has changed, else a new one."""
        if not (self._dirty or self._is_reordered):
            return self._list
        if self._is_reordered:
            self._list = []
            builder = self._head
            while builder is not None:
                builder.index = len(self._list)
                self._list.append(builder.build())
                builder.is_dirty = False
                builder = builder.next
        else:
            self._list = self._list.copy()
            for builder in self._dirty:
                builder.is_dirty = False
                if builder.index is None:  # new messages were marked in the order in which they were appended
                    builder.index = len(self._list)
                    self._list.append(builder.build())
                else:
                    self._list[builder.index] = builder.build()
        self._dirty.clear()
        self._is_reordered = False
        return self._list

    def find(self, message_id: str, role: str) -> MessageBuilder | None:
        """Find the message with that id and role, also if the id alone means another message."""
        found = self.by_id.get(message_id)
        if found is None or found.role == role:
            return found
        return self._same_id.get((message_id, role))

    def mark_changed(self, builder: MessageBuilder) -> None:
        """Rebuild this message for the next view."""
        if not builder.is_dirty:
            builder.is_dirty = True
            self._dirty.append(builder)

    def mark_call_changed(self, call: ToolCallBuilder) -> None:
        """Rebuild this tool call for the next view."""
        if not call.is_dirty:
            call.is_dirty = True
            call.parent.dirty_calls.append(call)
            self.mark_changed(call.parent)

    def put(self, message: Message) -> bool:
        """Append a message, or replace the one with its id and role. Returns whether there was one."""
        found = self.find(message.id, message.role)
        if found is None:
            self.append(MessageBuilder(message))
            return False
        self.replace(found, message)
        return True

    def append(self, builder: MessageBuilder) -> None:
        """Append a message. No message with its id and role may be in the list."""
        self._register(builder)
        if self._tail is None:
            self._head = builder
        else:
            self._tail.next = builder
        self._tail = builder
        if not builder.is_dirty:  # as ``mark_changed`` does
            builder.is_dirty = True
            self._dirty.append(builder)

    def insert_result(self, parent: MessageBuilder, result: MessageBuilder) -> None:
        """Insert a tool message after the message with the call and the results that follow it.

        Model providers refuse a history in which a call is not directly followed by its results.
        """
        before = self._last_results.get(parent, parent)
        while before.next is not None and before.next.role == "tool":
            before = before.next
        self._last_results[parent] = result
        if before is self._tail:
            self.append(result)
            return
        self._register(result)
        result.next = before.next
        before.next = result
        self._is_reordered = True

    def replace(self, builder: MessageBuilder, message: Message) -> None:
        """Replace a message by another one with the same id."""
        is_shared = False
        for call in builder.calls:
            if self.calls.get(call.call.id) is call:
                del self.calls[call.call.id]
                is_shared = is_shared or call.call.id in self._duplicate_calls
        builder.reset(message)
        self._index_calls(builder)
        self._last_results.clear()  # the message may have been a tool result before
        self.mark_changed(builder)
        if is_shared:  # another message has a call with the same id, which the id now means
            other = self._head
            while other is not None:
                self._index_calls(other)
                other = other.next

    def apply_snapshot(
        self, incoming: Mapping[tuple[str, str], Message], is_kept: Callable[[MessageBuilder], bool]
    ) -> None:
        """Replace the messages by the incoming ones, given by id and role. Others stay if ``is_kept`` (MSGS-1, MSGS-2).

        A message is replaced at its position by the incoming one with its id and role. Otherwise an incoming message
        with its id replaces it, unless the list has another message with that id and that role. The rest of the
        incoming messages is appended.
        """
        remaining = dict(incoming)
        roles: dict[str, list[str]] = {}
        for message_id, role in incoming:
            roles.setdefault(message_id, []).append(role)

        result: list[MessageBuilder] = []
        builder = self._head
        while builder is not None:
            message = remaining.pop((builder.id, builder.role), None)
            if message is None:
                for role in roles.get(builder.id, ()):
                    if self.find(builder.id, role) is None and (builder.id, role) in remaining:
                        message = remaining.pop((builder.id, role))
                        break
            if message is not None:
                result.append(MessageBuilder(message))
            elif is_kept(builder):
                result.append(builder)
            builder = builder.next
        result.extend(map(MessageBuilder, remaining.values()))

        # Cleared, not replaced: the reducer has references to these containers.
        containers: tuple[Any, ...] = (self.by_id, self.calls, self._same_id, self._duplicate_calls, self._last_results)
        for container in containers:
            container.clear()
        self._dirty.clear()
        self._head = self._tail = None
        for builder in result:
            builder.next = None
            builder.is_dirty = False
            self.append(builder)
        self._is_reordered = True

    def replace_from(self, index: int, messages: Iterable[Message]) -> None:
        """Keep the first ``index`` messages of the view and append these, which must have other ids.

        Costs as much as there is after that index.
        """
        if index < len(self.view()):
            self._cut(index)
        for message in messages:
            self.append(MessageBuilder(message))

    def _cut(self, index: int) -> None:
        last = None if index == 0 else self.find(self._list[index - 1].id, self._list[index - 1].role)
        builder = self._head if last is None else last.next
        self._tail = last
        if last is None:
            self._head = None
        else:
            last.next = None
        if self._same_id or self._duplicate_calls:  # an id of a removed message may also be that of a kept one
            containers: tuple[Any, ...] = (self.by_id, self.calls, self._same_id, self._duplicate_calls)
            for container in containers:
                container.clear()
            builder = self._head
            while builder is not None:
                self._register(builder)
                builder = builder.next
        while builder is not None:
            del self.by_id[builder.id]
            for call in builder.calls:
                del self.calls[call.call.id]
            builder = builder.next
        self._last_results.clear()
        self._list = self._list[:index]

    def _register(self, builder: MessageBuilder) -> None:
        found = self.by_id.get(builder.id)
        if found is None:
            self.by_id[builder.id] = builder
        elif found.role == "tool":
            self._same_id[builder.id, "tool"] = found
            self.by_id[builder.id] = builder
        else:
            self._same_id[builder.id, builder.role] = builder
        if builder.calls:
            self._index_calls(builder)

    def _index_calls(self, builder: MessageBuilder) -> None:
        for call in builder.calls:
            if self.calls.setdefault(call.call.id, call) is not call:
                self._duplicate_calls.add(call.call.id)
