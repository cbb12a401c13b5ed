"""Ask the user and record effects: a run ends with a question, and a later run continues with the answer.

The run that brings the answer invokes the agent again from its beginning. A question finds its answer by its id. The id
is derived from the root run, the text and schema of the question, and its key. Without a key, the branch and the number
of times that it asked the question take the place of the key. A changed question has another id: it is asked again and
never takes an old answer. Nothing here sends events.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from aguila import protocol
from aguila.agent.context import RunContext, Services
from aguila.agent.interrupts import RunInterrupt
from aguila.agent.output import Output
from aguila.agent.replay.branches import Branch
from aguila.agent.replay.filter import effect_events
from aguila.chat.expiry import read_expiry
from aguila.chat.interrupts import unwrap_response
from aguila.chat.json_schema import check_schema
from aguila.codec.json.decoder import decode
from aguila.codec.json.encoder import encode
from aguila.codec.json.text import parse_json
from aguila.codec.notices import Notice, log_notice
from aguila.errors import OutcomeUnknown, PatchError, RunNotStored
from aguila.offload import LARGE, is_large, offload
from aguila.protocol import Event, Metadata, ResumeEntry
from aguila.stream.compact import compact
from aguila.stream.json_values import copy_json
from aguila.stream.patch.diff import make_patch
from aguila.stream.writer import Events

if TYPE_CHECKING:
    from aguila.agent.handles import ToolCallHandle

ID_PREFIX = "int_"
"""The prefix of the ids of questions."""

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    C = TypeVarWithDefault("C", default=Any)  # so that a ProposedCall without ``call`` is of a known type
else:
    C = TypeVar("C")


class InterruptCancelled(Exception):
    """The user gave up a question or an approval. ``interrupt_ids`` are the questions without an answer.

    If the agent does not catch it, the run ends as cancelled (LIFE-8). ``answers`` are all answers of the call, in
    order: None for a question that was given up, a false ``Approval`` with its ``call`` for an approval.
    """

    def __init__(self, interrupt_ids: Sequence[str], answers: Sequence[Any] = ()) -> None:
        super().__init__(f"the user gave up {', '.join(interrupt_ids)}")
        self.interrupt_ids = list(interrupt_ids)
        self.answers = list(answers)


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """One question for ``ask_all``. See ``Run.ask`` for its members."""

    question: str
    schema: dict[str, Any] | None = None
    key: str | None = None
    reason: str = "input_required"
    expires_at: str | None = None
    metadata: Metadata | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Approval(Generic[C]):
    """The answer to ``approve``. ``arguments`` are those to call the tool with, as the user left them.

    ``call`` is the tool call that was sent. Send its result, also if it was not approved.
    """

    approved: bool
    arguments: dict[str, Any]
    call: C
    reason: str | None = None

    def __bool__(self) -> bool:
        return self.approved


@dataclass(frozen=True, kw_only=True, slots=True)
class ProposedCall(Generic[C]):
    """One tool call for ``approve_all``. See ``Run.approve`` for its members.

    ``call`` is the tool call if it was sent already; otherwise it is sent before the user is asked.
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
"""The schema of an answer to ``approve``. ``accepted`` is read like ``approved``, if no schema was enforced."""


_BEGUN: Final = "aguila.begun "
_ENDED: Final = "aguila.ended "
_MARK: Final = b"true"
"""The records around an effect: that an attempt began, and that it ended without a result."""

_UNKNOWN: Final = "aguila.unknown "
"""The record of the run in which an agent first learned that the outcome of an effect is unknown."""


def nested_effect_error(key: str) -> RuntimeError:
    """Make the error for an effect that calls ``once`` with its own key."""
    return RuntimeError(f"once({key!r}) is called within its own effect and would wait for itself; use another key")


@dataclass(slots=True, eq=False)
class _KeySpace:
    """Where ``new_key`` counts: within a recorded effect, by its key, or within the agent itself.

    A replay skips recorded effects and repeats others. Each effect has its own counts, so that a repeated one gets the
    keys of the first time.
    """

    owner: Questions
    name: str | None
    counts: dict[str, int] = field(default_factory=dict[str, int])


_effects: ContextVar[tuple[tuple[Questions, str], ...]] = ContextVar("aguila.agent.effects", default=())
"""The effects that the current code runs in, with their keys."""

