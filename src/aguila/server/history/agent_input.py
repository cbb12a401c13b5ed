"""Layer: server. Whose history counts: what the agent sees of what a client sent and of what the log holds.

Below: ``projection``. Above: ``runs``, which starts an agent with the result. Messages are told apart by their id,
never by content or count (users send "yes" twice and mean it); those that came without one get theirs from ``unnamed``.
Nothing here writes to the store, and nothing is dropped without a notice.

========================  ===================================  ========================================================
                          ``"client"``                         ``"server"``
========================  ===================================  ========================================================
messages                  what the client sends; the thread    what the log holds, then what the client sends under new
                          follows it, by id (``overlay``)      ids; a held id means the held message, and another
                                                               version of it is reported
state                     the client's; ``{}`` if absent       the client's; what the log holds if it is absent, or if
                          (IN-11), but on a resume what the    it is ``{}`` from a client that knows nothing of the
                          log holds (INT-11)                   thread, which is how stock clients begin
no messages, no resume    the agent runs                       hydration: the agent is not called
``parentRunId``           names the branch in the log          also the messages and state to go on from
activities                as sent                              kept from the agent (IN-7)
========================  ===================================  ========================================================

In both: system and developer messages that came from a client are kept from the agent unless they are allowed; those
the agent itself once sent are its own, in its own words.

Deltas are computed against the state that the agent starts with. Where that is not what the client sent, the client
has to be told first (SNAP-2): ``PreparedInput.prelude`` has the STATE_SNAPSHOT to write right after RUN_STARTED.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from aguila.codec.dialects import dialect_of, may_be_translated
from aguila.codec.notices import Notice, list_ids
from aguila.errors import NotFound
from aguila.protocol import Event, Message, RunAgentInput, State, StateSnapshotEvent, replace
from aguila.server.errors import Rejected
from aguila.server.history.merge import INSTRUCTING_ROLES
from aguila.server.history.message_ids import PLACEHOLDER_PREFIX, assign_ids, has_placeholder_ids
from aguila.server.history.projection import HistoryMode, Projection, Projections
from aguila.server.history.tool_results import NO_CALLS, restore_server_results
from aguila.store import Store
from aguila.stream.json_values import json_equal
from aguila.stream.message_equality import is_same_message


class PreparedInput(msgspec.Struct, frozen=True, kw_only=True):
    """The input of an agent, made from a request and the thread.

    ``input`` is what the agent sees. ``sent`` is what the client sent, with the thread's message ids. ``prelude`` is
    written right after RUN_STARTED. ``ignored_results`` are the ids of the client's tool messages for calls that the
    server answers.
    """

    input: RunAgentInput
    sent: RunAgentInput
    notices: list[Notice]
    is_hydration: bool
    prelude: list[Event]
    ignored_results: Sequence[str] = ()


async def prepare_input(
    input: RunAgentInput,  # noqa: A002 - the protocol's word for it
    *,
    history: HistoryMode,
    projections: Projections,
    scope: str,
    allow_system_messages: bool = False,
) -> PreparedInput:
    """What an agent is to see of a request. The log is read only where it matters.

    Raises ``Rejected`` as ``check_parent`` does, and ``StoreUnavailable``.
    """
    view: Projection | None = None
    lost = await check_parent(input, projections.store, scope) if input.parent_run_id is not None else []
    if history == "client" and _is_ordinary(input, allow_system_messages):
        # As combine would, having looked at every message several times.
        return PreparedInput(input=input, sent=input, notices=lost, is_hydration=False, prelude=[])
    if history == "server" or _needs_the_log(input, allow_system_messages):
        try:
            view = await projections.load(scope, input.thread_id, input.parent_run_id)
        except NotFound:
            view = None  # nobody has written to the thread
    prepared = build_agent_input(input, view, history=history, allow_system_messages=allow_system_messages)
    return replace(prepared, notices=[*lost, *prepared.notices]) if lost else prepared


async def check_parent(input: RunAgentInput, store: Store, scope: str) -> list[Notice]:  # noqa: A002
    """Raise ``Rejected`` if the thread has no such run as the one to go on from: what came of it would be the tip.

    On a thread that nobody has written to this gives a notice: the store may have lost it, and its clients are to get
    on all the same.
    """
    if input.parent_run_id is None:
        return []
    try:
        await store.run(scope, input.thread_id, input.parent_run_id)
    except NotFound:
        message = f"this thread has no run {input.parent_run_id!r} to continue"
    else:
        return []
    try:
        await store.thread(scope, input.thread_id)
    except NotFound:
        return [Notice(rule="LIFE-2", message=f"{message}, and no other; the run starts anew", path="/parentRunId")]
    raise Rejected(422, "unknown_parent", message, "/parentRunId")


def _is_ordinary(input: RunAgentInput, allow_system_messages: bool) -> bool:  # noqa: A002
    """Whether an agent whose client keeps the history sees just what was sent, and nothing has to be said about it."""
    if input.state is None and input.resume:
        return False
    if has_translated(input):
        return False
    seen: set[str] = set()
    for message in input.messages:
        message_id = message.id
        if message_id in seen or message_id.startswith(PLACEHOLDER_PREFIX) or message.role == "tool":
            return False
        if message.role in INSTRUCTING_ROLES and not allow_system_messages:
            return False
        seen.add(message_id)
    return True


def _needs_the_log(input: RunAgentInput, allow_system_messages: bool) -> bool:  # noqa: A002
    if input.state is None and input.resume is not None and input.resume != []:
        return True
    has_results = any(message.role == "tool" for message in input.messages)
    if has_results or has_placeholder_ids(input.messages) or has_translated(input):
        return True
    return not allow_system_messages and has_instructions(input.messages)


def has_translated(input: RunAgentInput) -> bool:  # noqa: A002
    """Return whether an older client may have sent back messages in the form in which a dialect wrote them."""
    return not dialect_of(input.protocol_version).tool_parts and any(map(may_be_translated, input.messages))


def has_instructions(messages: Iterable[Message]) -> bool:
    """Whether some of these messages could instruct the agent."""
    return not INSTRUCTING_ROLES.isdisjoint([message.role for message in messages])


def build_agent_input(
    input: RunAgentInput,  # noqa: A002
    view: Projection | None,
    *,
    history: HistoryMode,
    allow_system_messages: bool,
) -> PreparedInput:
    """The input as the agent sees it when the thread is at ``view``; the same for the same arguments.

    A replay asks again for what the first run of its chain saw.
    """
    notices: list[Notice] = []
    known = [] if view is None else view.conversation.messages
    held = {message.id: message for message in known}
    input = assign_ids(input, known)  # noqa: A001
    kept = restore_server_results(input.messages, NO_CALLS if view is None else view.server_calls)
    if kept.ignored:
        notices.append(_kept_aside(kept.ignored))
    messages = kept.messages
    if history == "server":
        messages = [*known, *_unknown(messages, held, notices)]
        messages = [message for message in messages if message.role != "activity"]
    else:
        messages = _restored(messages, input, held)
        if len({message.id for message in messages}) < len(messages):
            notices.append(_doubled(messages))
    if not allow_system_messages and has_instructions(messages):
        messages = _without_instructions(messages, held, view, notices)
    state = _state(input, view, history)
    is_same = messages is input.messages and state is input.state
    return PreparedInput(
        input=input if is_same else replace(input, messages=list(messages), state=state),
        sent=input,
        notices=notices,
        is_hydration=history == "server" and not input.resume and not input.messages,
        prelude=_state_prelude(state, input.state),
        ignored_results=kept.ignored,
    )


def _restored(
    messages: Sequence[Message],
    input: RunAgentInput,  # noqa: A002
    held: dict[str, Message],
) -> Sequence[Message]:
    """Return the messages of an older client, with the thread's own where it sent back what a dialect made of it."""
    if not has_translated(input):
        return messages
    return [
        held[message.id]
        if message.id in held and may_be_translated(message) and is_same_message(message, held[message.id])
        else message
        for message in messages
    ]


