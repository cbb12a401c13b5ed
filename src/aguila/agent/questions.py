"""Layer: agent. Asking the user: a run ends with a question, and a later run goes on with the answer.

Above: ``writing`` and ``run`` offer ``ask``, ``ask_all``, ``approve`` and ``once``. Below: ``replay`` (what is muted),
``ids``. Nothing here sends events.

The run that answers invokes the agent again from its beginning; a question finds its answer by its id, which is derived
from the run that the chain began with, the question's key or else its branch and how often that branch asked the same
before, its text and its schema. A changed question has another id: it is asked again and never takes an old answer.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from aguila import protocol
from aguila.agent.context import RunContext, Services
from aguila.agent.interrupts import RunInterrupt
from aguila.agent.output import OutputMapper
from aguila.agent.replay.branches import Branch
from aguila.chat.expiry import read_expiry
from aguila.chat.json_schema import check_schema
from aguila.codec.json.encoder import encode
from aguila.codec.json.text import parse_json
from aguila.codec.notices import Notice, log_notice
from aguila.errors import PatchError, RunNotStored
from aguila.offload import LARGE, is_large, offload
from aguila.protocol import Metadata, ResumeEntry
from aguila.stream.json_values import copy_json
from aguila.stream.patch.diff import make_patch

if TYPE_CHECKING:
    from aguila.agent.handles import ToolCallHandle

ID_PREFIX = "int_"
"""How the ids of questions begin."""

C = TypeVar("C")


class InterruptCancelled(Exception):
    """The user gave up answering a question or an approval. ``interrupt_ids`` are the questions without an answer.

    An agent that does not catch it ends its run as cancelled (LIFE-8). ``answers`` are all answers of the call, in
    order: None for a question that was given up, and an ``Approval`` that is false, with its ``call``, for an approval.
    """

    def __init__(self, interrupt_ids: Sequence[str], answers: Sequence[Any] = ()) -> None:
        super().__init__(f"no answer to {', '.join(interrupt_ids)}")
        self.interrupt_ids = list(interrupt_ids)
        self.answers = list(answers)


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """One of several questions asked at once with ``ask_all``; see ``Run.ask`` for what its members mean."""

    question: str
    schema: dict[str, Any] | None = None
    key: str | None = None
    reason: str = "input_required"
    expires_at: str | None = None
    metadata: Metadata | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Approval(Generic[C]):
    """The answer to ``approve``. ``arguments`` are those to call the tool with, as the user left them.

    ``call`` is the tool call that was shown, to be answered with its result, or with word that it was refused.
    """

    approved: bool
    arguments: dict[str, Any]
    call: C
    reason: str | None = None

    def __bool__(self) -> bool:
        return self.approved


@dataclass(frozen=True, kw_only=True, slots=True)
class ProposedCall(Generic[C]):
    """One of several tool calls to be approved at once with ``approve_all``; see ``Run.approve`` for its members.

    ``call`` is the tool call if it was shown already; else it is shown before the user is asked.
    """

    tool_name: str
    args: dict[str, Any]
    message: str | None = None
    key: str | None = None
    expires_at: str | None = None
    metadata: Metadata | None = None
    call: C | None = None


APPROVAL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "editedArgs": {"type": "object"},
        "reason": {"type": "string"},
    },
    "required": ["approved"],
}
"""What an answer to ``approve`` looks like. ``accepted`` is understood for ``approved``, if no schema was enforced."""


def within_itself(key: str) -> str:
    """What is wrong with an effect that is recorded under a key and asks for that key."""
    return f"once({key!r}) is used within its own effect: it would wait for itself"


class _Place:
    """Where keys are counted: an effect that is recorded, by its key, or the agent itself.

    An effect that a replay skips counts nothing then; one that it does again, beside others that it skips, counts as
    it did the first time. So each has a count of its own.
    """

    __slots__ = ("counts", "name", "owner")

    def __init__(self, owner: Questions, name: str | None) -> None:
        self.owner = owner
        self.name = name
        self.counts: dict[str, int] = {}


_effects: ContextVar[tuple[tuple[Questions, str], ...]] = ContextVar("aguila.agent.effects", default=())
"""The effects that this is a part of, with the keys they are recorded under."""

_place: ContextVar[_Place | None] = ContextVar("aguila.agent.place", default=None)


class Questions:
    """The questions and recorded effects of one run."""

    def __init__(self, context: RunContext, output: OutputMapper, services: Services) -> None:
        self._output = output
        self._services = services
        self.is_stored = context.is_stored
        replay = context.replay
        self._answers: Mapping[str, ResumeEntry] = {} if replay is None else replay.answers
        self._current: frozenset[str] = frozenset() if replay is None else replay.current
        self._settled: frozenset[str] = frozenset() if replay is None else replay.settled
        self._used: dict[str, None] = {}  # as a set that takes no room while it is empty
        self._recorded = dict(context.recorded)
        self._recording: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._times: dict[str, tuple[int, Branch]] = {}  # how often questions without keys were asked, and where last
        self._top = _Place(self, None)
        self.run: Any = None
        """The run that these are the questions of, for tools that take it."""
        self.raised: dict[str, protocol.Interrupt] = {}
        """The questions this run asked and has no answer to, by id."""

    def interrupt(
        self,
        question: Question,
        *,
        subagent: str | None = None,
        identity: str | None = None,
    ) -> protocol.Interrupt:
        """A question as the protocol has it, with its derived id.

        Raises ``EncodeError`` if its schema is not JSON. Raises ``ValueError`` for a broken schema, for an expiry that
        is not a time, or if it needs a key or the task a name.
        """
        schema = copy_json(question.schema)
        _check_question(question)
        what = [question.question if identity is None else identity, encode(schema).decode()]
        branch = self._output.branches.here()
        derive = self._output.ids.derive
        if question.key is None:
            self._output.branches.require_name(branch)
            same = derive("#", branch.name, *what)
            number = self._count_of(same) + 1
            self._times[same] = (number, branch)
            id_ = ID_PREFIX + derive(same, str(number))
        else:
            id_ = ID_PREFIX + derive(f"={question.key}", *what)
        return protocol.Interrupt(
            id=id_,
            reason=question.reason,
            message=question.question,
            response_schema=schema,
            expires_at=question.expires_at,
            metadata=copy_json(question.metadata),
            subagent_run_id=subagent,
        )

    def _count_of(self, same: str) -> int:
        return self._times[same][0] if same in self._times else 0

    def _check_stored(self, what: str) -> None:
        if not self.is_stored:
            raise RunNotStored(what)

    async def answers(self, asked: Sequence[protocol.Interrupt]) -> list[ResumeEntry]:
        """The answers to these questions. Raises ``RunInterrupt`` for those that have none yet.

        Answers that came with this run are settled before anything is done with them.
        """
        self._check_stored("ask a question")
        ids = [interrupt.id for interrupt in asked]
        if len(set(ids)) != len(ids):
            raise ValueError("two of the questions asked at once have the same key and the same text")
        used = [id_ for id_ in ids if id_ in self._current and id_ not in self._used]
        if used:
            unsettled = [id_ for id_ in used if id_ not in self._settled]
            if unsettled:
                await self._services.settle(unsettled)
            self._used.update(dict.fromkeys(used))
        replaying, branches = self._output.replaying, self._output.branches
        missing = [interrupt for interrupt in asked if interrupt.id not in self._answers]
        if missing:
            if replaying is not None:
                replaying.has_spoken = True
            self.raised.update((interrupt.id, interrupt) for interrupt in missing)
            branches.asked(branches.here(), missing[0].id)
            raise RunInterrupt(*missing)
        if used and replaying is not None:
            replaying.has_spoken = True
        if ids:
            branches.passed(branches.here(), ids[-1], is_current=bool(used))
        return [self._answers[id_] for id_ in ids]

    @property
    def has_open(self) -> bool:
        """Whether answers that came with this run were not used, so that they may come again."""
        return not self._current.issubset(self._used)

    async def ask(self, questions: Sequence[Question], subagent: str | None) -> list[Any]:
        """The payloads of the answers. Raises ``RunInterrupt``, or ``InterruptCancelled`` if any was given up."""
        asked = [self.interrupt(question, subagent=subagent) for question in questions]
        entries = await self.answers(asked)
        payloads = [copy_json(entry.payload) for entry in entries]
        given_up = [entry.interrupt_id for entry in entries if entry.status == "cancelled"]
        if given_up:
            raise InterruptCancelled(given_up, payloads)
        return payloads

    async def recorded(self, key: str) -> tuple[bool, Any]:
        """Whether the result of a side effect is on record, and that result."""
        data = self._recorded.get(key)
        if data is None:
            return False, None
        read = partial(parse_json, data, strict=False, warn=log_notice)
        return True, await offload(read) if len(data) > LARGE else read()

    async def record(self, key: str, value: Any) -> Any:
        """Keep the result of a side effect, and give it as a replay will. Raises ``EncodeError`` if it is not JSON."""
        own = copy_json(value)
        data = await offload(encode, own) if is_large(own) else encode(own)
        await self._services.record(key, data)
        self._recorded[key] = data
        return (await self.recorded(key))[1]

    async def once(self, key: str, effect: Callable[[], Any]) -> Any:
        """The recorded result, or what the effect gives, recorded before anyone sees it.

        Raises ``RuntimeError`` within the effect of the same key, which would wait for itself.
        """
        self._check_stored("record an effect with once")
        self._output.branches.here()
        effects = _effects.get()
        if any(owner is self and held == key for owner, held in effects):
            raise RuntimeError(within_itself(key))
        async with self._recording[key]:
            known, value = await self.recorded(key)
            if known:
                return value
            token = _effects.set((*effects, (self, key)))
            try:
                value = await _given_by(effect)
            finally:
                _effects.reset(token)
            return await self.record(key, value)

    async def find(self, key: str) -> tuple[bool, Any]:
        """As ``recorded``, for who does the effect elsewhere."""
        self._check_stored("record an effect with once")
        self._output.branches.here()
        return await self.recorded(key)

    async def once_in_run(self, key: str, effect: Callable[[], Any]) -> Any:
        """As ``once``, for an effect that uses the run: a replay that skips it has to stand where it left the branch.

        What it said is not said again. Its changes of the state are made again, as the state of a replay is that of
        the first run; so are its steps in counting questions and ids, on which those of all that follows depend.
        """
        self._check_stored("record an effect with once")
        output = self._output
        branch = output.branches.here()
        is_new = False

        async def observed() -> Any:
            nonlocal is_new
            is_new = True
            before = output.state.seen()
            token = _place.set(_Place(self, key))
            try:
                value = await _given_by(effect)
            finally:
                _place.reset(token)
            after = output.state.seen()
            patch = [] if after is before else make_patch(before, after)
            times = {same: number for same, (number, one) in self._times.items() if one.is_within(branch)}
            return {"value": value, "patch": patch, "times": times, "ids": output.ids.position}

        done = await self.once(key, observed)
        if not is_new:
            for same, number in done["times"].items():
                self._times[same] = (max(self._count_of(same), number), branch)
            output.ids.go_to(done["ids"])
            if done["patch"]:
                await self._change_state(done["patch"])
        return done["value"]

    def new_key(self, kind: str) -> str:
        """A key that nothing else in the run has, and that a replay gives again: where it is asked for, and a count."""
        place = _place.get()
        if place is None or place.owner is not self:  # or in a run that another agent started
            place = self._top
        branch = self._output.branches.here().name
        if branch != "":
            kind = f"{kind} of {branch}"
        number = place.counts[kind] = place.counts.get(kind, 0) + 1
        return f"{kind} {number}" if place.name is None else f"{kind} {number} in {place.name}"

    async def _change_state(self, patch: list[Any]) -> None:
        try:
            await self._output.patch_state(patch)
        except PatchError as error:  # two effects at once changed the same thing, and each has it on record
            log_notice(Notice(rule="replay", message=f"a recorded change of the state is made already: {error}"))


def read_approval(entry: ResumeEntry, arguments: dict[str, Any], call: ToolCallHandle) -> Approval[ToolCallHandle]:
    """What an answer means for the call. Anything but a clear yes is a no."""
    if entry.status == "cancelled":
        return Approval(approved=False, arguments=arguments, call=call, reason="cancelled")
    payload: Any = entry.payload
    if not isinstance(payload, _OBJECT):
        return Approval(approved=payload is True, arguments=arguments, call=call)
    answer = cast("dict[str, Any]", payload)
    approved = any(answer.get(name) is True for name in ("approved", "accepted"))
    refused = any(answer.get(name) is False for name in ("approved", "accepted"))
    reason = answer.get("reason")
    if not isinstance(reason, str):
        reason = None
    edited = answer.get("editedArgs", answer.get("edited_args"))
    if edited is not None and not isinstance(edited, _OBJECT):
        # The user meant other arguments than these, so these were not approved.
        return Approval(approved=False, arguments=arguments, call=call, reason="the edited arguments are no object")
    return Approval(
        approved=approved and not refused,
        arguments=arguments if edited is None else copy_json(edited),
        call=call,
        reason=reason,
    )


_OBJECT: Any = dict


def _check_question(question: Question) -> None:
    if question.expires_at is not None:
        read_expiry(question.expires_at)
    if question.schema is not None and question.schema is not APPROVAL_SCHEMA:
        try:
            check_schema(question.schema)
        except ValueError as error:
            raise ValueError(f"schema is not a usable JSON Schema: {error}") from None


async def _given_by(effect: Callable[[], Any]) -> Any:
    """What an effect gives, be it async or not."""
    value = effect()
    return await value if inspect.isawaitable(value) else value
