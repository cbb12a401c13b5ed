"""Layer: server. What the messages that a client sent make of a thread: laid over its view, by their ids.

Below: the protocol types. Above: ``projection``, where a client keeps the history (``history="client"``): what it sends
is what the agent sees, so it is also what the thread amounts to from there on. Pure: it reads a view and says what is
to follow which part of it. Nothing is told from contents or from counts.

* A client that sends nothing that is known sends what is new: it is appended.
* Otherwise it is taken at its word from the earliest message on that both know: from there the view is what it sent,
  in its order, and a message it has edited stands where it put it. Messages before that one stay, since clients trim
  old history. That a system or developer message is known says nothing of where the rest begins: clients pin those.
* What it left out from there on is no longer in the view, nor in that of later runs on this path. It stays in the log
  and in the view of earlier runs.
* Activities are never sent by clients (IN-7), and reasoning by some: of those an agent made, the ones that were not
  sent are left out only with the rest of their run, and stay after the message that they came after. Where the run
  made nothing else, they stay with that message.
* A message that says the same as the held one is the held one: what a client does not send back of names, metadata,
  attribution and encrypted values is not an edit (old clients keep none of these). With other contents it is
  taken as it is sent, without them: a signature is one of the contents that it came with.
* A system or developer message of the agent's own stays in its own words, whatever a client sends under its id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

import msgspec

from aguila.codec.dialects import is_translation_of
from aguila.protocol import AssistantMessage, Message, ToolMessage, UserMessage, replace

INSTRUCTING_ROLES: Final = frozenset({"system", "developer"})
"""Roles whose messages instruct the agent rather than ask it something."""

UNSENT_ROLES: Final = frozenset({"activity", "reasoning"})
"""Roles whose messages a client may hold without sending them."""

_ANNOTATIONS = ("name", "subagent_run_id", "metadata", "encrypted_value", "encrypted_value_type")


class ThreadMessages(msgspec.Struct, frozen=True, kw_only=True):
    """A view, and where to find what is in it.

    ``index_of`` gives the place in ``messages`` of the one with an id and, if there are several, this role.
    ``creator_of`` gives the run that made an activity or a reasoning message, ``created_by`` the ids of all else that
    a run made. ``instructions`` are the ids of system and developer messages that came from clients.
    """

    messages: Sequence[Message]
    index_of: Callable[[str, str], int | None]
    creator_of: Callable[[str], str | None]
    created_by: Callable[[str], Iterable[str]]
    instructions: Collection[str]


class MergedMessages(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a view: its first ``kept`` messages stay, but for the ``amended`` ones, and ``rest`` follows.

    ``amended`` are pairs of a message and what is to be in its place. ``replaced`` and ``left_out`` are ids;
    ``instructions`` are the ids of the client's system and developer messages.
    """

    kept: int
    amended: list[tuple[Message, Message]]
    rest: list[Message]
    replaced: list[str]
    left_out: list[str]
    instructions: list[str]


def merge_messages(sent: Sequence[Message], held: ThreadMessages) -> MergedMessages:
    """The view after a client has sent these messages; of several with one id and role the first counts (ENV-12)."""
    size = len(held.messages)
    agreed = _agreed(sent, held)
    placed = _placed(sent[agreed:], held)
    if agreed and any(at >= 0 for at in placed):
        placed = _placed(sent, held)
    # From here on the client is taken at its word.
    cut = min((at for at in placed if at >= 0 and held.messages[at].role not in INSTRUCTING_ROLES), default=size)
    amended: list[tuple[Message, Message]] = []
    replaced: list[str] = []
    instructions: list[str] = []
    staying, left_out = _unsent(placed, cut, held)
    rest: list[Message] = []
    for at, message in placed.items():
        if at >= 0:
            old = held.messages[at]
            message = _meant(message, old, held)
            if message is not old:
                replaced.append(old.id)
                if at < cut:
                    amended.append((old, message))
        if message.role in INSTRUCTING_ROLES and (at < 0 or message is not held.messages[at]):
            instructions.append(message.id)
        if at < 0 or at >= cut:
            rest.append(message)
            rest += staying.get(at, ())
    same = 0
    while same < len(rest) and cut + same < size and rest[same] is held.messages[cut + same]:
        same += 1
    return MergedMessages(
        kept=cut + same,
        amended=amended,
        rest=rest[same:],
        replaced=replaced,
        left_out=left_out,
        instructions=instructions,
    )