_key_space: ContextVar[_KeySpace | None] = ContextVar("aguila.agent.key_space", default=None)


@dataclass(slots=True, eq=False)
class Questions:
    """The questions and recorded effects of one run. ``recorded`` are its effects so far."""

    _context: RunContext
    _output: Output
    _services: Services
    _recorded: dict[str, bytes]
    run: Any = None
    """The run, for tools that take it."""
    unanswered: dict[str, protocol.Interrupt] = field(default_factory=dict[str, protocol.Interrupt])
    """The questions that this run asked and that have no answer, by id."""
    _unknown: set[str] = field(default_factory=set[str])
    """The effects of unknown outcome that were passed."""
    _used: dict[str, None] = field(default_factory=dict[str, None])  # an ordered set
    _recording: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    _ask_counts: dict[str, tuple[int, Branch]] = field(default_factory=dict[str, tuple[int, Branch]])
    """How often questions without keys were asked, and where last."""
    _top: _KeySpace | None = None

    def make_interrupt(
        self,
        question: Question,
        *,
        subagent: str | None = None,
        identity: str | None = None,
    ) -> protocol.Interrupt:
        """Make the protocol's interrupt for a question, with its derived id.

        Raises ``EncodeError`` if the schema is not JSON. Raises ``ValueError`` for an invalid schema or expiry, or if
        the question needs a key or its task a name.
        """
        _check_types(question)
        schema = copy_json(question.schema)
        _check_question(question)
        what = [question.question if identity is None else identity, encode(schema).decode()]
        branch = self._output.branches.current_branch()
        derive = self._output.branches.derive
        if question.key is None:
            self._output.branches.require_name(branch)
            same = derive("#", branch.name, *what)
            number = self._count_of(same) + 1
            self._ask_counts[same] = (number, branch)
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
        return self._ask_counts[same][0] if same in self._ask_counts else 0

    def _check_stored(self, what: str) -> None:
        if not self._context.is_stored:
            raise RunNotStored(what)

    async def take_answers(self, asked: Sequence[protocol.Interrupt]) -> list[ResumeEntry]:
        """Return the answers to these questions. Raises ``RunInterrupt`` for those that have none yet.

        Answers that came with this run are settled before they are returned.
        """
        self._check_stored("ask a question")
        ids = [interrupt.id for interrupt in asked]
        if len(set(ids)) != len(ids):
            raise ValueError("two of the questions have the same key and the same text; give each its own key")
        replay = self._context.replay
        answers: Mapping[str, ResumeEntry] = {} if replay is None else replay.answers
        used = [id_ for id_ in ids if replay is not None and id_ in replay.current and id_ not in self._used]
        if used:
            await self._settle(used)
        branches = self._output.branches
        missing = [interrupt for interrupt in asked if interrupt.id not in answers]
        if missing:
            self._output.branches.has_progressed = True
            self.unanswered.update((interrupt.id, interrupt) for interrupt in missing)
            branches.asked(branches.current_branch(), missing[0].id)
            raise RunInterrupt(*missing)
        if used:
            self._output.branches.has_progressed = True
        if ids:
            branches.passed(branches.current_branch(), ids[-1], is_current=bool(used))
        return [answers[id_] for id_ in ids]

    async def _settle(self, used: Sequence[str]) -> None:
        """Settle answers that came with this run, and count them as used.

        A question of one branch cancels its siblings. What one of them settles then is settled in the store, so it must
        be used as well, or the user would be asked again. So the cancelled caller waits until it is settled.
        """
        replay = self._context.replay
        unsettled = [id_ for id_ in used if replay is None or id_ not in replay.settled]
        if unsettled:
            settling = asyncio.ensure_future(self._services.settle(unsettled))
            try:
                await asyncio.shield(settling)
            except asyncio.CancelledError:
                await asyncio.wait((settling,))
                if not settling.cancelled() and settling.exception() is None:
                    self._used.update(dict.fromkeys(used))
                raise
        self._used.update(dict.fromkeys(used))

    @property
    def has_unused_answers(self) -> bool:
        """Whether answers that came with this run were not used: they may be given again."""
        replay = self._context.replay
        return replay is not None and not replay.current.issubset(self._used)

    async def ask(self, questions: Sequence[Question], subagent: str | None) -> list[Any]:
        """Return the payloads of the answers. Raises ``RunInterrupt`` or ``InterruptCancelled``."""
        asked = [self.make_interrupt(question, subagent=subagent) for question in questions]
        entries = await self.take_answers(asked)
        payloads = [
            copy_json(unwrap_response(entry.payload, interrupt.response_schema))
            for entry, interrupt in zip(entries, asked, strict=True)
        ]
        given_up = [entry.interrupt_id for entry in entries if entry.status == "cancelled"]
        if given_up:
            raise InterruptCancelled(given_up, payloads)
        return payloads

    async def _read_effect(self, key: str) -> Any:
        data = self._recorded[key]
        read = partial(parse_json, data, strict=False, warn=log_notice)
        return await offload(read) if len(data) > LARGE else read()

    async def record_effect(self, key: str, value: Any) -> Any:
        """Record the result of an effect. Return it as a replay will. Raises ``EncodeError`` if it is not JSON."""
        own = copy_json(value)
        data = await offload(encode, own) if is_large(own) else encode(own)
        await self._record(key, data)
        return await self._read_effect(key)

    async def begin_effect(self, key: str, *, is_idempotent: bool) -> tuple[bool, Any, str | None]:
        """Return whether the result of an effect is recorded, and that result. If not, record that the effect begins.

        Also return the key under which ``end_effect`` records its end; None if its beginning is not recorded. Raises
        ``OutcomeUnknown`` if it has begun before and has not ended.
        """
        self._check_stored("record an effect with once")
        self._output.branches.current_branch()
        if key in self._recorded:
            return True, await self._read_effect(key), None
        if is_idempotent:
            return False, None, None
        attempt = 1
        while f"{_BEGUN}{attempt} {key}" in self._recorded:
            if f"{_ENDED}{attempt} {key}" not in self._recorded:
                await self._pass_unknown(key)
                raise OutcomeUnknown(key)
            attempt += 1
        await self._record(f"{_BEGUN}{attempt} {key}", _MARK)
        return False, None, f"{_ENDED}{attempt} {key}"

    async def end_effect(self, end: str) -> None:
        """Record that an effect has ended without a result, so that it may be called again."""
        await self._record(end, _MARK)

    async def _record(self, key: str, data: bytes) -> None:
        await self._services.record(key, data)
        self._recorded[key] = data

    async def once(self, key: str, effect: Callable[[], Any], *, is_idempotent: bool = False) -> Any:
        """Return the recorded result of an effect. If there is none, call the effect and record its result.

        The store refuses the record of the beginning if another process has taken over the run. So an effect is not
        called by two processes, and one that was interrupted is not called again.

        Raises ``RuntimeError`` within the effect of the same key, ``OutcomeUnknown`` if its outcome is unknown.
        """
        self._output.branches.current_branch()  # before others that wait for the same effect
        effects = _effects.get()
        if any(owner is self and held == key for owner, held in effects):
            raise nested_effect_error(key)
        async with self._recording[key]:
            is_known, value, end = await self.begin_effect(key, is_idempotent=is_idempotent)
            if is_known:
                return value
            token = _effects.set((*effects, (self, key)))
            try:
                value = await _call_effect(effect)
            except (Exception, RunInterrupt):
                if end is not None:
                    await self.end_effect(end)
                raise
            finally:
                _effects.reset(token)
            return await self.record_effect(key, value)

    async def _pass_unknown(self, key: str) -> None:
        """Let the caller go on after an effect with an unknown outcome.

        What the branch sends from now on is new, also if it is not back at its position, which may be within the
        effect. A later replay mutes it again: to the branch, an unknown outcome is like an answer.
        """
        if key in self._unknown:
            return
        self._unknown.add(key)
        name = f"{_UNKNOWN}{key}"
        is_known = name in self._recorded
        if not is_known:
            await self._record(name, encode(self._context.run_id))
        learned_in = parse_json(self._recorded[name], strict=False, warn=log_notice)
        is_new = not is_known or self._is_retracted(learned_in)
        branches = self._output.branches
        branches.passed(branches.current_branch(), f"unknown {key}", is_current=is_new)

    def _is_retracted(self, run_id: str | None) -> bool:
        """Return whether the output of a run was retracted: it used answers of this one, and failed."""
        replay = self._context.replay
        return replay is not None and run_id in replay.failed

    async def once_using_run(self, key: str, effect: Callable[[], Any], *, is_idempotent: bool = False) -> Any:
        """Call an effect that uses the run once, as ``once`` does.

        A replay that skips the effect applies its changes of the state, because the state of a replay starts as in the
        first run. It also restores the effect's counts of questions and ids, because later ids depend on them. The
        output of the effect is not sent again, unless the run that sent it failed after an answer: its output is
        retracted when the answer is given again, so the events are recorded with the result.
        """
        self._check_stored("record an effect with once")
        output = self._output
        branch = output.branches.current_branch()
        is_new = False

        async def observed() -> Any:
            nonlocal is_new
            is_new = True
            before = output.state.seen()
            token = _key_space.set(_KeySpace(self, key))
            sent: Events = []
            noting = effect_events.set(sent)
            try:
                value = await _call_effect(effect)
            finally:
                effect_events.reset(noting)
                _key_space.reset(token)
                outer = effect_events.get()
                if outer is not None:
                    outer += sent
            after = output.state.seen()
            patch = [] if after is before else make_patch(before, after)
            times = {same: number for same, (number, one) in self._ask_counts.items() if one.is_within(branch)}
            return {
                "value": value,
                "patch": patch,
                "times": times,
                "ids": output.branches.position(),
                "run": self._context.run_id,
                "sent": encode(compact(sent)).decode(),
            }

        done = await self.once(key, observed, is_idempotent=is_idempotent)
        if not is_new:
            for same, number in done["times"].items():
                self._ask_counts[same] = (max(self._count_of(same), number), branch)
            is_retracted = self._is_retracted(done.get("run"))  # older records name no run
            output.branches.go_to(done["ids"], is_new=is_retracted)
            if is_retracted:
                await output.send_again(decode(done["sent"], list[Event], strict=True))
            if done["patch"]:
                await self._change_state(done["patch"])
        return done["value"]

    def new_key(self, kind: str) -> str:
        """Make a key that is unique in the run and that a replay makes again: the enclosing effect and a count."""
        place = _key_space.get()
        if place is None or place.owner is not self:  # of another run, which started this one
            place = self._top = self._top or _KeySpace(self, None)
        branch = self._output.branches.current_branch().name
        if branch != "":
            kind = f"{kind} of {branch}"
        number = place.counts[kind] = place.counts.get(kind, 0) + 1
        return f"{kind} {number}" if place.name is None else f"{kind} {number} in {place.name}"

    async def _change_state(self, patch: list[Any]) -> None:
        try:
            await self._output.patch_state(patch)
        except PatchError as error:  # two concurrent effects recorded the same change
            log_notice(
                Notice(
                    rule="replay",
                    message=f"a recorded change of the state does not apply, it was probably made already: {error}",
                )
            )


