"""Turns that are stored with the ends of runs: how they are read, and the state after a crash at any write."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from builders import ignore, text_message, tool_call, user, user_json
from cpu_bounds import allowed, frozen_heap
from hypothesis import example, given, settings
from hypothesis import strategies as st
from in_process import Slices
from serving import run_input, serving
from stores.merge_model import Model, Play
from stores.stored_threads import SCOPE, THREAD, agent_input, append_events, begin_run, write_run

from aguila import App
from aguila.codec import decode, encode, encode_event
from aguila.errors import StoreUnavailable
from aguila.protocol import (
    AssistantMessage,
    Message,
    RunAgentInput,
    RunFinishedEvent,
    ToolMessage,
    replace,
)
from aguila.server.threads.cache import Threads
from aguila.server.threads.client.message_ids import PLACEHOLDER_PREFIX
from aguila.server.threads.thread import OwnRun, Thread
from aguila.server.threads.turn import FORMAT, decode_turn
from aguila.store import (
    MemoryStore,
    NewTurns,
    PostgresStore,
    RunChange,
    RunEnd,
    RunKey,
    SQLiteStore,
    Store,
    Turn,
    Want,
)
from aguila.store.archives.archive import RUN_LOST
from aguila.stream.reducer.reducer import Reducer

pytestmark = pytest.mark.anyio


class CountingMemory(MemoryStore):
    """Counts how often a request or the log is read."""

    reads = 0

    async def request(self, key: RunKey) -> bytes:
        self.reads += 1
        return await super().request(key)

    async def read(self, *args: Any, limit: int = 1024, **options: Any) -> Any:
        self.reads += limit > 0  # otherwise it reads the token of a cursor
        return await super().read(*args, limit=limit, **options)


class CountingSQLite(SQLiteStore):
    """The same on a file."""

    reads = 0

    async def request(self, key: RunKey) -> bytes:
        self.reads += 1
        return await super().request(key)

    async def read(self, *args: Any, limit: int = 1024, **options: Any) -> Any:
        self.reads += limit > 0  # otherwise it reads the token of a cursor
        return await super().read(*args, limit=limit, **options)


@pytest.fixture(params=["memory", "sqlite"])
def counting(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return CountingMemory() if request.param == "memory" else CountingSQLite(tmp_path / "threads.db")


async def echo(run: Any) -> Any:
    yield f"{len(run.messages)} messages"


@pytest.mark.parametrize("history", ["client", "server"])
def test_a_new_process_reads_a_thread_without_its_log_and_its_requests(tmp_path: Path, history: Any) -> None:
    """Reading 40 runs with requests of 9 MB took 4 s and 350 MB: every request was loaded."""
    messages: list[Any] = []
    with serving(App(echo, store=tmp_path / "threads.db", history=history)) as server:
        for number in range(12):
            messages.append(user_json(f"u{number}", "x" * 1000))
            server.events(run_id=f"r{number}", messages=messages, forwardedProps={"large": "y" * 100_000})
            messages = server.get("/threads/thread").json()["messages"]
            assert len(messages) == 2 * number + 2
    store = CountingSQLite(tmp_path / "threads.db")
    with serving(App(echo, store=store, history=history)) as server:
        assert server.get("/threads/thread").json()["messages"] == messages
        assert server.get("/threads/thread?run=r3").json()["messages"] == messages[:8]
        assert server.post("/connect", json=run_input(run_id="visit")).status_code == 200
        assert store.reads == 0


class EndingMemory(MemoryStore):
    """Notes which runs were closed with a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.projected: list[bool] = []

    async def write(self, lease: Any, change: Any) -> Any:
        if change.end is not None:
            self.projected.append(change.end.turn is not None)
        return await super().write(lease, change)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_short_run_needs_two_writes_and_reads_nothing(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first delta was appended by itself, and four reads of the store preceded its end."""
    cls: Any = MemoryStore if kind == "memory" else SQLiteStore
    calls: list[str] = []

    def count(name: str) -> None:
        method = getattr(cls, name)

        def counted(*args: Any, **options: Any) -> Any:
            calls.append(name)
            return method(*args, **options)

        monkeypatch.setattr(cls, name, counted)

    for name in ("begin", "write", "thread", "values", "read"):
        count(name)
    store = MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "threads.db")
    with serving(App(echo, store=store)) as server:
        server.events(messages=[user_json("u", "Hi")])
        assert calls == ["begin", "write"]


def test_a_thread_with_a_message_of_one_text_part_is_read_without_its_log(tmp_path: Path) -> None:
    """The part was stored as a string, which is another message, so the run had no projection."""
    parts = [{"type": "text", "text": "hello"}]
    with serving(App(echo, store=tmp_path / "threads.db")) as server:
        server.events(messages=[{"id": "u1", "role": "user", "content": parts}])
        messages = server.get("/threads/thread").json()["messages"]
    store = CountingSQLite(tmp_path / "threads.db")
    with serving(App(echo, store=store)) as server:
        assert server.get("/threads/thread").json()["messages"] == messages
        assert store.reads == 0


def test_a_run_of_many_bytes_is_not_reduced_at_its_end_but_when_it_is_read() -> None:
    """Reducing it there took several times its size in memory, and delayed a shutdown."""
    pieces = {"short": 3, "long": 200}

    async def talk(run: Any) -> Any:
        for _ in range(pieces[run.run_id]):
            yield "x" * 10_000

    store = EndingMemory()
    with serving(App(talk, store=store)) as server:
        for run_id, count in pieces.items():
            server.events(thread_id=run_id, run_id=run_id)
            assert len(server.get(f"/threads/{run_id}").json()["messages"][-1]["content"]) == count * 10_000
    assert store.projected == [True, False]


async def test_a_run_that_was_closed_without_a_projection_is_projected_when_it_is_read(counting: Any) -> None:
    await counting.open()
    for number in range(3):
        await write_run(counting, agent_input(f"r{number}", user(f"u{number}", "x")), text_message(f"a{number}", "y"))
    first = Threads(counting, warn=ignore)
    expected = (await first.at(SCOPE, THREAD)).conversation
    await settle(first)
    counting.reads = 0
    assert (await Threads(counting, warn=ignore).at(SCOPE, THREAD)).conversation == expected
    assert counting.reads == 0
    # Another setting, and another version, read the log again.
    await Threads(counting, history="server", warn=ignore).at(SCOPE, THREAD)
    assert counting.reads > 0
    await counting.close()


@pytest.mark.parametrize("damage", ["format", "value", "parent"])
async def test_a_projection_that_cannot_be_used_is_computed_again(damage: str) -> None:
    store = MemoryStore()
    await store.open()
    await write_run(store, agent_input("r1", user("u1", "x")), text_message("a1", "y"))
    await write_run(store, agent_input("r2", user("u2", "x")), text_message("a2", "y"))
    reader = Threads(store, warn=ignore)
    expected = (await reader.at(SCOPE, THREAD)).conversation
    await settle(reader)
    stored = await bodies(store)
    body = stored["r2"]
    if damage == "value":
        known = decode_turn(body).known
        body = body.replace(known[-1], b"?" * 16)
    elif damage == "parent":
        body = body.replace(b"\xa2r1", b"\xa2r9")
    version = FORMAT + 1 if damage == "format" else FORMAT
    await store.amend(SCOPE, THREAD, NewTurns({"r2": Turn(format=version, body=body)}))
    for _ in range(2):
        fresh = Threads(store, warn=ignore)
        assert (await fresh.at(SCOPE, THREAD)).conversation == expected
        await settle(fresh)
    assert await bodies(store) == stored
    await store.close()


async def bodies(store: Store) -> dict[str, bytes]:
    """Return the stored turns of the thread."""
    found = await store.thread(SCOPE, THREAD, Want(runs=True, turns=True))
    return {run.run_id: run.turn.body for run in found.runs if run.turn is not None}


async def test_the_cache_is_bounded_in_bytes() -> None:
    store = MemoryStore()
    await store.open()
    for thread in range(8):
        given = agent_input("r", user("u", "x" * 100_000), thread_id=f"t{thread}")
        await write_run(store, given, text_message("a", "y"))
    threads = Threads(store, max_bytes=350_000, warn=ignore)
    for thread in range(8):
        await threads.at(SCOPE, f"t{thread}")
        assert threads.cached_bytes <= 350_000
    assert threads.cached_bytes > 200_000
    small = Threads(store, max_bytes=1, warn=ignore)
    await small.at(SCOPE, "t1")
    await small.at(SCOPE, "t2")
    assert 0 < small.cached_bytes < 150_000  # the last one stays
    await store.close()


@pytest.mark.parametrize("kind", ["open", "result", "calls"])
async def test_the_cache_counts_runs_in_progress_and_large_ends(kind: str) -> None:
    store = MemoryStore()
    await store.open()
    for thread in range(6):
        given = agent_input("r", user("u", "x"), thread_id=f"t{thread}")
        if kind == "open":
            lease = await begin_run(store, given)
            await append_events(store, lease, text_message("a", "y" * 100_000))
        elif kind == "result":
            lease = await begin_run(store, given)
            finished = RunFinishedEvent(thread_id=f"t{thread}", run_id="r", result="z" * 100_000)
            await append_events(store, lease, [finished])
        else:
            await write_run(store, given, [event for i in range(10) for event in tool_call(f"c{i}", name="n" * 10_000)])
    threads = Threads(store, max_bytes=350_000, warn=ignore)
    for thread in range(6):
        await threads.at(SCOPE, f"t{thread}")
        assert threads.cached_bytes <= 350_000
    assert threads.cached_bytes > 90_000
    assert len(threads._threads) < 4
    await store.close()


async def test_joining_a_long_thread_does_not_hold_the_event_loop() -> None:
    store = MemoryStore()
    await store.open()
    for number in range(400):
        await write_run(
            store, agent_input(f"r{number}", user(f"u{number}", "x")), text_message(f"a{number}", "y" * 4096)
        )
    first = Threads(store, history="server", warn=ignore)
    await first.at(SCOPE, THREAD)
    await settle(first)
    slices = Slices()
    with frozen_heap():
        slices.start()
        view = await asyncio.create_task(Threads(store, history="server", warn=ignore).at(SCOPE, THREAD))
        slices.stop()
    assert len(view.conversation.messages) == 800
    assert slices.longest < allowed(0.02)
    await store.close()


def test_the_first_run_of_a_process_on_a_long_thread_does_not_hold_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages are loaded in a thread: 60,000 took 0.2 s for a request of 300 bytes."""
    threads: list[int] = []
    load = Reducer.from_conversation

    def watched(*args: Any, **options: Any) -> Reducer:
        threads.append(threading.get_ident())
        return load(*args, **options)

    monkeypatch.setattr(Reducer, "from_conversation", watched)
    history = [user_json(f"u{number}", "x") for number in range(3_000)]
    loops: list[int] = []

    async def agent(run: Any) -> str:
        loops.append(threading.get_ident())
        return f"{len(run.messages)}"

    for number, messages in enumerate([history, [user_json("new", "x")]]):
        with serving(App(agent, store=tmp_path / "threads.db")) as server:
            events = server.events(run_id=f"r{number}", messages=messages)
            assert events[-1]["type"] == "RUN_FINISHED"
            assert server.get("/threads/thread").status_code == 200
    first, second = loops
    assert threads[-1] not in (first, second)


async def test_other_tasks_run_between_two_reads_of_values_in_memory() -> None:
    """A store in memory never waits, so its reader does."""
    turn = 0
    reads: list[int] = []

    class Watched(MemoryStore):
        async def values(self, scope: str, thread_id: str, digests: Sequence[bytes]) -> dict[bytes, bytes]:
            reads.append(turn)
            return dict(await super().values(scope, thread_id, digests))

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    store = Watched()
    await store.open()
    for number in range(200):
        given = agent_input(f"r{number}", user(f"u{number}", "x"))
        await write_run(store, given, text_message(f"a{number}", f"{number}"))
    first = Threads(store, history="server", warn=ignore)
    await first.at(SCOPE, THREAD)
    await settle(first)
    reads.clear()
    counting = asyncio.create_task(count_turns())
    await Threads(store, history="server", warn=ignore).at(SCOPE, THREAD)
    counting.cancel()
    assert len(reads) > 2
    assert len(set(reads)) == len(reads)
    await store.close()


async def settle(threads: Threads) -> None:
    """Wait until the threads that were computed are stored."""
    await threads.wait_until_saved()


# The law of test_merge, on stored threads, with crashes


class Crashing:
    """A process that may die after any write, and its successor."""

    def __init__(self, store: Store, rng: random.Random) -> None:
        self.store = store
        self.rng = rng
        self.threads = Threads(store, warn=ignore)
        lost = random.Random(rng.random())
        amend = store.amend

        async def amend_or_die(scope: str, thread_id: str, change: Any) -> Any:
            """Store the turns of a reader, unless the process dies before."""
            if lost.random() < 0.3:
                raise StoreUnavailable("the process is dead")
            return await amend(scope, thread_id, change)

        store.amend = amend_or_die  # type: ignore[method-assign]

    async def restart(self) -> None:
        await settle(self.threads)
        if not isinstance(self.store, MemoryStore):
            await self.store.close()
            await self.store.open()
        self.threads = Threads(self.store, warn=ignore)

    async def run(self, given: RunAgentInput, events: list[Any]) -> bool:
        """Write a run; return whether it has sent its events. A run of a dead process is ended by the next one."""
        store, rng = self.store, self.rng
        lease = await begin_run(store, given)
        record = await store.run(RunKey(SCOPE, THREAD, given.run_id))
        crash = rng.choice(["", "", "", "begun", "sent", "computed", "refused"])
        if crash == "begun":
            await self.restart()
            await store.write(lease, RunChange(events=[RUN_LOST], end=RunEnd(outcome="error")))
            return False
        await append_events(store, lease, events)
        if rng.random() < 0.2:
            await self.threads.at(SCOPE, THREAD)  # a reader joins before the end
        last = [encode_event(RunFinishedEvent(thread_id=THREAD, run_id=given.run_id))]
        sent = None if rng.random() < 0.1 else given
        turn = None
        if crash != "sent" and rng.random() < 0.9:
            run = OwnRun(lease=lease, first=record.first, sent=sent)
            if rng.random() < 0.5:  # the events were kept
                batches = (await store.read(SCOPE, THREAD, record.first - 1)).batches
                stored = [event for batch in batches for event in batch.events]
                run = OwnRun(
                    lease=lease, first=record.first, sent=sent, parent_run_id=given.parent_run_id, stored=stored
                )
            turn = await self.threads.close_run(run, last)
        if crash in ("sent", "computed"):
            await self.restart()
            last, turn = [RUN_LOST], None
        elif crash == "refused":
            self.threads.forget(SCOPE, THREAD)
            last, turn = [RUN_LOST], None
        await store.write(lease, RunChange(events=last, end=RunEnd(outcome="success", turn=turn)))
        if rng.random() < 0.2:
            await self.restart()
        return True


async def play_law(store: Store, seed: int, runs: int) -> None:
    await store.open()
    play, model = Play(seed), Model()
    process = Crashing(store, play.rng)
    latest: str | None = None
    for number in range(runs):
        run_id = f"r{number}"
        parent = play.rng.choice(list(model.ends)) if model.ends and play.rng.random() < 0.25 else None
        base = model.ends.get(parent or latest or "", [])
        sent = play.sends([message for message, _ in base])
        unnamed = {at for at in range(len(sent)) if play.rng.random() < 0.8} if play.rng.random() < 0.2 else set[int]()
        bare = [
            replace(one, id=f"{PLACEHOLDER_PREFIX}{at + 1}") if at in unnamed else one for at, one in enumerate(sent)
        ]
        given = decode(encode(agent_input(run_id, *bare, parent_run_id=parent)), RunAgentInput)
        events, made = play.says()
        if not await process.run(given, events):
            made = []
        before = parent or latest
        read = decode(encode(agent_input(run_id, *sent)), RunAgentInput).messages
        kept = model.keep_results(before, model.name(base, read, unnamed, run_id))
        model.ends[run_id] = [*model.begin(base, kept), *((one, run_id) for one in made)]
        own = {one.tool_call_id: one for one in made if isinstance(one, ToolMessage)}
        model.results[run_id] = {**model.results.get(before or "", {}), **own}
        latest = run_id
        if play.rng.random() < 0.3:
            assert await view_of(process.threads) == [message for message, _ in model.ends[run_id]]
    for reader in (process.threads, Threads(store, warn=ignore)):
        for run_id, end in model.ends.items():
            assert await view_of(reader, run_id) == [message for message, _ in end]
        await settle(reader)
    await store.close()


async def view_of(reader: Threads, run_id: str | None = None) -> list[Message]:
    return (await reader.at(SCOPE, THREAD, run_id)).conversation.messages


@example(205, 8)  # a message without an id before an equal one that has the id of the thread's
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 14))
async def test_the_law_of_merging_holds_after_a_crash_at_any_write(seed: int, runs: int) -> None:
    await play_law(MemoryStore(), seed, runs)


