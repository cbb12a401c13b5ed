"""Layer: server. What a run may go on with: are the open interrupts answered, by answers that count?

Below: ``projection`` (which interrupts a path of runs has left), the store (whether each is open, claimed or settled)
and jsonschema-rs. Above: ``runs``, which claims what the plan says in the transaction that begins the run: of two
racing resumes with the same plan the store lets one begin. Nothing here writes.

The run that a resume continues is the last one on its path that did not fail and was not cancelled; it can be answered
if it ended with interrupts (INT-7). All of these that are open have to be covered by the list (INT-8, INT-15), also
by a run without one: a run that stopped or failed before it used an answer leaves it open. Only after a run that was
cancelled is going on without answers allowed, since its next run is an ordinary one (LIFE-10).

What becomes of an entry:

==============================================================  ============================================
open, on the run being continued                                claimed
claimed by a run that is on                                     claimed as well, and listed in ``contested``: who
                                                                begins decides whether that run makes way
settled, while others of its run are open                       ignored: the first answer counts
settled by a run that then failed, and given again              the run is tried again
settled by a run that failed or was stopped, and given up       the run ends as cancelled, without the agent
settled otherwise, or the conversation has gone on              409 ``interrupt_stale``
raised on another branch, or on another thread of this scope    422 ``interrupt_foreign``
past its ``expiresAt``, and not cancelled (INT-9)               422 ``interrupt_expired``
not what its ``responseSchema`` asks for                        422 ``interrupt_answer_invalid``, with a path
a second one for the same interrupt                             422 ``interrupt_duplicate``
never raised, as far as can be told                             ignored with a notice (INT-14)
==============================================================  ============================================

An interrupt that is not covered is 422 ``interrupt_uncovered``. An unknown status was refused when the input was read
(AMB-9). Other scopes are never looked at.

A client whose answer was used by a run that failed still holds the question (INT-8), and cannot know that it is
settled. So it may send what it sent before: the agent is replayed with the answers that were used and with what it has
on record, and nothing that was done is done again. Or it gives up, and its next run is an ordinary one. Another answer
than the one that was used is refused: what came of that one may have been done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Final

import msgspec

from aguila.agent.context import Replay
from aguila.chat.expiry import is_expired
from aguila.chat.json_schema import find_problem
from aguila.codec import decode
from aguila.codec.notices import Notice, list_ids
from aguila.errors import NotFound
from aguila.protocol import Interrupt, ResumeEntry, RunAgentInput, replace
from aguila.server.errors import Rejected
from aguila.server.history.agent_input import build_agent_input
from aguila.server.history.projection import HistoryMode, Projection, Projections
from aguila.server.history.stored_input import load_input
from aguila.server.interrupts.records import is_replayed
from aguila.store import InterruptRecord, Store
from aguila.stream.conversation import ConversationRun
from aguila.stream.json_values import json_equal

MAX_FOREIGN_LOOKUPS = 100
"""How many unknown interrupts of one request are looked for on other threads: each costs a look into the store."""


class FailedAttempts(msgspec.Struct, frozen=True, kw_only=True):
    """The runs that were to continue the run ``asked`` and failed, one after the other: nothing else came since."""

    asked_by: str
    run_ids: list[str]


class ResumePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Describe how a run may begin."""

    claims: list[str]
    """Interrupts that the run claims when it begins."""
    contested: list[str]
    """Those of them that another run holds now."""
    waiting: frozenset[str]
    """Interrupts of the thread that were open when the plan was made."""
    replay: Replay | None
    """The answers for a replay. Without it the agent sees the new input, and the run is its own root."""
    root_run_id: str
    """The first run of the chain of resumes."""
    original_input: RunAgentInput | None
    """What the agent saw in that run; a replay invokes it with this again."""
    notices: list[Notice]
    failed_attempts: FailedAttempts | None = None
    """The failed runs that this run replaces."""
    is_retry: bool = False
    """Whether the failed attempts have used all the answers."""
    is_abandoned: bool = False
    """Whether the run ends as cancelled without a call of the agent."""


