"""Build a conversation from the response of ``GET /threads/{id}``."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
from msgspec.structs import replace

from aguila.codec import decode
from aguila.codec.compat import Level
from aguila.codec.json.bounded_floats import decode_json
from aguila.codec.notices import Warn
from aguila.errors import DecodeError
from aguila.protocol import Interrupt, Message
from aguila.stream.conversation import Conversation, ConversationRun, RunOutcome, find_unanswered_calls


class StoredRun(msgspec.Struct, rename="camel"):
    """A run in the response of the route."""

    run_id: str
    parent_run_id: str | None = None
    status: str = ""


class _Thread(msgspec.Struct, rename="camel"):
    """The response of the route. Only the messages are required: other servers have such a route, too."""

    messages: msgspec.Raw
    thread_id: str | None = None
    state: Any = msgspec.field(default_factory=dict[str, Any])
    interrupts: msgspec.Raw = msgspec.Raw(b"[]")
    tip: str | None = None
    runs: list[StoredRun] = []
    pending_tool_call_ids: list[str] | None = None


def hydrate(
    body: bytes,
    thread_id: str,
    seen: list[ConversationRun],
    *,
    compat: Level,
    warn: Warn,
    run_id: str | None = None,
) -> Conversation:
    """Return the conversation in a response. ``seen`` are the runs that this client knows.

    ``run_id`` is the run that ends the branch that was asked for. Raise ``DecodeError`` for a response that is not a
    thread, or another thread or branch.
    """
    answer = _read(body)
    if run_id is not None and answer.tip != run_id:
        raise DecodeError(f"the response is not the branch of run {run_id!r}", rule="LIFE-2", path="/tip")
    if answer.thread_id is not None and answer.thread_id != thread_id:
        raise DecodeError(f"the response is another thread, {answer.thread_id!r}", rule="ENV-10", path="/threadId")
    messages = decode(bytes(answer.messages), list[Message], compat=compat, warn=warn)
    interrupts = decode(bytes(answer.interrupts), list[Interrupt], compat=compat, warn=warn)
    runs = _runs_with(seen, answer, messages)
    return Conversation(messages=messages, state=answer.state, runs=runs, interrupts=interrupts)


def read_runs(body: bytes) -> list[StoredRun]:
    """Return all runs of the thread in a response. Raise ``DecodeError`` for a response that is not a thread."""
    return _read(body).runs


def _read(body: bytes) -> _Thread:
    try:
        return decode_json(body, _Thread)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise DecodeError(f"the response is not a thread: {error}", rule="json") from error


def _runs_with(seen: list[ConversationRun], answer: _Thread, messages: list[Message]) -> list[ConversationRun]:
    """Return the known runs. The last one has the outcome and the pending calls that the server reports."""
    pending = answer.pending_tool_call_ids
    if pending is None:
        pending = [call.id for call in find_unanswered_calls(messages)]
    last = next((run for run in answer.runs if run.run_id == answer.tip), None)
    if last is None:
        return [*seen[:-1], replace(seen[-1], reported_pending=pending)] if seen else []
    outcome = _OUTCOMES.get(last.status)
    if seen and seen[-1].run_id == last.run_id:
        return [*seen[:-1], replace(seen[-1], outcome=outcome, reported_pending=pending)]
    record = ConversationRun(
        run_id=last.run_id, parent_run_id=last.parent_run_id, outcome=outcome, reported_pending=pending
    )
    return [*seen, record]


_OUTCOMES: dict[str, RunOutcome] = {outcome: outcome for outcome in get_args(RunOutcome)}
