"""Build the input of an agent from a request and the thread (``prepare_input``).

========================  ===================================  ========================================================
                          ``history="client"``                 ``history="server"``
========================  ===================================  ========================================================
messages                  the client's; the thread follows     the thread's, then the client's with new ids; a known id
                          them, by id (``merge``)              keeps its message, and an edited one gives a notice
state                     the client's, or ``{}`` (IN-11);     the client's; the thread's if there is none, or if it is
                          on a resume without one, the         ``{}`` from a client that knows no message of the
                          thread's (INT-11)                    thread, as stock clients start
no messages, no resume    the agent runs                       hydration: the agent is not called
a resume without          the thread's                         the thread's
messages
``parentRunId``           names the branch in the log          also selects the messages and the state to continue
a cut history             is stored as a branch                also selects them (``cut_history``)
messages of another       as sent                              removed (``other_branches``)
branch
activities                removed (IN-7)                       removed (IN-7)
========================  ===================================  ========================================================

With ``unknown_history="drop"``, assistant and tool messages of clients that the log does not have are removed. With
``state_keys``, a client changes only these keys of the thread's state.

In both modes, system and developer messages of clients are removed unless they are allowed. The agent's own ones stay,
with their own content. Whatever is removed gives a notice.

Deltas are computed against the state that the agent starts with. If the client sent another state, it gets a
STATE_SNAPSHOT right after RUN_STARTED (SNAP-2): ``PreparedInput.prelude``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import msgspec

from aguila.chat.allowed_media import AllowedMedia
from aguila.codec.dialects import dialect_of, may_be_translated
from aguila.codec.json.values import is_object
from aguila.codec.notices import Notice, list_ids
from aguila.errors import NotFound
from aguila.offload import is_large, offload
from aguila.protocol import PROTOCOL_VERSION, Event, Message, RunAgentInput, State, StateSnapshotEvent, replace
from aguila.server.config.errors import Rejected
from aguila.server.config.options import HistoryMode, Settings
from aguila.server.threads.cache import Threads
from aguila.server.threads.client.known_messages import KnownMessages, remove_calls, remove_unknown
from aguila.server.threads.client.media_filter import check_new_media, has_parts, leave_out_media
from aguila.server.threads.client.merge import INSTRUCTING_ROLES
from aguila.server.threads.client.message_ids import assign_ids, has_placeholder_ids
from aguila.server.threads.client.other_branches import select_messages
from aguila.server.threads.client.tool_results import NO_CALLS, restore_server_results
from aguila.server.threads.view import View
from aguila.store import RunKey, Store
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
    notices: list[Notice] = []
    is_hydration: bool = False
    prelude: list[Event] = []
    ignored_results: Sequence[str] = ()


async def prepare_input(
    input: RunAgentInput,  # noqa: A002 - the protocol's word for it
    settings: Settings,
    *,
    threads: Threads,
    scope: str,
    inferred_parent: str | None = None,
) -> PreparedInput:
    """Build the input of an agent. The log is read only if the result depends on it.

    ``inferred_parent`` is the parent run of a request that names none (``cut_history``).
    Raises ``Rejected`` as ``check_parent`` and ``check_new_media`` do, and ``StoreUnavailable``.
    """
    notices = await check_parent(input, threads.store, scope) if input.parent_run_id is not None else []
    view: View | None = None
    if _needs_log(input, settings):
        parent = input.parent_run_id if inferred_parent is None else inferred_parent
        view = await threads.before(
            scope, input.thread_id, input.run_id, parent, with_known=settings.trust.unknown_history == "drop"
        )
    prepared = build_agent_input(input, view, settings, is_cut=inferred_parent is not None)
    prepared = replace(prepared, notices=[*notices, *prepared.notices]) if notices else prepared
    return await _admit_media(prepared, input, settings) if has_parts(prepared.input.messages) else prepared


async def _admit_media(prepared: PreparedInput, sent: RunAgentInput, settings: Settings) -> PreparedInput:
    """Refuse new references to media that are not admitted, and leave out older ones."""
    seen = prepared.input
    arguments = (seen, sent.messages, settings.trust.media)
    seen, notices = await offload(_filter_media, *arguments) if is_large(seen.messages) else _filter_media(*arguments)
    return replace(prepared, input=seen, notices=[*prepared.notices, *notices]) if notices else prepared


def _filter_media(
    seen: RunAgentInput, sent: Sequence[Message], allowed: AllowedMedia
) -> tuple[RunAgentInput, list[Notice]]:
    check_new_media(seen.messages, sent, allowed)
    return leave_out_media(seen, allowed)


async def check_parent(input: RunAgentInput, store: Store, scope: str) -> list[Notice]:  # noqa: A002
    """Raise ``Rejected`` if the thread does not have the parent run: its result would become the latest.

    If the thread does not exist, return a notice instead: the store may have lost it, and clients should still work.
    """
    if input.parent_run_id in (None, input.run_id):  # a run that names itself continues no run
        return []
    try:
        await store.run(RunKey(scope, input.thread_id, input.parent_run_id))
    except NotFound:
        message = f"parentRunId {input.parent_run_id!r} is not a run of this thread"
    else:
        return []
    try:
        await store.thread(scope, input.thread_id)
    except NotFound:
        return [
            Notice(
                rule="LIFE-2", message=f"{message}, which is new; the run starts without a parent", path="/parentRunId"
            )
        ]
    raise Rejected(422, "unknown_parent", message, "/parentRunId")


def _needs_log(input: RunAgentInput, settings: Settings) -> bool:  # noqa: A002
    trust = settings.trust
    if settings.history == "server" or trust.unknown_history == "drop" or trust.state_keys is not None:
        return True
    if input.resume and (input.state is None or not input.messages):
        return True
    has_results = any(message.role == "tool" for message in input.messages)
    if has_results or has_placeholder_ids(input.messages) or may_have_translated(input):
        return True
    return not trust.system_messages and has_instructions(input.messages)


def may_have_translated(input: RunAgentInput) -> bool:  # noqa: A002
    """Return whether an older client may have sent back messages that a dialect translated."""
    if input.protocol_version == PROTOCOL_VERSION:
        return False
    return not dialect_of(input.protocol_version).tool_parts and any(map(may_be_translated, input.messages))


def has_instructions(messages: Iterable[Message]) -> bool:
    """Return whether some of these messages could instruct the agent."""
    return not INSTRUCTING_ROLES.isdisjoint([message.role for message in messages])


def build_agent_input(
    input: RunAgentInput,  # noqa: A002
    view: View | None,
    settings: Settings,
    *,
    is_cut: bool = False,
) -> PreparedInput:
    """Build the input of an agent on the thread branch ``view``.

    With ``is_cut``, the branch was found by the messages (``cut_history``), so all of them belong to it.
    The result depends on the arguments alone: a replay builds the input of the first run of its chain again.
    """
    notices: list[Notice] = []
    history, drops_unknown = settings.history, settings.trust.unknown_history == "drop"
    known = [] if view is None else view.conversation.messages
    by_id = {message.id: message for message in known}
    is_hydration = history == "server" and not input.resume and not input.messages
    input = assign_ids(input, known)  # noqa: A001
    if history == "server" and view is not None and not is_cut:
        selected, left_out = select_messages(input.messages, view, input.run_id)
        if left_out:
            text = f"messages of another branch of the thread are left out: {list_ids(left_out)}"
            notices.append(Notice(rule="server-history", message=text, path="/messages"))
            input = replace(input, messages=list(selected))  # noqa: A001
    restored = restore_server_results(input.messages, NO_CALLS if view is None else view.server_calls)
    if restored.ignored:
        notices.append(_ignored_results_notice(restored.ignored))
    messages = restored.messages
    if history == "server":
        new: Sequence[Message] = _select_new(messages, by_id, notices)
        if drops_unknown:
            new = _remove_unknown(new, view, by_id, notices)
        messages = [*known, *new]
    else:
        if input.resume and not messages:  # the client leaves the thread as it is (INT-11, INT-14)
            messages = known
        if drops_unknown:
            messages = _remove_unknown(messages, view, {}, notices)
        messages = _undo_translation(messages, input, by_id)
        if len({message.id for message in messages}) < len(messages):
            notices.append(_duplicate_ids_notice(messages))
    if any(message.role == "activity" for message in messages):
        messages = [message for message in messages if message.role != "activity"]
    if not settings.trust.system_messages and has_instructions(messages):
        messages = _remove_instructions(messages, by_id, view, notices)
    state = _choose_state(input, view, history)
    if settings.trust.state_keys is not None:
        state = _limit_state(state, {} if view is None else view.conversation.state, settings.trust.state_keys, notices)
    is_same = messages is input.messages and state is input.state
    return PreparedInput(
        input=input if is_same else replace(input, messages=list(messages), state=state),
        sent=input,
        notices=notices,
        is_hydration=is_hydration,
        prelude=_state_prelude(state, input.state),
        ignored_results=restored.ignored,
    )


def _undo_translation(
    messages: Sequence[Message],
    input: RunAgentInput,  # noqa: A002
    known: dict[str, Message],
) -> Sequence[Message]:
    """Replace messages that an older client sent back in a dialect's form by the thread's own."""
    if not may_have_translated(input):
        return messages
    return [
        known[message.id]
        if message.id in known and may_be_translated(message) and is_same_message(message, known[message.id])
        else message
        for message in messages
    ]


def _choose_state(input: RunAgentInput, view: View | None, history: HistoryMode) -> State:  # noqa: A002
    """Return the state that the agent starts with: the client's or the thread's."""
    if view is None or not (history == "server" or input.resume):
        return input.state
    # An absent state and {} are the same in the protocol (IN-11). Only a client that knows the thread can mean {}.
    if input.state is None:
        return view.conversation.state
    if history == "server" and json_equal(input.state, {}):
        known = {message.id for message in view.conversation.messages}
        if not any(message.id in known for message in input.messages):
            return view.conversation.state
    return input.state


def _state_prelude(state: State, sent: State) -> list[Event]:
    """Return a STATE_SNAPSHOT if the client sent another state than the agent starts with."""
    if state is None or json_equal(state, {} if sent is None else sent):
        return []
    return [StateSnapshotEvent(snapshot=state)]


def _limit_state(state: State, held: State, keys: Collection[str], notices: list[Notice]) -> State:
    """Return the thread's state with those changes of the client's that ``keys`` allow."""
    wanted: State = {} if state is None else state
    if not (is_object(held) and is_object(wanted)):
        if json_equal(wanted, held):
            return state
        if not json_equal(wanted, {}):
            text = "the client's state is ignored: it may change only some keys, and one of the states is no object"
            notices.append(Notice(rule="state-keys", message=text, path="/state"))
        return held
    old, new = held, wanted
    refused = [
        key
        for key in {**old, **new}
        if key not in keys and not (key in old and key in new and json_equal(old[key], new[key]))
    ]
    if not refused:
        return state
    if new:  # a client that keeps no state sends {} (IN-11)
        text = f"changes of the client are ignored, because it may not change these keys: {list_ids(refused)}"
        notices.append(Notice(rule="state-keys", message=text, path="/state"))
    return {key: one for key, one in old.items() if key not in keys} | {
        key: one for key, one in new.items() if key in keys
    }


def _remove_unknown(
    messages: Sequence[Message], view: View | None, in_thread: Collection[str], notices: list[Notice]
) -> Sequence[Message]:
    """Remove assistant and tool messages that no run has sent, each call together with its result."""
    selected = remove_unknown(messages, KnownMessages() if view is None else view.index.known, in_thread.__contains__)
    if not selected.removed:
        return messages
    text = "assistant and tool messages of the client are removed, because the log does not have them: "
    notices.append(Notice(rule="unknown-history", message=text + list_ids(selected.removed), path="/messages"))
    return remove_calls(selected.messages, selected.open_calls)


def _ignored_results_notice(ids: Sequence[str]) -> Notice:
    text = f"tool messages of the client are ignored, because the server answers their calls: {list_ids(ids)}"
    return Notice(rule="tool-results", message=text, path="/messages")


def _select_new(messages: Sequence[Message], known: dict[str, Message], notices: list[Notice]) -> list[Message]:
    """Return the messages that the thread does not have. Of several with the same id the first counts."""
    new: dict[str, Message] = {}
    changed: list[str] = []
    duplicate: list[str] = []
    for message in messages:
        if message.id in known:
            if not is_same_message(message, known[message.id]):
                changed.append(message.id)
        elif message.id in new:
            duplicate.append(message.id)
        else:
            new[message.id] = message
    if changed:
        text = f"the client's edits are ignored, because the server keeps the history: {list_ids(changed)}"
        notices.append(Notice(rule="server-history", message=text, path="/messages"))
    if duplicate:
        text = f"several messages have the same id; the first one counts: {list_ids(duplicate)}"
        notices.append(Notice(rule="ENV-12", message=text, path="/messages"))
    return list(new.values())


def _duplicate_ids_notice(messages: Sequence[Message]) -> Notice:
    """Report messages with the same id. The agent sees all of them; the thread keeps the first."""
    times = Counter(message.id for message in messages)
    ids = list_ids([message_id for message_id, count in times.items() if count > 1])
    return Notice(
        rule="ENV-12", message=f"several messages have the same id; the thread keeps the first: {ids}", path="/messages"
    )


def _remove_instructions(
    messages: Iterable[Message], known: dict[str, Message], view: View | None, notices: list[Notice]
) -> list[Message]:
    """Remove system and developer messages of clients. The agent's own ones get their own content."""
    from_clients: frozenset[str] = frozenset() if view is None else view.client_instructions
    left: list[Message] = []
    removed: list[str] = []
    for message in messages:
        if message.role not in INSTRUCTING_ROLES:
            left.append(message)
            continue
        own = None if message.id in from_clients else known.get(message.id)
        if own is not None and own.role in INSTRUCTING_ROLES:
            left.append(own)
        else:
            removed.append(message.id)
    if removed:
        text = "system and developer messages of the client are removed; Trust(system_messages=True) passes them on: "
        text += list_ids(removed)
        notices.append(Notice(rule="system-messages", message=text, path="/messages"))
    return left