async def plan_resume(
    input: RunAgentInput,  # noqa: A002 - the protocol's word for it
    *,
    store: Store,
    scope: str,
    projections: Projections,
    now: float,
    history: HistoryMode = "client",
    allow_system_messages: bool = False,
) -> ResumePlan:
    """Judge a request, with or without answers, by the interrupts of the run that it continues.

    ``now`` is in seconds since the epoch. ``history`` and ``allow_system_messages`` are needed to tell what the agent
    saw when a chain of resumes began. Raises ``Rejected``, and ``StoreUnavailable``.
    """
    entries = [] if input.resume is None else input.resume
    _refuse_duplicates(entries)
    thread_id = input.thread_id
    if not entries and all(record.status != "open" for record in await store.interrupts(scope, thread_id)):
        return plan_without_answers(input)  # as most are: without a look at the log
    try:
        view = await projections.load(scope, thread_id, input.parent_run_id)
    except NotFound:
        view = None
        runs: list[ConversationRun] = []
        pending: list[Interrupt] = []
        last = 0
    else:
        runs, pending, last = view.conversation.runs, view.conversation.interrupts, len(view.conversation.runs)
    # After the view, so that there is a record of every interrupt that the view has.
    records = {record.interrupt_id: record for record in await store.interrupts(scope, thread_id)}
    waiting = frozenset(record.interrupt_id for record in records.values() if record.status == "open")
    continued = _continued(runs, last)
    checker = _AnswerChecker(runs, continued, records, now)
    replayed = {record.interrupt_id for record in records.values() if is_replayed(record)}
    chain = _ResumeChain(store, scope, thread_id, runs, replayed)
    members: list[int] = []
    answers: dict[str, ResumeEntry] = {}
    attempts: FailedAttempts | None = None
    if continued is not None and entries:
        members = await chain.members(continued)
        answers = await chain.answers(members, records.values())
        attempts = await chain.attempts(continued)
    if attempts is not None:
        used = [one for one in checker.settled if one in replayed and records[one].claimed_by in attempts.run_ids]
        checker.used = {one: answers[one] for one in used}
    unknown: dict[str, int] = {}
    for index, entry in enumerate(entries):
        if entry.interrupt_id in records:
            checker.take(index, entry)
        else:
            unknown[entry.interrupt_id] = index
    if unknown:
        await _refuse_foreign(store, scope, thread_id, unknown)
        message = f"answers to interrupts that nobody raised are ignored: {list_ids(list(unknown))}"
        checker.notices.append(Notice(rule="INT-14", message=message, path=f"/resume/{min(unknown.values())}"))
    checker.refuse_uncovered(pending)
    is_retry = checker.is_retry()
    if checker.abandoned and not is_retry:
        message = "the answers were used and are given up: the run ends as cancelled, and the agent is not called"
        checker.notices.append(Notice(rule="INT-8", message=message, path="/resume"))
        return replace(_ordinary(input, checker.notices, waiting), contested=checker.abandoned, is_abandoned=True)
    if continued is None or not (is_retry or not replayed.isdisjoint(checker.claims)):
        return _ordinary(input, checker.notices, waiting, checker.claims, checker.contested)

    answers.update({entry.interrupt_id: entry for entry in entries if entry.interrupt_id in checker.claims})
    root = members[-1]
    before = None if root == 0 else await projections.load(scope, thread_id, runs[root - 1].run_id)
    original = await chain.input_of(_id_of(runs[root]))
    seen = build_agent_input(original, before, history=history, allow_system_messages=allow_system_messages)
    checker.notices += _unseen(input, view)
    return ResumePlan(
        claims=checker.claims,
        contested=checker.repeated if is_retry else checker.contested,
        waiting=waiting,
        replay=Replay(
            answers=answers, current=frozenset([*checker.claims, *checker.used]), settled=frozenset(checker.used)
        ),
        root_run_id=_id_of(runs[root]),
        original_input=seen.input,
        notices=checker.notices,
        failed_attempts=attempts,
        is_retry=is_retry,
    )