def read_approval(entry: ResumeEntry, arguments: dict[str, Any], call: ToolCallHandle) -> Approval[ToolCallHandle]:
    """Read the answer to an approval. Anything but a clear yes is a no."""
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
        # The user wanted other arguments, so the proposed ones were not approved.
        return Approval(approved=False, arguments=arguments, call=call, reason="the edited arguments are not an object")
    return Approval(
        approved=approved and not refused,
        arguments=arguments if edited is None else copy_json(edited),
        call=call,
        reason=reason,
    )


_OBJECT: Any = dict


def _check_types(question: Question) -> None:
    for name in ("schema", "metadata"):
        value = getattr(question, name)
        if value is not None and not isinstance(value, _OBJECT):
            shown = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
            raise ValueError(f"{name} must be a dict, not {shown}")


def _check_question(question: Question) -> None:
    if question.expires_at is not None:
        read_expiry(question.expires_at)
    if question.schema is not None and question.schema is not APPROVAL_SCHEMA:
        try:
            check_schema(question.schema)
        except ValueError as error:
            raise ValueError(f"schema is not a usable JSON Schema: {error}") from None


async def _call_effect(effect: Callable[[], Any]) -> Any:
    """Call an effect, and await its result if it is awaitable."""
    value = effect()
    return await value if inspect.isawaitable(value) else value