@pytest.mark.parametrize("seed", range(8))
async def test_the_law_of_merging_holds_on_a_file_after_a_crash_at_any_write(tmp_path: Path, seed: int) -> None:
    await play_law(SQLiteStore(tmp_path / "threads.db"), seed, 12)


@pytest.mark.parametrize("seed", range(2))
async def test_the_law_of_merging_holds_on_postgres_after_a_crash_at_any_write(
    postgres: str, postgres_schema: str, seed: int
) -> None:
    await play_law(PostgresStore(postgres, schema=postgres_schema, patience=30.0), seed, 8)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 10), st.sampled_from(["client", "server"]))
async def test_stored_projections_are_what_the_log_says_also_of_messages_without_ids(
    seed: int, runs: int, history: Any
) -> None:
    store = MemoryStore()
    await store.open()
    play = Play(seed)
    process = Crashing(store, play.rng)
    process.threads = Threads(store, history=history, warn=ignore)
    held: list[Message] = []
    for number in range(runs):
        sent = play.sends(held)
        if play.rng.random() < 0.4:
            sent = [
                replace(one, id=f"{PLACEHOLDER_PREFIX}{index}") if play.rng.random() < 0.8 else one
                for index, one in enumerate(sent, 1)
            ]
        parent = f"r{play.rng.randrange(number)}" if number and play.rng.random() < 0.2 else None
        given = decode(encode(agent_input(f"r{number}", *sent, parent_run_id=parent)), RunAgentInput)
        await process.run(given, play.says()[0])
        process.threads = Threads(store, history=history, warn=ignore)
        held = await view_of(process.threads)
    plain = Thread(store, SCOPE, THREAD, history, "keep", ignore, uses_stored=False)
    for number in range(runs):
        found = await process.threads.at(SCOPE, THREAD, f"r{number}", with_known=True)
        expected = await plain.at(f"r{number}", with_known=True)
        for name in ("conversation", "client_instructions", "server_calls", "turn", "last", "tip"):
            assert getattr(found, name) == getattr(expected, name), name
        assert found.index.ends == expected.index.ends
        for message in held:
            assert found.index.known.has(message) == expected.index.known.has(message)
            assert found.index.first_runs.get(message.id) == expected.index.first_runs.get(message.id)
    await store.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_an_inline_image_in_fifty_turns_is_stored_once(kind: str, tmp_path: Path) -> None:
    data = random.Random(1).randbytes(750_000).hex()  # 1.5 MB, as a string without escapes
    part = {"type": "image", "source": {"type": "data", "value": data, "mimeType": "image/png"}}
    path = tmp_path / "threads.db"
    store = MemoryStore(max_bytes=4_000_000) if kind == "memory" else SQLiteStore(path)
    with serving(App(echo, store=store)) as server:
        messages: list[Any] = [{"id": "image", "role": "user", "content": [part]}]
        for number in range(10):
            server.events(run_id=f"r{number}", messages=messages)
            messages.append({"id": f"a{number}", "role": "assistant", "content": "An image."})
            messages.append(user_json(f"u{number}", "What else?"))
        found = server.get("/threads/thread").json()["messages"]
        assert found[0]["content"][0]["source"]["value"] == data
    if kind == "sqlite":
        assert path.stat().st_size < 2 * len(data)


