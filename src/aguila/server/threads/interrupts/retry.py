"""Retract the output of failed runs before the run that replaces them sends anything.

A replayed agent repeats, under the same ids, the output that it sent after the answer. Streaming a message that the
client has would append to it (LIFE-19), and a repeated result would be there twice. So the client first receives a
snapshot of the messages as they were when the question was asked, plus the users' messages since. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from aguila.protocol import Message, MessagesSnapshotEvent, ReasoningMessage
from aguila.server.config.errors import Rejected
from aguila.server.threads.cache import Threads
from aguila.server.threads.interrupts.resume_chain import FailedAttempts
from aguila.server.threads.requests import load_request
from aguila.store import RunKey

_FROM_CLIENTS: Final = frozenset({"user", "system", "developer"})

_MessageKey = tuple[str, str]


class Retraction(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages remain without the output of failed attempts.

    ``before`` are the messages when the question was asked. ``changed`` are those of them that the attempts have
    changed. ``sent`` are the messages that the client sent with the first attempt.
    """

    before: dict[_MessageKey, Message]
    changed: frozenset[_MessageKey]
    sent: frozenset[_MessageKey]

    def filter_messages(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages without the output of the attempts."""
        kept: list[Message] = []
        for message in messages:
            key = (message.id, message.role)
            if key in self.changed:
                kept.append(self.before[key])
            elif key in self.before or key in self.sent or message.role in _FROM_CLIENTS:
                kept.append(message)
        return kept

    def snapshot(self, messages: Sequence[Message]) -> MessagesSnapshotEvent | None:
        """Return the snapshot for a client that holds these messages; None if the attempts have sent nothing."""
        kept = self.filter_messages(messages)
        if kept == messages:
            return None
        if not any(message.role == "reasoning" for message in kept):
            # A snapshot without reasoning keeps the client's (MSGS-2), and the replay would append to it.
            kept += [ReasoningMessage(id=one.id, content="") for one in messages if one.role == "reasoning"]
        return MessagesSnapshotEvent(messages=kept)


async def retract_attempts(
    attempts: FailedAttempts, threads: Threads, scope: str, thread_id: str, run_id: str
) -> tuple[Retraction, MessagesSnapshotEvent | None]:
    """Return the messages that the run retracts, and the snapshot for its client.

    Raises ``Rejected`` if another run has begun since the run was planned.
    """
    view = await threads.at(scope, thread_id, run_id)
    path = [run.run_id for run in view.conversation.runs]
    if path[path.index(attempts.asked_by) :] != [attempts.asked_by, *attempts.run_ids, run_id]:
        raise Rejected(409, "interrupt_taken", "another run has answered the interrupt meanwhile", "/resume")
    before = (await threads.at(scope, thread_id, attempts.asked_by)).conversation.messages
    after = (await threads.at(scope, thread_id, attempts.run_ids[-1])).conversation.messages
    store = threads.store
    first = await load_request(store, await store.run(RunKey(scope, thread_id, attempts.run_ids[0])))
    by_key = {(message.id, message.role): message for message in before}
    changed = [one for one in after if one.role not in _FROM_CLIENTS and by_key.get((one.id, one.role), one) != one]
    retraction = Retraction(
        before=by_key,
        changed=frozenset((one.id, one.role) for one in changed),
        sent=frozenset((one.id, one.role) for one in first.messages),
    )
    return retraction, retraction.snapshot(view.conversation.messages)