def plan_without_answers(input: RunAgentInput) -> ResumePlan:  # noqa: A002
    """The plan of a run that answers nothing, on a thread where nothing waits for an answer."""
    return ResumePlan(
        claims=[], contested=[], waiting=_NONE, replay=None, root_run_id=input.run_id, original_input=None, notices=[]
    )


_NONE: Final[frozenset[str]] = frozenset()


def _unseen(input: RunAgentInput, view: Projection | None) -> list[Notice]:  # noqa: A002
    """What came with an answer and is no part of what a replayed agent goes on with (INT-11)."""
    if view is None:
        return []
    held = view.conversation
    notices: list[Notice] = []
    # Nothing is lost of an empty state, which is what a client sends that keeps none.
    if input.state is not None and not json_equal(input.state, {}) and not json_equal(input.state, held.state):
        message = (
            "the state that came with the answer is not the one that the run left; the agent goes on with its own, "
            "and finds the other in run.resume_input"
        )
        notices.append(Notice(rule="INT-11", message=message, path="/state"))
    known = {message.id for message in held.messages}
    new = [message.id for message in input.messages if message.id not in known]
    if new:
        message = (
            f"messages that came with the answer are not in run.messages, but in run.resume_input: {list_ids(new)}"
        )
        notices.append(Notice(rule="INT-11", message=message, path="/messages"))
    return notices


async def find_open_interrupts(store: Store, scope: str, view: Projection) -> list[Interrupt]:
    """The interrupts that wait for an answer where a view ends. Those of other branches wait elsewhere."""
    if not view.conversation.interrupts:
        return []
    waiting = {one.interrupt_id for one in await store.interrupts(scope, view.thread_id) if one.status == "open"}
    return [interrupt for interrupt in view.conversation.interrupts if interrupt.id in waiting]


def _ordinary(
    input: RunAgentInput,  # noqa: A002
    notices: list[Notice],
    waiting: frozenset[str],
    claims: Sequence[str] = (),
    contested: Sequence[str] = (),
) -> ResumePlan:
    return ResumePlan(
        claims=list(claims),
        contested=list(contested),
        waiting=waiting,
        replay=None,
        root_run_id=input.run_id,
        original_input=None,
        notices=notices,
    )


def _refuse_duplicates(entries: Sequence[ResumeEntry]) -> None:
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        if entry.interrupt_id in seen:
            message = f"two answers to the interrupt {entry.interrupt_id!r}"
            raise Rejected(422, "interrupt_duplicate", message, f"/resume/{index}")
        seen.add(entry.interrupt_id)


async def _refuse_foreign(store: Store, scope: str, thread_id: str, unknown: Mapping[str, int]) -> None:
    for interrupt_id, index in islice(unknown.items(), MAX_FOREIGN_LOOKUPS):
        if await store.interrupt_thread(scope, interrupt_id) not in (None, thread_id):
            message = f"the interrupt {interrupt_id!r} was raised on another thread"
            raise Rejected(422, "interrupt_foreign", message, f"/resume/{index}")


def _continued(runs: Sequence[ConversationRun], end: int) -> int | None:
    """The place of the run that the run at ``end`` would resume: the last one before it that came to an end of its own,
    if that was an interrupt.
    """
    for at in range(end - 1, -1, -1):
        if runs[at].outcome == "interrupt":
            return at
        if runs[at].outcome == "success":
            return None
    return None


def _id_of(run: ConversationRun) -> str:
    if run.run_id is None:
        raise LookupError("a run of a stored thread has an id")
    return run.run_id