async def test_an_unsaved_message_is_not_lost_with_its_cache() -> None:
    """A value that only a failed write had is stored with the next run."""
    store = MemoryStore()
    await store.open()
    process = Crashing(store, random.Random(0))
    given = agent_input("r1", user("u1", "x"))
    lease = await begin_run(store, given)
    last = [encode_event(RunFinishedEvent(thread_id=THREAD, run_id="r1"))]
    assert await process.threads.close_run(OwnRun(lease=lease, first=1, sent=given), last) is not None
    process.threads.forget(SCOPE, THREAD)
    await store.write(lease, RunChange(events=last, end=RunEnd(outcome="success")))
    given = agent_input("r2", user("u1", "x"), AssistantMessage(id="mine", content="y"), user("u2", "z"))
    lease = await begin_run(store, given)
    last = [encode_event(RunFinishedEvent(thread_id=THREAD, run_id="r2"))]
    turn = await process.threads.close_run(OwnRun(lease=lease, first=3, sent=given), last)
    await store.write(lease, RunChange(events=last, end=RunEnd(outcome="success", turn=turn)))
    fresh = Threads(store, warn=ignore)
    assert [one.id for one in await view_of(fresh)] == ["u1", "mine", "u2"]
    await store.close()


async def test_a_thread_is_read_while_the_end_of_its_run_is_being_stored() -> None:
    store = MemoryStore()
    await store.open()
    threads = Threads(store, warn=ignore)
    given = agent_input("r1", user("u1", "x"))
    lease = await begin_run(store, given)
    last = [encode_event(RunFinishedEvent(thread_id=THREAD, run_id="r1"))]
    turn = await threads.close_run(OwnRun(lease=lease, first=1, sent=given), last)
    assert [one.id for one in await view_of(threads)] == ["u1"]  # the store says that the run is open
    await store.write(lease, RunChange(events=last, end=RunEnd(outcome="success", turn=turn)))
    assert [one.id for one in await view_of(threads)] == ["u1"]
    await store.close()


