"""Check the answers of a request against the interrupts of the run that it continues.

==============================================================  =============================================
the answer is for an interrupt that is                          result
==============================================================  =============================================
open, of the run that is continued                              It is claimed.
claimed by a running run                                        It is claimed, and listed in ``contested``.
settled, while others of its run are open                       The answer is ignored: the first one counts.
settled by a run that failed, and the answer is the same        The run is retried.
settled by a run that failed or was cancelled, and cancelled    The run ends as cancelled, without the agent.
settled otherwise, or the conversation has continued            409 ``interrupt_stale``
raised on another branch, or on another thread of the scope     422 ``interrupt_foreign``
past its ``expiresAt``, and not cancelled (INT-9)               422 ``interrupt_expired``
not answered as its ``responseSchema`` requires                 422 ``interrupt_answer_invalid``, with a path
answered twice                                                  422 ``interrupt_duplicate``
unknown                                                         The answer is ignored, with a notice (INT-14).
==============================================================  =============================================

An open interrupt without an answer is 422 ``interrupt_uncovered``. An answer with an unknown status never gets here
(AMB-9). Other scopes are never read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice

from aguila.chat.expiry import is_expired
from aguila.chat.interrupts import unwrap_response
from aguila.chat.json_schema import find_problem
from aguila.codec import decode
from aguila.codec.notices import Notice, list_ids
from aguila.protocol import Interrupt, ResumeEntry
from aguila.server.config.errors import Rejected
from aguila.server.threads.interrupts.records import is_replayed
from aguila.server.threads.interrupts.resume_chain import PastAnswers
from aguila.store import InterruptRecord, Store, ThreadFilter
from aguila.stream.conversation import ConversationRun
from aguila.stream.json_values import json_equal

MAX_FOREIGN_LOOKUPS = 100
"""How many unknown interrupts of one request are looked up on other threads. Each lookup is a read of the store."""


def reject_duplicates(entries: Sequence[ResumeEntry]) -> None:
    """Raise ``Rejected`` if an interrupt is answered twice."""
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        if entry.interrupt_id in seen:
            message = f"interrupt {entry.interrupt_id!r} has two answers; send one"
            raise Rejected(422, "interrupt_duplicate", message, f"/resume/{index}")
        seen.add(entry.interrupt_id)


class AnswerChecker:
    """Checks the answers one by one, then that none is missing.

    ``runs`` are the runs of the branch, and ``continued`` is the index of the one that is continued. ``records`` are
    the interrupts of the thread. ``now`` is in seconds since the epoch.
    """

    def __init__(
        self,
        runs: Sequence[ConversationRun],
        continued: int | None,
        records: Mapping[str, InterruptRecord],
        past: PastAnswers | None,
        now: float,
    ) -> None:
        self.claims: list[str] = []
        """Interrupts that the run claims."""
        self.contested: list[str] = []
        """Those of them that another run has claimed."""
        self.repeated: list[str] = []
        """Settled interrupts that are answered again as they were."""
        self.abandoned: list[str] = []
        """Settled interrupts that are cancelled."""
        self.notices: list[Notice] = []
        self._records = records
        self._now = now
        self._path = {run.run_id for run in runs}
        self._raised: dict[str, InterruptRecord] = {}
        self._outcomes_since: dict[str | None, str | None] = {}
        if continued is not None:
            run = runs[continued]
            for interrupt in run.interrupts:
                record = records.get(interrupt.id)
                if record is not None and record.run_id == run.run_id:  # otherwise another run has raised its id again
                    self._raised[interrupt.id] = record
            self._outcomes_since = {run.run_id: run.outcome for run in runs[continued + 1 :]}
        self._settled = {one for one, record in self._raised.items() if record.status == "settled"}
        self.used: dict[str, ResumeEntry] = {}
        """Answers that failed attempts have used."""
        if past is not None and past.failed_attempts is not None:
            for one in self._settled:
                if is_replayed(records[one]) and records[one].claimed_by in past.failed_attempts.run_ids:
                    self.used[one] = past.answers[one]

    async def check_all(self, entries: Sequence[ResumeEntry], store: Store, scope: str, thread_id: str) -> None:
        """Check each answer. Raises ``Rejected``."""
        unknown: dict[str, int] = {}
        for index, entry in enumerate(entries):
            if entry.interrupt_id in self._records:
                self._check(entry, f"/resume/{index}")
            else:
                unknown[entry.interrupt_id] = index
        if not unknown:
            return
        for interrupt_id, index in islice(unknown.items(), MAX_FOREIGN_LOOKUPS):
            found = await store.threads(scope, ThreadFilter(interrupt_id=interrupt_id, limit=1))
            if found.threads and found.threads[0].thread_id != thread_id:
                message = f"interrupt {interrupt_id!r} was raised on another thread; answer it there"
                raise Rejected(422, "interrupt_foreign", message, f"/resume/{index}")
        message = f"answers to unknown interrupts are ignored: {list_ids(list(unknown))}"
        self._warn("INT-14", message, f"/resume/{min(unknown.values())}")

    def reject_uncovered(self, pending: Sequence[Interrupt]) -> None:
        """Raise ``Rejected`` if an open interrupt has no answer (INT-8, INT-15)."""
        required = {interrupt.id for interrupt in pending}
        if self.claims:
            required.update(self._raised)  # a request that answers one interrupt of a run answers all of them
        open_ids = [one for one, record in self._raised.items() if record.status == "open" and one in required]
        missing = [one for one in open_ids if one not in self.claims]
        if missing:
            names = ", ".join(map(repr, missing))
            example = f'"resume": [{{"interruptId": "{missing[0]}", "status": "resolved", "payload": ...}}]'
            message = f"these interrupts wait for an answer: {names}; send {example}, or start a run on another thread"
            raise Rejected(422, "interrupt_uncovered", message, "/resume")

    def is_retry(self) -> bool:
        """Return whether the answers repeat those that were used.

        If all of them were cancelled before and are cancelled again, it is not. Raises ``Rejected`` if some answers
        are repeated and others cancelled.
        """
        abandoned = set(self.abandoned)
        if abandoned.issuperset(self.repeated):
            return False
        if abandoned.issubset(self.repeated):
            return True
        message = "these interrupts have been answered; send the same answers to retry the run, or cancel all of them"
        raise Rejected(409, "interrupt_stale", message, "/resume")

    def _check(self, entry: ResumeEntry, path: str) -> None:
        """Check an answer to an interrupt of this thread."""
        interrupt_id = entry.interrupt_id
        record = self._records[interrupt_id]
        if interrupt_id not in self._raised:
            if record.status == "settled" or record.run_id in self._path:
                message = (
                    f"the conversation has continued since interrupt {interrupt_id!r}; read the thread again, and "
                    "answer only its open interrupts"
                )
                raise Rejected(409, "interrupt_stale", message, path)
            message = (
                f"interrupt {interrupt_id!r} was raised by run {record.run_id!r} on another branch of this thread; set "
                "parentRunId to that run"
            )
            raise Rejected(422, "interrupt_foreign", message, path)
        if record.status != "settled":
            self._check_payload(decode(record.body, Interrupt, warn=self.notices.append), entry, path)
            self.claims.append(interrupt_id)
            if record.status == "claimed":
                self.contested.append(interrupt_id)
        elif len(self._settled) == len(self._raised):
            self._check_settled(record, entry, path)
        else:
            # The run that used this answer failed over the others, and a client has to answer all again (INT-8).
            self._warn("INT-14", f"interrupt {interrupt_id!r} has been answered; the first answer counts", path)

    def _check_settled(self, record: InterruptRecord, entry: ResumeEntry, path: str) -> None:
        """Check an answer to an interrupt that is settled, as are all of its run.

        A client whose answer was used by a failed run still holds the question (INT-8). It may repeat the answer: the
        agent is replayed, and its recorded effects are not repeated. Or it may cancel. Another answer is refused,
        because the effects of the first one may have happened.
        """
        used = self.used.get(entry.interrupt_id)
        is_repeated = used is not None and entry.status == used.status and json_equal(entry.payload, used.payload)
        # The run that used the answer must not be running, and must not have succeeded.
        has_stopped = set(self._outcomes_since.values()) <= {"error", "cancelled"}
        is_abandoned = entry.status == "cancelled" and record.claimed_by in self._outcomes_since and has_stopped
        if is_repeated:
            self.repeated.append(entry.interrupt_id)
        if is_abandoned:
            self.abandoned.append(entry.interrupt_id)
        if not is_repeated and not is_abandoned:
            message = f"interrupt {entry.interrupt_id!r} has been answered"
            if used is not None:
                message += " differently, and the run failed; send the same answer to retry the run, or cancel it"
            raise Rejected(409, "interrupt_stale", message, path)

    def _check_payload(self, interrupt: Interrupt, entry: ResumeEntry, path: str) -> None:
        if entry.status == "cancelled":
            return
        if is_expired(interrupt.expires_at, datetime.fromtimestamp(self._now, UTC)):
            message = f"interrupt {interrupt.id!r} expired at {interrupt.expires_at}; it can only be cancelled"
            raise Rejected(422, "interrupt_expired", message, path)
        if interrupt.response_schema is None:
            return
        payload = unwrap_response(entry.payload, interrupt.response_schema)
        if payload is not entry.payload:
            self._warn("VER-18", "an answer that is an object with the member response is read as its text", path)
        try:
            problem = find_problem(payload, interrupt.response_schema)
        except ValueError as error:
            self._warn("INT-4", f"interrupt {interrupt.id!r} has an invalid responseSchema, which is ignored: {error}")
            return
        if problem is not None:
            message = f"the answer to interrupt {interrupt.id!r} does not match its responseSchema: {problem.message}"
            raise Rejected(422, "interrupt_answer_invalid", message, f"{path}/payload{problem.path}")

    def _warn(self, rule: str, message: str, path: str = "") -> None:
        self.notices.append(Notice(rule=rule, message=message, path=path))