class _AnswerChecker:
    """Takes the entries one by one, and then says what is missing."""

    def __init__(
        self, runs: Sequence[ConversationRun], at: int | None, records: Mapping[str, InterruptRecord], now: float
    ) -> None:
        continued = None if at is None else runs[at]
        self.claims: list[str] = []
        self.contested: list[str] = []
        self.notices: list[Notice] = []
        self.used: dict[str, ResumeEntry] = {}
        """Answers that attempts to continue the run have used, before they failed."""
        self.repeated: list[str] = []
        self.abandoned: list[str] = []
        self._path = {run.run_id for run in runs}
        self._records = records
        self._now = now
        # An id that was raised again elsewhere since is not this run's any more.
        raised = [] if continued is None else [interrupt.id for interrupt in continued.interrupts]
        run_id = None if continued is None else continued.run_id
        self._raised = {one: records[one] for one in raised if one in records and records[one].run_id == run_id}
        self.settled = {one for one, record in self._raised.items() if record.status == "settled"}
        self._since = {} if at is None else {run.run_id: run.outcome for run in runs[at + 1 :]}

    def take(self, index: int, entry: ResumeEntry) -> None:
        """Judge an entry for an interrupt of this thread. Raises ``Rejected``."""
        interrupt_id, path = entry.interrupt_id, f"/resume/{index}"
        record = self._records[interrupt_id]
        if interrupt_id not in self._raised:
            if record.status == "settled" or record.run_id in self._path:
                message = f"the conversation has gone on since the interrupt {interrupt_id!r}"
                raise Rejected(409, "interrupt_stale", message, path)
            message = f"the interrupt {interrupt_id!r} was raised on another branch of this thread"
            raise Rejected(422, "interrupt_foreign", message, path)
        if record.status == "settled":
            if len(self.settled) == len(self._raised):
                self._take_again(record, entry, path)
                return
            # The run that used it failed over the others, and a client has to answer all again (INT-8).
            message = f"the interrupt {interrupt_id!r} has been answered; the first answer counts"
            self.notices.append(Notice(rule="INT-14", message=message, path=path))
            return
        self._check(decode(record.body, Interrupt, warn=self.notices.append), entry, path)
        self.claims.append(interrupt_id)
        if record.status == "claimed":
            self.contested.append(interrupt_id)

    def _take_again(self, record: InterruptRecord, entry: ResumeEntry, path: str) -> None:
        """Judge an entry for an interrupt that is settled, as are all of its run."""
        first = self.used.get(entry.interrupt_id)
        is_repeated = first is not None and entry.status == first.status and json_equal(entry.payload, first.payload)
        # Nobody gives up what a run is doing, or has done.
        is_open_ended = record.claimed_by in self._since and set(self._since.values()) <= {"error", "cancelled"}
        is_abandoned = is_open_ended and entry.status == "cancelled"
        if is_repeated:
            self.repeated.append(entry.interrupt_id)
        if is_abandoned:
            self.abandoned.append(entry.interrupt_id)
        if not is_repeated and not is_abandoned:
            message = f"the interrupt {entry.interrupt_id!r} has been answered"
            if first is not None:
                message += ", otherwise; the run failed: give the same answer to try again, or give it up"
            raise Rejected(409, "interrupt_stale", message, path)

    def is_retry(self) -> bool:
        """Whether the answers are those that were used. To give all of them up again is no wish to try again.

        Raises ``Rejected`` if some are and the others were given up.
        """
        abandoned = set(self.abandoned)
        if abandoned.issuperset(self.repeated):
            return False
        if abandoned.issubset(self.repeated):
            return True
        message = "these interrupts have been answered: give the same answers to try again, or give all of them up"
        raise Rejected(409, "interrupt_stale", message, "/resume")

    def refuse_uncovered(self, pending: Sequence[Interrupt]) -> None:
        """Raise ``Rejected`` if an open interrupt has no entry."""
        wanted = {interrupt.id for interrupt in pending}
        if self.claims:
            wanted.update(self._raised)  # whoever answers one of a run's interrupts answers them all
        open_ids = [one for one, record in self._raised.items() if record.status == "open" and one in wanted]
        missing = [one for one in open_ids if one not in self.claims]
        if missing:
            names = ", ".join(map(repr, missing))
            example = f'"resume": [{{"interruptId": "{missing[0]}", "status": "resolved", "payload": ...}}]'
            message = f"these interrupts wait for an answer: {names}; send {example}, or start a run on another thread"
            raise Rejected(422, "interrupt_uncovered", message, "/resume")

    def _check(self, interrupt: Interrupt, entry: ResumeEntry, path: str) -> None:
        if entry.status == "cancelled":
            return
        if is_expired(interrupt.expires_at, datetime.fromtimestamp(self._now, UTC)):
            message = f"the interrupt {interrupt.id!r} expired at {interrupt.expires_at}; it can only be cancelled"
            raise Rejected(422, "interrupt_expired", message, path)
        if interrupt.response_schema is None:
            return
        try:
            problem = find_problem(entry.payload, interrupt.response_schema)
        except ValueError as error:
            message = f"the responseSchema of the interrupt {interrupt.id!r} is broken, any answer is taken: {error}"
            self.notices.append(Notice(rule="INT-4", message=message))
            return
        if problem is not None:
            message = f"the answer to the interrupt {interrupt.id!r} is not what was asked for: {problem.message}"
            raise Rejected(422, "interrupt_answer_invalid", message, f"{path}/payload{problem.path}")