def is_same_message(sent: Message, held: Message) -> bool:
    """Whether a message is the held one, as far as it goes: what it does not mention counts as the same."""
    return sent == held or (sent.role == held.role and _completed(sent, held) == held)


def _agreed(sent: Sequence[Message], held: ThreadMessages) -> int:
    """How many of the first messages are the end of the view, to a word: as they are if nothing was edited. 0 if not.

    Only to be quick where a client sends all there is, and then something new.
    """
    at = None if not sent else held.index_of(sent[0].id, sent[0].role)
    if at is None:
        return 0
    tail = held.messages[at:]
    return len(tail) if tail == sent[: len(tail)] else 0


def _placed(sent: Sequence[Message], held: ThreadMessages) -> dict[int, Message]:
    """The messages in their order, by their place in the view; those that are not in it by numbers below zero."""
    found: dict[tuple[str, str], Message] = {}
    for message in sent:
        found.setdefault((message.id, message.role), message)
    placed: dict[int, Message] = {}
    for (message_id, role), message in found.items():
        at = held.index_of(message_id, role)
        if at is not None:
            other = held.messages[at].role
            if at in placed or (other != role and (message_id, other) in found):
                at = None  # the held one is another that was sent as well
        placed[-1 - len(placed) if at is None else at] = message
    return placed


def _meant(sent: Message, old: Message, held: ThreadMessages) -> Message:
    """What is to stand for a held message that was sent like this."""
    if old.role in INSTRUCTING_ROLES and sent.role in INSTRUCTING_ROLES and old.id not in held.instructions:
        return old
    return old if is_same_message(sent, old) else sent


def _unsent(placed: dict[int, Message], cut: int, held: ThreadMessages) -> tuple[dict[int, list[Message]], list[str]]:
    """Of the messages that a client did not send: those that stay, by the place of the one before them, and the ids of
    those that do not.
    """
    staying: dict[int, list[Message]] = {}
    left_out: list[str] = []
    by_run: dict[str, bool | None] = {}
    before, follows = cut, True  # the one at the cut was sent, if there is any
    for at in range(cut, len(held.messages)):
        message = held.messages[at]
        if at in placed:
            before = at
            follows = True  # whether the last message that is neither activity nor reasoning stays
        elif message.role not in UNSENT_ROLES:
            follows = False
            left_out.append(message.id)
        else:
            maker = held.creator_of(message.id)
            stays: bool | None = False
            if maker is not None:
                if maker not in by_run:
                    by_run[maker] = _rest_stays(held.created_by(maker), placed, cut, held)
                stays = by_run[maker]
            if follows if stays is None else stays:
                staying.setdefault(before, []).append(message)
            else:
                left_out.append(message.id)
    return staying, left_out


def _rest_stays(ids: Iterable[str], placed: dict[int, Message], cut: int, held: ThreadMessages) -> bool | None:
    """Whether anything of a run's messages stays; None if it has none."""
    places = [at for one in ids if (at := held.index_of(one, "assistant")) is not None]
    return any(at < cut or at in placed for at in places) if places else None


def _completed(sent: Any, held: Any) -> Any:
    """What was sent, with what it does not mention taken from what is held."""
    unsaid: dict[str, Any] = {}
    for name in _ANNOTATIONS:
        value = getattr(held, name, None)
        if value is not None and getattr(sent, name, value) is None:
            unsaid[name] = value
    if isinstance(held, AssistantMessage):
        if {held.content, sent.content} == {None, ""}:
            unsaid["content"] = held.content
        calls, sent_calls = _calls(held), _calls(sent)
        if len(sent_calls) == len(calls):
            completed = [_completed(one, call) for one, call in zip(sent_calls, calls, strict=True)]
            unsaid["tool_calls"] = completed if calls else held.tool_calls
    elif (
        isinstance(held, UserMessage | ToolMessage)
        and not isinstance(held.content, str)
        and sent.content != held.content
        and is_translation_of(sent.content, held.content)
    ):
        unsaid["content"] = held.content  # a dialect wrote it in another form
    return replace(sent, **unsaid) if unsaid else sent


def _calls(message: AssistantMessage) -> list[Any]:
    return [] if message.tool_calls is None else message.tool_calls
