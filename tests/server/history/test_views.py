"""Views: the conversation of a thread, from the log and the requests, along one path of runs."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any

import pytest
from builders import ignore, text_message, user
from hypothesis import given, settings
from hypothesis import strategies as st
from stores.stored_threads import SCOPE, THREAD, agent_input, append_events, begin_run, run_end, write_run
from streams.random_streams import random_stream
from waiting import let_tasks_run

from aguila.codec import decode, encode, encode_event
from aguila.errors import NotFound
from aguila.protocol import (
    AssistantMessage,
    DeveloperMessage,
    Event,
    Message,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepStartedEvent,
    SystemMessage,
    TextMessageContentEvent,
    TextMessageStartEvent,
    ToolCallStartEvent,
    ToolMessage,
    replace,
)
from aguila.server import Trust
from aguila.server.config.options import HistoryMode, Settings
from aguila.server.threads.cache import Threads
from aguila.server.threads.client.agent_input import prepare_input
from aguila.server.threads.thread import MAX_CACHED_VIEWS
from aguila.server.threads.turn import decode_events
from aguila.store import MemoryStore, NewRun, RunChange, Store, ThreadTarget
from aguila.stream import Lineage, expand_chunks

pytestmark = pytest.mark.anyio


def contents(view: Any) -> list[Any]:
    return [message.content for message in view.conversation.messages]


async def test_a_thread_holds_what_the_client_sent_and_what_the_agent_said(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1", user("u1", "hi")), text_message("a1", "hello"))
    sent = [user("u1", "hi"), AssistantMessage(id="a1", content="hello"), user("u2", "bye")]
    await write_run(open_store, agent_input("r2", *sent), text_message("a2", "goodbye"))
    view = await Threads(open_store).at(SCOPE, THREAD)
    assert contents(view) == ["hi", "hello", "bye", "goodbye"]
    assert (view.tip, view.last, view.is_running) == ("r2", 10, False)


async def test_where_the_server_keeps_them_messages_are_known_by_id_and_what_is_held_stays(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1", user("u1", "yes")), text_message("a1", "sure?"))
    changed = [user("u1", "no"), AssistantMessage(id="a1", content="forged"), user("u2", "yes")]
    await write_run(open_store, agent_input("r2", *changed))
    view = await Threads(open_store, history="server").at(SCOPE, THREAD)
    assert contents(view) == ["yes", "sure?", "yes"]
    await write_run(open_store, agent_input("r3", user("u1", "yes"), user("u3", "no")))
    view = await Threads(open_store, history="server").at(SCOPE, THREAD)
    assert contents(view) == ["yes", "sure?", "yes", "no"]


async def test_a_client_may_send_only_what_is_new(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1", user("u1", "one")), text_message("a1", "two"))
    await write_run(open_store, agent_input("r2", user("u2", "three")))
    assert contents(await Threads(open_store).at(SCOPE, THREAD)) == ["one", "two", "three"]


async def test_the_state_a_client_sends_is_the_baseline_of_its_run_in_11(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1"), [StateSnapshotEvent(snapshot={"n": 1})])
    delta = StateDeltaEvent(delta=[{"op": "replace", "path": "/n", "value": 6}])
    await write_run(open_store, agent_input("r2", state={"n": 5, "mine": True}), [delta])
    threads = Threads(open_store)
    assert (await threads.at(SCOPE, THREAD)).conversation.state == {"n": 6, "mine": True}
    assert (await threads.at(SCOPE, THREAD, "r1")).conversation.state == {"n": 1}
    await write_run(open_store, agent_input("r3"))
    assert (await threads.at(SCOPE, THREAD)).conversation.state == {}


async def test_an_old_peers_input_is_read_as_it_was_read_when_it_came(open_store: Store) -> None:
    body = b'{"thread_id":"thread","run_id":"r1","messages":[{"role":"user","content":"hi"}],"state":null}'
    started = RunStartedEvent(thread_id=THREAD, run_id="r1", protocol_version="1.1")
    begun = await open_store.begin(
        NewRun(
            scope=SCOPE,
            thread_id=THREAD,
            run_id="r1",
            owner="o",
            lease_seconds=30,
            request=body,
            fingerprint="f",
            events=[encode_event(started)],
        )
    )
    await append_events(open_store, begun.lease, [RunFinishedEvent(thread_id=THREAD, run_id="r1")])
    assert contents(await Threads(open_store).at(SCOPE, THREAD)) == ["hi"]


async def test_a_run_that_names_a_parent_continues_from_there(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1", user("u1", "one")), text_message("a1", "two"))
    await write_run(open_store, agent_input("r2", user("u2", "three")), text_message("a2", "four"))
    await write_run(
        open_store, agent_input("r3", user("u3", "instead"), parent_run_id="r1"), text_message("a3", "other")
    )
    threads = Threads(open_store)
    assert contents(await threads.at(SCOPE, THREAD)) == ["one", "two", "instead", "other"]
    assert contents(await threads.at(SCOPE, THREAD, "r2")) == ["one", "two", "three", "four"]
    assert contents(await threads.at(SCOPE, THREAD, "r1")) == ["one", "two"]
    assert (await threads.at(SCOPE, THREAD, "r1")).last == 5


async def test_a_parent_that_the_thread_does_not_have_makes_a_root_and_a_notice(open_store: Store) -> None:
    notices: list[Any] = []
    await write_run(open_store, agent_input("r1", user("u1", "one")))
    await write_run(open_store, agent_input("r2", user("u2", "two"), parent_run_id="elsewhere"))
    threads = Threads(open_store, warn=notices.append)
    assert contents(await threads.at(SCOPE, THREAD)) == ["two"]
    assert [notice.rule for notice in notices] == ["LIFE-2"]


async def test_a_view_says_what_it_covers_and_a_later_one_goes_on_from_there(open_store: Store) -> None:
    threads = Threads(open_store)
    lease = await begin_run(open_store, agent_input("r1", user("u1")))
    await append_events(open_store, lease, text_message("a1", "hel")[:2])
    first = await threads.at(SCOPE, THREAD)
    assert (first.last, first.is_running, contents(first)) == (3, True, ["hello", "hel"])
    await append_events(open_store, lease, [TextMessageContentEvent(message_id="a1", delta="lo")])
    second = await threads.at(SCOPE, THREAD)
    assert (second.last, contents(second)) == (4, ["hello", "hello"])
    assert (first.last, contents(first)) == (3, ["hello", "hel"])


async def test_only_events_that_were_not_seen_before_are_read() -> None:
    store = _Counting()
    await store.open()
    for number in range(3):
        await write_run(store, agent_input(f"r{number}", user(f"u{number}")), text_message(f"a{number}", "x" * 10))
    threads = Threads(store)
    await threads.at(SCOPE, THREAD)
    assert store.positions == [0, 5, 10]
    await threads.at(SCOPE, THREAD)
    assert store.positions == [0, 5, 10]
    await write_run(store, agent_input("r3"))
    await threads.at(SCOPE, THREAD)
    assert store.positions == [0, 5, 10, 15]


async def test_the_end_of_any_run_can_be_viewed_long_after_it_was_kept(open_store: Store) -> None:
    count = MAX_CACHED_VIEWS + 4
    for number in range(count):
        await write_run(open_store, agent_input(f"r{number}", user(f"u{number}", str(number))))
    threads = Threads(open_store)
    await threads.at(SCOPE, THREAD)
    for number in range(count):
        view = await threads.at(SCOPE, THREAD, f"r{number}")
        assert contents(view) == [str(n) for n in range(number + 1)]
        assert view.last == 2 * (number + 1)


async def test_what_is_open_in_a_run_is_known_and_gone_when_it_ends(open_store: Store) -> None:
    lease = await begin_run(open_store, agent_input("r1"))
    opened: list[Event] = [
        StepStartedEvent(step_name="look"),
        TextMessageStartEvent(message_id="a1"),
        ToolCallStartEvent(tool_call_id="c1", tool_call_name="search"),
    ]
    await append_events(open_store, lease, [*opened, *text_message("a2", "closed")])
    threads = Threads(open_store)
    view = await threads.at(SCOPE, THREAD)
    assert view.turn is not None
    assert decode_events(view.turn.open_items) == opened
    assert view.turn.ended is None
    ending = RunErrorEvent(message="broke")
    await append_events(open_store, lease, [ending])
    view = await threads.at(SCOPE, THREAD)
    assert view.turn is not None
    assert (view.turn.open_items, view.turn.ended) == ([], ending)


async def test_system_messages_are_known_by_who_sent_them(open_store: Store) -> None:
    by_client = [SystemMessage(id="s1", content="obey"), DeveloperMessage(id="d1", content="obey")]
    by_agent: list[Event] = [
        TextMessageStartEvent(message_id="s2", role="system"),
        *text_message("a1", "x"),
    ]
    await write_run(open_store, agent_input("r1", *by_client), [by_agent[0], *by_agent[1:]])
    await write_run(open_store, agent_input("r2", SystemMessage(id="s2", content="forged")))
    view = await Threads(open_store).at(SCOPE, THREAD)
    assert view.client_instructions == {"s1", "d1"}


async def test_a_thread_that_was_deleted_and_begun_anew_is_another_thread() -> None:
    times = iter(float(n) for n in range(1000))
    store = MemoryStore(clock=lambda: next(times))
    await store.open()
    threads = Threads(store)
    await write_run(store, agent_input("r1", user("u1", "old")))
    assert contents(await threads.at(SCOPE, THREAD)) == ["old"]
    await store.delete(SCOPE, ThreadTarget(THREAD))
    with pytest.raises(NotFound):
        await threads.at(SCOPE, THREAD)
    await write_run(store, agent_input("r1", user("u1", "new")), text_message("a1", "longer than before"))
    assert contents(await threads.at(SCOPE, THREAD)) == ["new", "longer than before"]


async def test_a_thread_begun_anew_while_it_is_read_is_read_anew() -> None:
    times = iter(float(n) for n in range(1000))

    class Replaced(MemoryStore):
        """A store whose thread is replaced by a shorter one between two reads."""

        is_armed = True

        async def read(self, scope: str, thread_id: str, after: int = 0, **options: Any) -> Any:
            if self.is_armed:
                self.is_armed = False
                await self.delete(scope, ThreadTarget(thread_id))
                await write_run(self, agent_input("r1", user("u1", "new")))
            return await super().read(scope, thread_id, after, **options)

    store = Replaced(clock=lambda: next(times))
    await store.open()
    await write_run(store, agent_input("r1", user("u1", "old")), text_message("a1", "x"))
    assert contents(await Threads(store).at(SCOPE, THREAD)) == ["new"]


async def test_threads_runs_and_scopes_that_are_not_there_are_not_found(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1", user("u1")))
    threads = Threads(open_store)
    for scope, thread_id, run_id in ((SCOPE, "other", None), ("other", THREAD, None), (SCOPE, THREAD, "r2")):
        with pytest.raises(NotFound):
            await threads.at(scope, thread_id, run_id)


async def test_scopes_with_the_same_thread_id_do_not_see_each_other(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1", user("u1", "mine")))
    await write_run(open_store, agent_input("r1", user("u1", "yours")), scope="other")
    threads = Threads(open_store)
    assert contents(await threads.at(SCOPE, THREAD)) == ["mine"]
    assert contents(await threads.at("other", THREAD)) == ["yours"]


async def test_forgotten_threads_are_read_again(open_store: Store) -> None:
    threads = Threads(open_store, max_threads=1)
    for name in ("t1", "t2"):
        await write_run(open_store, agent_input("r1", user("u1", name), thread_id=name))
    for name in ("t1", "t2", "t1"):
        assert contents(await threads.at(SCOPE, name)) == [name]


async def test_readers_at_the_same_time_see_each_event_once(open_store: Store) -> None:
    lease = await begin_run(open_store, agent_input("r1"), text_message("a1", "")[:1])
    threads = Threads(open_store)
    for _ in range(20):
        await append_events(open_store, lease, [TextMessageContentEvent(message_id="a1", delta="x")])
        views = await asyncio.gather(*(threads.at(SCOPE, THREAD) for _ in range(5)))
    assert {tuple(contents(view)) for view in views} == {("x" * 20,)}


async def test_a_reader_that_gives_up_half_way_costs_the_next_one_nothing(open_store: Store) -> None:
    for number in range(30):
        await write_run(
            open_store, agent_input(f"r{number}", user(f"u{number}", str(number))), text_message(f"a{number}", "x")
        )
    threads = Threads(open_store)
    for steps in range(12):
        reading = asyncio.ensure_future(threads.at(SCOPE, THREAD))
        await let_tasks_run(steps)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    view = await threads.at(SCOPE, THREAD)
    assert contents(view)[::2] == [str(n) for n in range(30)]
    assert contents(view)[1::2] == ["x"] * 30


# Laws


def front_end(messages: list[Message]) -> list[Message]:
    """Let tool messages answer calls of the front end: for other calls the server's own result counts."""
    return [replace(one, tool_call_id=f"front-{one.id}") if isinstance(one, ToolMessage) else one for one in messages]


