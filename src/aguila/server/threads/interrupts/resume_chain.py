"""The chain of runs that a resume continues, and the answers that these runs have used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

import msgspec

from aguila.protocol import ResumeEntry, RunAgentInput
from aguila.server.threads.requests import load_request
from aguila.store import InterruptRecord, RunKey, Store
from aguila.stream.conversation import ConversationRun


class FailedAttempts(msgspec.Struct, frozen=True, kw_only=True):
    """Failed runs that answered the run ``asked_by``. They are the last runs of their thread branch."""

    asked_by: str
    run_ids: list[str]


class PastAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """The answers that the runs of a chain have used."""

    root: int
    """The index of the run that the chain began with."""
    answers: dict[str, ResumeEntry]
    """The answers that were used, by interrupt id."""
    failed_attempts: FailedAttempts | None


def find_continued(runs: Sequence[ConversationRun], end: int) -> int | None:
    """Find the run that a run at index ``end`` resumes; return its index.

    It is the last run before ``end`` that neither failed nor was cancelled. If it did not end with an interrupt, there
    is nothing to resume.
    """
    for at in range(end - 1, -1, -1):
        if runs[at].outcome == "interrupt":
            return at
        if runs[at].outcome == "success":
            return None
    return None


def run_id_of(run: ConversationRun) -> str:
    """Return the id of a run of a stored thread."""
    if run.run_id is None:
        raise LookupError("a run of a stored thread has no id")
    return run.run_id


class ResumeChain:
    """Reads the runs of a thread branch, from the run that is continued back to the first one that asked.

    ``replayed`` are the interrupts of the thread whose answers replay the agent.
    """

    def __init__(
        self, store: Store, scope: str, thread_id: str, runs: Sequence[ConversationRun], replayed: Set[str]
    ) -> None:
        self._store = store
        self._scope = scope
        self._thread_id = thread_id
        self._runs = runs
        self._replayed = replayed
        self._inputs: dict[str, RunAgentInput] = {}

    async def load_input(self, at: int) -> RunAgentInput:
        """Load the input of the run at an index."""
        return await self._load_input(run_id_of(self._runs[at]))

    async def load_root(self, at: int) -> tuple[RunAgentInput, bool]:
        """Load the input of the run at an index, and whether its parent was inferred (``cut_history``)."""
        sent = await self.load_input(at)
        run = await self._store.run(RunKey(self._scope, self._thread_id, run_id_of(self._runs[at])))
        return sent, run.parent_run_id is not None and sent.parent_run_id is None

    async def load_past(self, continued: int, records: Iterable[InterruptRecord]) -> PastAnswers:
        """Load the answers of the chain that ends with the run at index ``continued``."""
        members = await self._members(continued)
        return PastAnswers(
            root=members[-1],
            answers=await self._answers(members, records),
            failed_attempts=await self._failed_attempts(continued),
        )

    async def _load_input(self, run_id: str) -> RunAgentInput:
        if run_id not in self._inputs:
            run = await self._store.run(RunKey(self._scope, self._thread_id, run_id))
            self._inputs[run_id] = await load_request(self._store, run)
        return self._inputs[run_id]

    async def _members(self, at: int) -> list[int]:
        """Return the indexes of the runs that asked, from the one at ``at`` back to the first of the chain."""
        members = [at]
        while (before := find_continued(self._runs, at)) is not None:
            raised = {interrupt.id for interrupt in self._runs[before].interrupts} & self._replayed
            entries = (await self.load_input(at)).resume
            if entries is None or not any(entry.interrupt_id in raised for entry in entries):
                break
            members.append(before)
            at = before
        return members

    async def _failed_attempts(self, continued: int) -> FailedAttempts | None:
        """Return the runs after ``continued`` if there are any, and all of them answered it and failed."""
        raised = {interrupt.id for interrupt in self._runs[continued].interrupts}
        failed: list[str] = []
        for at in range(continued + 1, len(self._runs)):
            entries = (await self.load_input(at)).resume
            is_attempt = entries is not None and not raised.isdisjoint(entry.interrupt_id for entry in entries)
            if self._runs[at].outcome != "error" or not is_attempt:
                return None
            failed.append(run_id_of(self._runs[at]))
        return FailedAttempts(asked_by=run_id_of(self._runs[continued]), run_ids=failed) if failed else None

    async def _answers(self, members: Sequence[int], records: Iterable[InterruptRecord]) -> dict[str, ResumeEntry]:
        """Return the answers to questions of these runs that were used, by interrupt id."""
        asked_by = {self._runs[at].run_id for at in members}
        answers: dict[str, ResumeEntry] = {}
        for record in records:
            if record.status == "settled" and record.claimed_by is not None and record.run_id in asked_by:
                for entry in (await self._load_input(record.claimed_by)).resume or ():
                    if entry.interrupt_id == record.interrupt_id:
                        answers[entry.interrupt_id] = entry
        return answers
