"""Layer: server. A run that takes the place of failed ones: what those said is taken back before it speaks.

Below: ``projection``. Above: ``beginning``. A replayed agent says again, under the same ids, what it said after the
answer. To stream a held message again would append to it (LIFE-19), and a result that is told twice is there twice; so
the client is first told how the conversation stood when the question was asked, with what was said to the agent since.
Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from aguila.protocol import Message, MessagesSnapshotEvent, ReasoningMessage
from aguila.server.errors import Rejected
from aguila.server.history.projection import Projections
from aguila.server.history.stored_input import load_input
from aguila.server.interrupts.plan import FailedAttempts

_FROM_CLIENTS: Final = frozenset({"user", "system", "developer"})

_Key = tuple[str, str]


class Retraction(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of messages without what failed attempts have said.

    ``held`` are the messages at the time of the question, ``grown`` those of them that the attempts added to,
    ``given`` the messages that came with the first attempt: those that it has not said are the client's.
    """

    held: dict[_Key, Message]
    grown: frozenset[_Key]
    given: frozenset[_Key]

    def filter_messages(self, messages: Sequence[Message]) -> list[Message]:
        """These messages without what the attempts said."""
        rest: list[Message] = []
        for message in messages:
            key = (message.id, message.role)
            if key in self.grown:
                rest.append(self.held[key])
            elif key in self.held or key in self.given or message.role in _FROM_CLIENTS:
                rest.append(message)
        return rest

    def snapshot(self, messages: Sequence[Message]) -> MessagesSnapshotEvent | None:
        """What to tell a client that holds these messages; None if the attempts said nothing."""
        rest = self.filter_messages(messages)
        if rest == messages:
            return None
        if not any(message.role == "reasoning" for message in rest):
            # A snapshot without reasoning leaves it where it is (MSGS-2), to be thought again after itself.
            rest += [ReasoningMessage(id=one.id, content="") for one in messages if one.role == "reasoning"]
        return MessagesSnapshotEvent(messages=rest)


async def retract_attempts(
    attempts: FailedAttempts, projections: Projections, scope: str, thread_id: str, run_id: str
) -> tuple[Retraction, MessagesSnapshotEvent | None]:
    """What a run that has begun takes back, and how it is told.

    Raises ``Rejected`` if the conversation has gone on since it was decided that the run may begin.
    """
    view = await projections.load(scope, thread_id, run_id)
    path = [run.run_id for run in view.conversation.runs]
    if path[path.index(attempts.asked_by) :] != [attempts.asked_by, *attempts.run_ids, run_id]:
        raise Rejected(409, "interrupt_taken", "another run has answered meanwhile", "/resume")
    before = (await projections.load(scope, thread_id, attempts.asked_by)).conversation.messages
    after = (await projections.load(scope, thread_id, attempts.run_ids[-1])).conversation.messages
    store = projections.store
    first = await load_input(store, await store.run(scope, thread_id, attempts.run_ids[0]))
    held = {(message.id, message.role): message for message in before}
    changed = [one for one in after if one.role not in _FROM_CLIENTS and held.get((one.id, one.role), one) != one]
    back = Retraction(
        held=held,
        grown=frozenset((one.id, one.role) for one in changed),
        given=frozenset((one.id, one.role) for one in first.messages),
    )
    return back, back.snapshot(view.conversation.messages)