async def test_deltas_are_reduced_to_the_same_thread_together_and_one_by_one() -> None:
    heads = [
        b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"',
        b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"other","delta":"',
        b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","metadata":{"k":1},"delta":"',
    ]
    # Quotes, ends of events inside of a text, halves of a surrogate pair, a text of many bytes, nothing.
    texts = [b"word ", b"\\n", b'\\"}', b'\\"}\\n', b"\\ud83d", b"\\ude00", b"\\\\u", b"", b"x" * 5000, "é".encode()]
    draw = random.Random(5)
    for _ in range(30):
        events = [
            b'%b%b"}' % (draw.choice(heads[:1] * 9 + heads), draw.choice(texts[:1] * 5 + texts)) for _ in range(40)
        ]
        events.insert(
            draw.randrange(40), b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"y","metadata":{"k":"v"}}'
        )
        starts = [
            b'{"type":"TEXT_MESSAGE_START","messageId":"%b","role":"assistant"}' % name for name in (b"m", b"other")
        ]
        ends = [b'{"type":"TEXT_MESSAGE_END","messageId":"%b"}' % name for name in (b"m", b"other")]
        found: list[Any] = []
        for size in (1, 100):
            store = MemoryStore()
            await store.open()
            lease = await begin_run(store, agent_input("r1", user("u1", "x")))
            log = [*starts, *events, *ends]
            for at in range(0, len(log), size):
                await store.write(lease, RunChange(events=log[at : at + size]))
            view = await Threads(store, warn=ignore).at(SCOPE, THREAD)
            found.append((view.conversation, view.last))
            await store.close()
        assert found[0] == found[1]
        assert len(found[0][0].messages) == 3
