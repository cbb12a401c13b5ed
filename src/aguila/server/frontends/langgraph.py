"""Pages written for LangGraph: they answer in ``forwardedProps.command.resume``, and read CUSTOM ``on_interrupt``.

CopilotKit's ``useLangGraphInterrupt`` and other pages for ag-ui-langgraph work like this. The answer is translated to
the protocol's ``resume`` before anything else looks at the request. The event is sent beside the interrupt only if the
app asks for it. CopilotKit 1.74 reads both forms and shows the protocol's, so it shows a question once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from aguila.chat.json_schema import find_problem
from aguila.codec import decode, encode
from aguila.codec.json.bounded_floats import decode_json
from aguila.codec.json.values import is_array, is_object
from aguila.errors import NotFound
from aguila.protocol import (
    CustomEvent,
    Event,
    Interrupt,
    ResumeEntry,
    RunAgentInput,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    replace,
)
from aguila.server.config.errors import Rejected
from aguila.server.http.front_end import FrontEnd
from aguila.server.http.request import Request
from aguila.server.runs.runs import Runs
from aguila.server.runs.start_request import StartRequest
from aguila.store import InterruptRecord, RunRecord, Store, Want

ON_INTERRUPT = "on_interrupt"

_PATH = "/forwardedProps/command/resume"


class LangGraph(FrontEnd):
    """Reads answers in the form of LangGraph's pages. ``sends_events``: also send ``on_interrupt``."""

    member = "command"

    def __init__(self, *, sends_events: bool) -> None:
        self.closing = on_interrupt_events if sends_events else None

    async def translate(self, start: StartRequest, request: Request, runs: Runs) -> StartRequest | RunRecord:
        return await translate_command(start, runs.store) if has_command_answer(start.input) else start


def on_interrupt_events(event: Event | None) -> list[Event]:
    """Return CUSTOM ``on_interrupt`` for each interrupt of a RUN_FINISHED.

    As in ag-ui-langgraph, an object is sent as JSON text. It is the whole interrupt, which is also what CopilotKit's
    newer ``useInterrupt`` gives to a page as ``event.value``.
    """
    if not isinstance(event, RunFinishedEvent) or not isinstance(event.outcome, RunFinishedInterruptOutcome):
        return []
    return [CustomEvent(name=ON_INTERRUPT, value=encode(one).decode()) for one in event.outcome.interrupts]


def has_command_answer(input: RunAgentInput) -> bool:  # noqa: A002 - the protocol's word for it
    """Return whether a request answers in ``forwardedProps.command.resume``. ``resume`` has precedence.

    Null is not an answer, as in ag-ui-langgraph.
    """
    props: Any = input.forwarded_props
    if not is_object(props) or "command" not in props or input.resume:
        return False
    return _get_command(input).get("resume") is not None


async def translate_command(request: StartRequest, store: Store) -> RunRecord | StartRequest:
    """Translate ``forwardedProps.command.resume`` to ``resume``, or find the run that this very request has started.

    On a thread without interrupts the request stays as it is. Raises ``Rejected`` if several interrupts are open
    and the value does not say which answer is for which.
    """
    scope, thread_id = request.scope, request.input.thread_id
    request = request.with_fingerprint()
    try:
        found = await store.thread(scope, thread_id, Want(runs=True, interrupts=True))
    except NotFound:
        return request
    records = found.interrupts
    if not records:
        return request
    for run in reversed(found.runs):
        if run.fingerprint == request.fingerprint and run.outcome != "error":
            return run
    interrupts = [decode(one.body, Interrupt) for one in _select_interrupts(records, request.input)]
    entries = _build_entries(_get_command(request.input)["resume"], interrupts)
    translated = replace(request.input, resume=entries)
    # The answers of a run are read from its stored request.
    return replace(request, input=translated, body=encode(translated))


def _get_command(input: RunAgentInput) -> dict[str, Any]:  # noqa: A002
    props: Any = input.forwarded_props
    command: Any = props.get("command") if is_object(props) else None
    return command if is_object(command) else {}


def _select_interrupts(records: Sequence[InterruptRecord], input: RunAgentInput) -> list[InterruptRecord]:  # noqa: A002
    """Return the interrupts that a request answers: all of one run.

    ``command.interruptEvent``, which CopilotKit sends along, names one of them. Otherwise they are the latest open
    ones. If none is open, they are the latest that are being answered or were answered: a repeated request is
    recognised by its answers.

    Raises ``Rejected`` if the name is not that of an interrupt of this thread: the user has seen another question.
    """
    named = _read_interrupt_id(_get_command(input).get("interruptEvent"))
    candidates = [one for one in records if one.interrupt_id == named]
    if named is not None and not candidates:
        message = f"this thread has no interrupt {named!r}; answer one that it asks, or answer on the other thread"
        raise Rejected(422, "interrupt_foreign", message, "/forwardedProps/command/interruptEvent")
    for status in ("open", "claimed", "settled"):
        candidates = candidates or [one for one in records if one.status == status]
    of_parent = [one for one in candidates if one.run_id == input.parent_run_id]
    run_id = (of_parent or candidates)[-1].run_id
    of_run = [one for one in records if one.run_id == run_id]
    still_open = [one for one in of_run if one.status == "open"]
    if named is not None and still_open and not any(one.interrupt_id == named for one in still_open):
        return candidates  # it was answered already, and is no answer to the others
    return still_open or of_run


def _read_interrupt_id(value: Any) -> str | None:
    if isinstance(value, str):
        value = _parse_json(value)
    found: Any = value.get("id") if is_object(value) else None
    return found if isinstance(found, str) else None


def _build_entries(value: Any, interrupts: Sequence[Interrupt]) -> list[ResumeEntry]:
    by_id = {interrupt.id: interrupt for interrupt in interrupts}
    keyed = _parse_json(value) if isinstance(value, str) else value
    if is_object(keyed) and keyed and all(name in by_id for name in keyed):
        answers = keyed
    elif len(interrupts) == 1:
        answers = {interrupts[0].id: value}
    else:
        names = ", ".join(map(repr, by_id))
        message = (
            f"{len(by_id)} interrupts wait for an answer; send an object with an answer for each of their ids, or the "
            f"answers in resume: {names}"
        )
        raise Rejected(422, "interrupt_ambiguous", message, _PATH)
    return [
        ResumeEntry(interrupt_id=name, status="resolved", payload=_convert_answer(answer, by_id[name]))
        for name, answer in answers.items()
    ]


def _convert_answer(answer: Any, interrupt: Interrupt) -> Any:
    """Return an answer as the interrupt asks for it. Pages for LangGraph may send JSON as text."""
    if not isinstance(answer, str):
        return answer
    schema = interrupt.response_schema
    parsed = _parse_json(answer)
    if schema is None:
        return parsed if is_object(parsed) or is_array(parsed) else answer
    return answer if _accepts(schema, answer) or not _accepts(schema, parsed) else parsed


def _accepts(schema: Any, value: Any) -> bool:
    try:
        return find_problem(value, schema) is None
    except ValueError:
        return True  # a schema that is not usable accepts any answer


def _parse_json(text: str) -> Any:
    """Decode JSON text; return the text itself if it is not JSON."""
    try:
        return decode_json(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
