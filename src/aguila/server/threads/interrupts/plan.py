"""Plan how a run resumes: which interrupts its request answers, and the input of the replayed agent.

A run resumes the last run of its branch that neither failed nor was cancelled, if that run ended with interrupts
(INT-7). All of them that are open need an answer (INT-8, INT-15), also from a request without ``resume``: a run that
failed before it used an answer leaves the interrupt open. Only after a cancelled run may a request continue without
answers, since it starts an ordinary run (LIFE-10).

Nothing here writes. The run claims its interrupts in the transaction in which it begins, so of two requests with the
same plan only one begins.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aguila.agent.context import Replay
from aguila.codec.notices import Notice, list_ids
from aguila.errors import NotFound
from aguila.protocol import Interrupt, RunAgentInput, replace
from aguila.server.config.options import Settings
from aguila.server.threads.cache import Threads
from aguila.server.threads.client.agent_input import build_agent_input
from aguila.server.threads.client.media_filter import leave_out_media
from aguila.server.threads.interrupts.answer_checks import AnswerChecker, reject_duplicates
from aguila.server.threads.interrupts.records import is_replayed
from aguila.server.threads.interrupts.resume_chain import FailedAttempts, ResumeChain, find_continued, run_id_of
from aguila.server.threads.view import View
from aguila.store import InterruptRecord, Store, Want
from aguila.stream.conversation import ConversationRun
from aguila.stream.json_values import json_equal


class ResumePlan(msgspec.Struct, frozen=True, kw_only=True):
    """How a run may begin."""

    claims: list[str] = []
    """Interrupts that the run claims when it begins."""
    contested: list[str] = []
    """Those of them that another run holds now."""
    waiting: frozenset[str] = frozenset()
    """Interrupts of the thread that were open when the plan was made."""
    replay: Replay | None = None
    """The answers for a replay. Without it the agent sees the new input."""
    root_run_id: str
    """The run whose recorded effects this run has: in a replay the first run of the chain of resumes, otherwise the
    first one that failed with these answers, or this run itself."""
    continued_run_id: str | None = None
    """The run whose questions the run answers."""
    original_input: RunAgentInput | None = None
    """The input that the agent saw in that run; a replay gets the same."""
    notices: list[Notice] = []
    failed_attempts: FailedAttempts | None = None
    """The failed runs that this run replaces."""
    is_retry: bool = False
    """Whether the failed attempts have used all the answers."""
    is_abandoned: bool = False
    """Whether the run ends as cancelled without a call of the agent."""


def plan_without_answers(input: RunAgentInput) -> ResumePlan:  # noqa: A002 - the protocol's word for it
    """Return the plan of a request without answers, on a thread without open interrupts."""
    return ResumePlan(root_run_id=input.run_id)


async def load_interrupts(store: Store, scope: str, thread_id: str) -> Sequence[InterruptRecord]:
    """Return all interrupts of a thread; none if it does not exist."""
    try:
        return (await store.thread(scope, thread_id, Want(interrupts=True))).interrupts
    except NotFound:
        return ()


async def find_open_interrupts(store: Store, scope: str, view: View) -> list[Interrupt]:
    """Return the open interrupts at the end of a view. Those of other branches are left out."""
    if not view.conversation.interrupts:
        return []
    records = await load_interrupts(store, scope, view.thread_id)
    open_ids = {record.interrupt_id for record in records if record.status == "open"}
    return [interrupt for interrupt in view.conversation.interrupts if interrupt.id in open_ids]


async def plan_resume(
    input: RunAgentInput,  # noqa: A002
    settings: Settings,
    *,
    store: Store,
    scope: str,
    threads: Threads,
    now: float,
    inferred_parent: str | None = None,
) -> ResumePlan:
    """Check a request, with or without answers, against the interrupts of the run that it continues.

    ``now`` is in seconds since the epoch. ``inferred_parent`` is as in ``prepare_input``. The settings determine the
    input that the agent saw in the first run of the chain. Raises ``Rejected`` and ``StoreUnavailable``.
    """
    entries = input.resume or []
    reject_duplicates(entries)
    thread_id = input.thread_id
    if not entries and all(record.status != "open" for record in await load_interrupts(store, scope, thread_id)):
        return plan_without_answers(input)  # the common case: it needs no view
    branch = await _load_branch(input, inferred_parent, store, scope, threads)
    runs = branch.runs
    continued = find_continued(runs, len(runs))
    chain = ResumeChain(store, scope, thread_id, runs, branch.replayed)
    past = await chain.load_past(continued, branch.records.values()) if continued is not None and entries else None
    checker = AnswerChecker(runs, continued, branch.records, past, now)
    await checker.check_all(entries, store, scope, thread_id)
    checker.reject_uncovered(branch.pending)
    is_retry = checker.is_retry()
    notices = checker.notices
    if checker.abandoned and not is_retry:
        message = "the answers were used and are cancelled: the run ends as cancelled, and the agent is not called"
        return ResumePlan(
            contested=checker.abandoned,
            waiting=branch.open_ids,
            root_run_id=input.run_id,
            notices=[*notices, Notice(rule="INT-8", message=message, path="/resume")],
            is_abandoned=True,
        )
    failed_attempts = None if past is None else past.failed_attempts
    plan = ResumePlan(
        claims=checker.claims,
        contested=checker.repeated if is_retry else checker.contested,
        waiting=branch.open_ids,
        root_run_id=input.run_id if failed_attempts is None else failed_attempts.run_ids[0],
        continued_run_id=None if continued is None else run_id_of(runs[continued]),
        notices=notices,
        is_retry=is_retry,
    )
    if past is None or not (is_retry or not branch.replayed.isdisjoint(checker.claims)):
        return plan

    answers = past.answers | {entry.interrupt_id: entry for entry in entries if entry.interrupt_id in checker.claims}
    before = None
    if past.root > 0:
        before = await threads.at(scope, thread_id, runs[past.root - 1].run_id, with_known=True)
    root_input, is_cut = await chain.load_root(past.root)
    seen = build_agent_input(root_input, before, settings, is_cut=is_cut)
    used = checker.used
    return replace(
        plan,
        replay=Replay(
            answers=answers,
            current=frozenset([*checker.claims, *used]),
            settled=frozenset(used),
            failed=frozenset(past.failed_attempts.run_ids if past.failed_attempts is not None else ()),
            # Failed attempts sent more than this run repeats before its question.
            sent=() if branch.view is None or past.failed_attempts is not None else branch.view.conversation.messages,
        ),
        root_run_id=run_id_of(runs[past.root]),
        original_input=leave_out_media(seen.input, settings.trust.media)[0],
        notices=[*notices, *_replay_notices(input, branch.view)],
        failed_attempts=past.failed_attempts,
    )


class _Branch(msgspec.Struct, frozen=True, kw_only=True):
    """The thread branch that a request continues."""

    view: View | None
    records: dict[str, InterruptRecord]
    """All interrupts of the thread, by id."""
    replayed: set[str]
    """Those whose answers replay the agent."""

    @property
    def runs(self) -> list[ConversationRun]:
        return [] if self.view is None else self.view.conversation.runs

    @property
    def pending(self) -> list[Interrupt]:
        return [] if self.view is None else self.view.conversation.interrupts

    @property
    def open_ids(self) -> frozenset[str]:
        return frozenset(record.interrupt_id for record in self.records.values() if record.status == "open")


async def _load_branch(
    input: RunAgentInput,  # noqa: A002
    inferred_parent: str | None,
    store: Store,
    scope: str,
    threads: Threads,
) -> _Branch:
    parent = input.parent_run_id if inferred_parent is None else inferred_parent
    view = await threads.before(scope, input.thread_id, input.run_id, parent)
    # Read after the view, so that there is a record of every interrupt in it.
    records = await load_interrupts(store, scope, input.thread_id)
    return _Branch(
        view=view,
        records={record.interrupt_id: record for record in records},
        replayed={record.interrupt_id for record in records if is_replayed(record)},
    )


def _replay_notices(input: RunAgentInput, view: View | None) -> list[Notice]:  # noqa: A002
    """Report messages and state of the answering request that a replayed agent does not get (INT-11)."""
    if view is None:
        return []
    held = view.conversation
    notices: list[Notice] = []
    # A client that keeps no state sends an empty one.
    if input.state is not None and not json_equal(input.state, {}) and not json_equal(input.state, held.state):
        message = (
            "the state that was sent with the answer differs from the state that the run left; the agent continues "
            "with its own, and finds the sent state in run.resume_input"
        )
        notices.append(Notice(rule="INT-11", message=message, path="/state"))
    known = {message.id for message in held.messages}
    new = [message.id for message in input.messages if message.id not in known]
    if new:
        message = (
            f"messages that were sent with the answer are in run.resume_input and not in run.messages: {list_ids(new)}"
        )
        notices.append(Notice(rule="INT-11", message=message, path="/messages"))
    return notices
