"""Layer: stream. The messages of a conversation: their order, and where to find one.

Below: ``growing``. Above: the reducer, which says what events do to messages; this module only keeps them. Knows no
event. Nothing but ``restate`` and ``replace_from`` takes longer when more messages are held: the order is a chain, so
that an answer can be put after its call without moving the rest, and a list of messages is made only when somebody
looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aguila.protocol import Message
from aguila.stream.growing import GrowingCall, GrowingMessage


class HeldMessages:
    """Messages in order, by id, and tool calls by id.

    An id normally means one message. Where messages of different roles share one (see ``reduce``), it means the first
    that is no tool message, and ``find`` finds the others by their role.
    """

    __slots__ = ("_answer_ends", "_dirty", "_doubles", "_head", "_is_reordered", "_list", "_shared_calls", "_tail",
                 "by_id", "calls")  # fmt: skip

    def __init__(self) -> None:
        self.by_id: dict[str, GrowingMessage] = {}
        self.calls: dict[str, GrowingCall] = {}
        self._doubles: dict[tuple[str, str], GrowingMessage] = {}
        self._shared_calls: set[str] = set()  # ids of calls that more than one message makes
        # The last of the tool messages that directly follow a message, so that a thousand answers to one message are
        # not walked past a thousand times. May lag behind, never ahead.
        self._answer_ends: dict[GrowingMessage, GrowingMessage] = {}
        self._head: GrowingMessage | None = None
        self._tail: GrowingMessage | None = None
        self._list: list[Message] = []  # as last viewed
        self._dirty: list[GrowingMessage] = []
        self._is_reordered = False

    def view(self) -> list[Message]:
        """The messages in order. The same list again if nothing has changed, else a new one."""
        if self._is_reordered:
            self._list = []
            growing = self._head
            while growing is not None:
                growing.place = len(self._list)
                self._list.append(growing.value())
                growing.is_dirty = False
                growing = growing.following
        elif self._dirty:
            self._list = self._list.copy()
            for growing in self._dirty:
                growing.is_dirty = False
                if growing.place is None:  # new ones were marked in the order in which they were appended
                    growing.place = len(self._list)
                    self._list.append(growing.value())
                else:
                    self._list[growing.place] = growing.value()
        self._dirty.clear()
        self._is_reordered = False
        return self._list

    def find(self, message_id: str, role: str) -> GrowingMessage | None:
        """The message of that id and role, also where the id alone means another one."""
        held = self.by_id.get(message_id)
        if held is None or held.role == role:
            return held
        return self._doubles.get((message_id, role))

    def touch(self, growing: GrowingMessage) -> None:
        """Note that a message has changed."""
        if not growing.is_dirty:
            growing.is_dirty = True
            self._dirty.append(growing)

    def touch_call(self, call: GrowingCall) -> None:
        """Note that a tool call has changed."""
        if not call.is_dirty:
            call.is_dirty = True
            call.host.dirty_calls.append(call)
            self.touch(call.host)

    def put(self, message: Message) -> bool:
        """Append a message, or replace the held one of its id and role; says whether there was one."""
        held = self.find(message.id, message.role)
        if held is None:
            self.append(GrowingMessage(message))
            return False
        self.convert(held, message)
        return True

    def append(self, growing: GrowingMessage) -> None:
        """Put a message last. Its id and role must not be held together."""
        self._register(growing)
        if self._tail is None:
            self._head = growing
        else:
            self._tail.following = growing
        self._tail = growing
        self.touch(growing)

    def insert_answer(self, host: GrowingMessage, answer: GrowingMessage) -> None:
        """Place a tool message after the message that made the call and the answers already there.

        Model providers refuse a history in which a call is not directly followed by its answers.
        """
        before = self._answer_ends.get(host, host)
        while before.following is not None and before.following.role == "tool":
            before = before.following
        self._answer_ends[host] = answer
        if before is self._tail:
            self.append(answer)
            return
        self._register(answer)
        answer.following = before.following
        before.following = answer
        self._is_reordered = True

    def convert(self, held: GrowingMessage, message: Message) -> None:
        """Let another message of the same id take the place of a held one."""
        shared = False
        for call in held.calls:
            if self.calls.get(call.call.id) is call:
                del self.calls[call.call.id]
                shared = shared or call.call.id in self._shared_calls
        held.become(message)
        self._index_calls(held)
        self._answer_ends.clear()  # the message may have been an answer, and no longer be one
        self.touch(held)
        if shared:  # another message makes a call of the same id, which is now the one meant
            other = self._head
            while other is not None:
                self._index_calls(other)
                other = other.following

    def restate(self, incoming: Mapping[tuple[str, str], Message], is_kept: Callable[[GrowingMessage], bool]) -> None:
        """Hold the incoming messages, given by id and role, and of the others those that are kept (MSGS-1, MSGS-2).

        A held message is replaced in its place, by one of its id and role or else by one of its id that is not held
        in that role itself. What is left of the incoming is appended.
        """
        remaining = dict(incoming)
        roles: dict[str, list[str]] = {}
        for message_id, role in incoming:
            roles.setdefault(message_id, []).append(role)

        result: list[GrowingMessage] = []
        growing = self._head
        while growing is not None:
            message = remaining.pop((growing.id, growing.role), None)
            if message is None:
                for role in roles.get(growing.id, ()):
                    if self.find(growing.id, role) is None and (growing.id, role) in remaining:
                        message = remaining.pop((growing.id, role))
                        break
            if message is not None:
                result.append(GrowingMessage(message))
            elif is_kept(growing):
                result.append(growing)
            growing = growing.following
        result.extend(map(GrowingMessage, remaining.values()))

        # Cleared, not replaced: the reducer holds on to these containers.
        containers: tuple[Any, ...] = (self.by_id, self.calls, self._doubles, self._shared_calls, self._answer_ends)
        for container in containers:
            container.clear()
        self._dirty.clear()
        self._head = self._tail = None
        for growing in result:
            growing.following = None
            growing.is_dirty = False
            self.append(growing)
        self._is_reordered = True

    def replace_from(self, place: int, messages: Iterable[Message]) -> None:
        """Hold the first ``place`` messages of the view, and after them these, which must not be among those.

        Costs as much as there is after that place.
        """
        if place < len(self.view()):
            self._cut(place)
        for message in messages:
            self.append(GrowingMessage(message))

    def _cut(self, place: int) -> None:
        last = None if place == 0 else self.find(self._list[place - 1].id, self._list[place - 1].role)
        growing = self._head if last is None else last.following
        self._tail = last
        if last is None:
            self._head = None
        else:
            last.following = None
        if self._doubles or self._shared_calls:  # an id of what goes may mean what stays: find out anew
            containers: tuple[Any, ...] = (self.by_id, self.calls, self._doubles, self._shared_calls)
            for container in containers:
                container.clear()
            growing = self._head
            while growing is not None:
                self._register(growing)
                growing = growing.following
        while growing is not None:
            del self.by_id[growing.id]
            for call in growing.calls:
                del self.calls[call.call.id]
            growing = growing.following
        self._answer_ends.clear()
        self._list = self._list[:place]

    def _register(self, growing: GrowingMessage) -> None:
        held = self.by_id.get(growing.id)
        if held is None:
            self.by_id[growing.id] = growing
        elif held.role == "tool":
            self._doubles[growing.id, "tool"] = held
            self.by_id[growing.id] = growing
        else:
            self._doubles[growing.id, growing.role] = growing
        self._index_calls(growing)

    def _index_calls(self, growing: GrowingMessage) -> None:
        for call in growing.calls:
            if self.calls.setdefault(call.call.id, call) is not call:
                self._shared_calls.add(call.call.id)
