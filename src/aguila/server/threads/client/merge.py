"""Merge the messages that a client sent into a thread (``history="client"``), matched by id, never by content or count.

* If the client sends no known message, its messages are appended.
* Otherwise the client's messages replace the thread's from the first one that both have, in the client's order. An
  edited message stands where the client put it. Messages before that one stay, because clients trim old history.
  Known system and developer messages do not count as the first one, because clients pin them.
* Messages that the client omits after that point leave this branch. They stay in the log and in earlier runs.
* Clients never send activities (IN-7), and only some send reasoning. Unsent ones are omitted only if every other
  message of their run is omitted; otherwise they stay after the message that they followed. If their run created
  nothing else, they stay with that message.
* A message that differs only in dropped annotations is not an edit (``is_same_message``). An edited message is taken as
  sent, without the old annotations: a signature belongs to the content that it signed.
* A system or developer message of the agent keeps its content, whatever a client sends under its id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import msgspec

from aguila.protocol import Message
from aguila.stream.message_equality import is_same_message

INSTRUCTING_ROLES: Final = frozenset({"system", "developer"})
"""Roles whose messages instruct the agent."""

UNSENT_ROLES: Final = frozenset({"activity", "reasoning"})
"""Roles whose messages a client may hold without sending them."""


class ThreadMessages(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a thread branch, with lookups.

    ``index_of`` returns the index of the message with an id; if several have it, of the one with the given role.
    ``creator_of`` returns the run that created an activity or a reasoning message, ``created_by`` the ids of a run's
    other messages. ``client_instructions`` are the ids of system and developer messages that clients sent.
    """

    messages: Sequence[Message]
    index_of: Callable[[str, str], int | None]
    creator_of: Callable[[str], str | None]
    created_by: Callable[[str], Iterable[str]]
    client_instructions: Collection[str]


class MergedMessages(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a merge: the first ``kept`` messages of the thread stay, and ``appended`` follow.

    ``amended`` are pairs of a kept message and its replacement. ``edited`` and ``omitted`` are ids.
    ``client_instructions`` are the ids of the system and developer messages that the client sent.
    """

    kept: int
    amended: list[tuple[Message, Message]]
    appended: list[Message]
    edited: list[str]
    omitted: list[str]
    client_instructions: list[str]


def merge_messages(sent: Sequence[Message], thread: ThreadMessages) -> MergedMessages:
    """Merge sent messages into a thread. Of several with the same id and role the first counts (ENV-12)."""
    size = len(thread.messages)
    if size == 0:
        appended = list(_select_first(sent).values())
        new = [message.id for message in appended if message.role in INSTRUCTING_ROLES]
        return MergedMessages(kept=0, amended=[], appended=appended, edited=[], omitted=[], client_instructions=new)
    unchanged = _count_unchanged(sent, thread)
    placed = _place(sent[unchanged:], thread)
    if unchanged and any(index >= 0 for index in placed):
        placed = _place(sent, thread)
    # From this index on the client's messages replace the thread's.
    cut = min((at for at in placed if at >= 0 and thread.messages[at].role not in INSTRUCTING_ROLES), default=size)
    amended: list[tuple[Message, Message]] = []
    edited: list[str] = []
    instructions: list[str] = []
    staying, omitted = _split_unsent(placed, cut, thread)
    rest: list[Message] = []
    for index, message in placed.items():
        if index >= 0:
            old = thread.messages[index]
            message = _choose(message, old, thread)
            if message is not old:
                edited.append(old.id)
                if index < cut:
                    amended.append((old, message))
        if message.role in INSTRUCTING_ROLES and (index < 0 or message is not thread.messages[index]):
            instructions.append(message.id)
        if index < 0 or index >= cut:
            rest.append(message)
            rest += staying.get(index, ())
    same = 0
    while same < len(rest) and cut + same < size and rest[same] is thread.messages[cut + same]:
        same += 1
    return MergedMessages(
        kept=cut + same,
        amended=amended,
        appended=rest[same:],
        edited=edited,
        omitted=omitted,
        client_instructions=instructions,
    )


def _select_first(sent: Sequence[Message]) -> dict[tuple[str, str], Message]:
    """Return the first message with each id and role, in their order."""
    first: dict[tuple[str, str], Message] = {}
    for message in sent:
        first.setdefault((message.id, message.role), message)
    return first


def _count_unchanged(sent: Sequence[Message], thread: ThreadMessages) -> int:
    """Return how many of the first sent messages equal the end of the thread; 0 if any differs.

    A shortcut for clients that send the whole history and then new messages.
    """
    index = None if not sent else thread.index_of(sent[0].id, sent[0].role)
    if index is None:
        return 0
    end = thread.messages[index:]
    return len(end) if end == sent[: len(end)] else 0


def _place(sent: Sequence[Message], thread: ThreadMessages) -> dict[int, Message]:
    """Return the messages in their order, by their index in the thread; new ones by negative numbers."""
    first = _select_first(sent)
    placed: dict[int, Message] = {}
    for (message_id, role), message in first.items():
        index = thread.index_of(message_id, role)
        if index is not None:
            known_role = thread.messages[index].role
            if index in placed or (known_role != role and (message_id, known_role) in first):
                index = None  # the known message belongs to another sent message
        placed[-1 - len(placed) if index is None else index] = message
    return placed


def _choose(sent: Message, known: Message, thread: ThreadMessages) -> Message:
    """Return the known message unless the client edited it. A client cannot edit the agent's own instructions."""
    if {sent.role, known.role} <= INSTRUCTING_ROLES and known.id not in thread.client_instructions:
        return known
    return known if is_same_message(sent, known) else sent


def _split_unsent(
    placed: dict[int, Message], cut: int, thread: ThreadMessages
) -> tuple[dict[int, list[Message]], list[str]]:
    """Return the unsent messages that stay, by the index of the message before them, and the ids of the others."""
    staying: dict[int, list[Message]] = {}
    omitted: list[str] = []
    by_run: dict[str, bool | None] = {}
    before = cut
    is_before_kept = True  # whether the last message that is neither activity nor reasoning stays
    for index in range(cut, len(thread.messages)):
        message = thread.messages[index]
        if index in placed:
            before = index
            is_before_kept = True
        elif message.role not in UNSENT_ROLES:
            is_before_kept = False
            omitted.append(message.id)
        else:
            creator = thread.creator_of(message.id)
            stays: bool | None = False
            if creator is not None:
                if creator not in by_run:
                    by_run[creator] = _keeps_others(thread.created_by(creator), placed, cut, thread)
                stays = by_run[creator]
            if is_before_kept if stays is None else stays:
                staying.setdefault(before, []).append(message)
            else:
                omitted.append(message.id)
    return staying, omitted


def _keeps_others(ids: Iterable[str], placed: dict[int, Message], cut: int, thread: ThreadMessages) -> bool | None:
    """Return whether one of a run's other messages stays; None if there are none."""
    indexes = [index for one in ids if (index := thread.index_of(one, "assistant")) is not None]
    return any(index < cut or index in placed for index in indexes) if indexes else None