class _ResumeChain:
    """The runs from the one that first asked to the one that is continued now, and the answers they have used."""

    def __init__(
        self, store: Store, scope: str, thread_id: str, runs: Sequence[ConversationRun], replayed: set[str]
    ) -> None:
        self._store = store
        self._scope = scope
        self._thread_id = thread_id
        self._runs = runs
        self._replayed = replayed
        self._inputs: dict[str, RunAgentInput] = {}

    async def input_of(self, run_id: str) -> RunAgentInput:
        """What a run was asked for with."""
        if run_id not in self._inputs:
            run = await self._store.run(self._scope, self._thread_id, run_id)
            self._inputs[run_id] = await load_input(self._store, run)
        return self._inputs[run_id]

    async def members(self, at: int) -> list[int]:
        """The places of the runs that asked, from the one at ``at`` back to the one that the chain began with."""
        found = [at]
        while (before := _continued(self._runs, at)) is not None:
            raised = {interrupt.id for interrupt in self._runs[before].interrupts} & self._replayed
            given = (await self.input_of(_id_of(self._runs[at]))).resume
            if given is None or not any(entry.interrupt_id in raised for entry in given):
                break
            found.append(before)
            at = before
        return found

    async def attempts(self, at: int) -> FailedAttempts | None:
        """The runs that were to continue the one at ``at``, if there is any and all of them failed."""
        raised = {interrupt.id for interrupt in self._runs[at].interrupts}
        failed: list[str] = []
        for run in self._runs[at + 1 :]:
            given = (await self.input_of(_id_of(run))).resume
            if run.outcome != "error" or given is None or raised.isdisjoint(one.interrupt_id for one in given):
                return None
            failed.append(_id_of(run))
        return FailedAttempts(asked_by=_id_of(self._runs[at]), run_ids=failed) if failed else None

    async def answers(self, members: Sequence[int], records: Iterable[InterruptRecord]) -> dict[str, ResumeEntry]:
        """The answers to questions of these runs that were used, from the runs that used them."""
        asked_by = {self._runs[at].run_id for at in members}
        answers: dict[str, ResumeEntry] = {}
        for record in records:
            if record.status == "settled" and record.claimed_by is not None and record.run_id in asked_by:
                given = (await self.input_of(record.claimed_by)).resume
                answers.update(
                    {one.interrupt_id: one for one in given or () if one.interrupt_id == record.interrupt_id}
                )
        return answers