async def echo_of(store: Store, given: RunAgentInput) -> RunAgentInput:
    """Return an input as the server echoes it: without messages of other branches."""
    threads = Threads(store, history="server", warn=ignore)
    settings = Settings(history="server", trust=Trust(system_messages=True))
    prepared = await prepare_input(given, settings, threads=threads, scope=SCOPE)
    return prepared.sent


async def record(store: Store, log: list[Event], inputs: random.Random, history: HistoryMode = "client") -> list[Event]:
    """Write a stream to a store as the runs of a thread; return the log that gives a reducer the same conversation."""
    shown: list[Event] = []
    lease = None
    for event in log:
        if isinstance(event, RunStartedEvent):
            given = agent_input(event.run_id) if event.input is None else replace(event.input, protocol_version="1.1")
            state: Any = inputs.choice((None, {}, {"list": [1], "a": 1}, {"a": {"b": 2}}))
            given = replace(given, state=state, parent_run_id=event.parent_run_id, messages=front_end(given.messages))
            given = decode(encode(given), RunAgentInput)  # a lone text part has become a string
            echoed = await echo_of(store, given) if history == "server" else given
            lease = await begin_run(store, given, started=replace(event, input=None))
            shown += [replace(event, input=echoed), StateSnapshotEvent(snapshot={} if state is None else state)]
        elif lease is not None:
            is_end = isinstance(event, RunFinishedEvent | RunErrorEvent)
            end = run_end(event) if is_end else None
            await store.write(lease, RunChange(events=[encode_event(event)], end=end))
            shown.append(decode(encode_event(event)))
    return shown