def _state(input: RunAgentInput, view: Projection | None, history: HistoryMode) -> State:  # noqa: A002
    """Return the state that the agent starts with: the client's, or the one that the log holds."""
    if view is None or not (history == "server" or input.resume):
        return input.state
    # Absent and {} are the same to the protocol (IN-11); only a client that knows the thread can mean {}.
    if input.state is None:
        return view.conversation.state
    if history == "server" and json_equal(input.state, {}):
        held = {message.id for message in view.conversation.messages}
        if not any(message.id in held for message in input.messages):
            return view.conversation.state
    return input.state


def _state_prelude(state: State, sent: State) -> list[Event]:
    """Return the STATE_SNAPSHOT for a client that does not hold the state that the agent starts with."""
    if state is None or json_equal(state, {} if sent is None else sent):
        return []
    return [StateSnapshotEvent(snapshot=state)]


def _kept_aside(ids: Sequence[str]) -> Notice:
    text = f"the server has the results of these calls; tool messages of the client are kept aside: {list_ids(ids)}"
    return Notice(rule="tool-results", message=text, path="/messages")


def _unknown(messages: Sequence[Message], held: dict[str, Message], notices: list[Notice]) -> list[Message]:
    """The messages that the log does not hold; of two with one id the first, as the reducer has it."""
    new: dict[str, Message] = {}
    changed: list[str] = []
    doubled: list[str] = []
    for message in messages:
        if message.id in held:
            if not is_same_message(message, held[message.id]):
                changed.append(message.id)
        elif message.id in new:
            doubled.append(message.id)
        else:
            new[message.id] = message
    if changed:
        text = f"the client's version of messages that the server holds does not count: {list_ids(changed)}"
        notices.append(Notice(rule="server-history", message=text, path="/messages"))
    if doubled:
        text = f"several messages of one id; the first one counts: {list_ids(doubled)}"
        notices.append(Notice(rule="ENV-12", message=text, path="/messages"))
    return list(new.values())


def _doubled(messages: Sequence[Message]) -> Notice:
    """Of a history that the client keeps, the agent sees what was sent; the thread has one message of an id."""
    times = Counter(message.id for message in messages)
    ids = list_ids([message_id for message_id, count in times.items() if count > 1])
    return Notice(
        rule="ENV-12", message=f"several messages of one id; the thread keeps the first: {ids}", path="/messages"
    )


def _without_instructions(
    messages: Iterable[Message], held: dict[str, Message], view: Projection | None, notices: list[Notice]
) -> list[Message]:
    """The messages without those that would let a client instruct the agent."""
    from_clients = frozenset[str]() if view is None else view.client_instructions
    left: list[Message] = []
    kept_away: list[str] = []
    for message in messages:
        if message.role not in INSTRUCTING_ROLES:
            left.append(message)
            continue
        own = None if message.id in from_clients else held.get(message.id)
        if own is not None and own.role in INSTRUCTING_ROLES:
            left.append(own)
        else:
            kept_away.append(message.id)
    if kept_away:
        text = f"system and developer messages of the client are kept from the agent: {list_ids(kept_away)}"
        notices.append(Notice(rule="system-messages", message=text, path="/messages"))
    return left