def one_end_per_run(log: list[Event]) -> list[Event]:
    """Return a log without failures after the end or before the beginning of a run, which a server never stores."""
    kept: list[Event] = []
    is_open = False
    for event in log:
        if isinstance(event, RunStartedEvent):
            if is_open:
                break
            is_open = True
        elif not is_open:
            continue
        kept.append(event)
        if isinstance(event, RunFinishedEvent | RunErrorEvent):
            is_open = False
    return kept


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), st.integers(10, 150), st.integers(1, 3))
async def test_every_branch_is_what_the_reducer_makes_of_its_runs(seed: int, size: int, views: int) -> None:
    rng = random.Random(seed)
    log = one_end_per_run(list(expand_chunks(random_stream(rng, size))))

    store = MemoryStore()
    await store.open()
    threads = Threads(store, history="server", warn=ignore)
    shown: list[Event] = []
    # Read now and then while the log grows, and by a reader that has seen nothing yet.
    starts = [at for at, event in enumerate(log) if isinstance(event, RunStartedEvent)]
    cuts = sorted({*rng.sample(starts, min(views, len(starts))), len(log)} - {0})
    before = 0
    for cut in cuts:
        shown += await record(store, log[before:cut], rng, "server")
        before = cut
        lineage = Lineage(shown, warn=ignore)
        for reader in (threads, Threads(store, history="server", warn=ignore)):
            for run in rng.sample(lineage.runs, len(lineage.runs)):
                expected = lineage.reduce_along(run.run_id, warn=ignore)
                assert (await reader.at(SCOPE, THREAD, run.run_id)).conversation == expected
            latest = await reader.at(SCOPE, THREAD)
            assert latest.tip == lineage.latest
            assert latest.last == (await store.thread(SCOPE, THREAD)).summary.last


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(10, 150))
async def test_where_the_client_keeps_them_a_reader_along_the_way_and_one_at_the_end_see_the_same(
    seed: int, size: int
) -> None:
    rng = random.Random(seed)
    log = one_end_per_run(list(expand_chunks(random_stream(rng, size))))

    async def check() -> None:
        store = MemoryStore()
        await store.open()
        threads = Threads(store, warn=ignore)
        views: dict[str, Any] = {}
        starts = [at for at, event in enumerate(log) if isinstance(event, RunStartedEvent)]
        for at, until in itertools.pairwise([*starts, len(log)]):
            given: Any = log[at]
            # Messages that a client may send: many known ones, with any ids, and new ones.
            held = (await threads.at(SCOPE, THREAD)).conversation.messages if at else []
            sent = [one for one in held if rng.random() < 0.8]
            extra = [] if given.input is None else given.input.messages
            given = replace(given, input=agent_input(given.run_id, *sent, *extra))
            await record(store, [given, *log[at + 1 : until]], rng)
            views[given.run_id] = (await threads.at(SCOPE, THREAD)).conversation
        for reader in (threads, Threads(store, warn=ignore)):
            for run_id in rng.sample(list(views), len(views)):
                assert (await reader.at(SCOPE, THREAD, run_id)).conversation == views[run_id]

    await check()


class _Counting(MemoryStore):
    """Notes from where its log is read."""

    def __init__(self) -> None:
        super().__init__()
        self.positions: list[int] = []

    async def read(self, scope: str, thread_id: str, after: int = 0, *, until: int | None = None, limit: int = 1024):
        self.positions.append(after)
        return await super().read(scope, thread_id, after, until=until, limit=limit)
