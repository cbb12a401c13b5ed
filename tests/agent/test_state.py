"""``run.state``: every change is sent, as a small patch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from agent_threads import ListSink, Outcome, Thread, run_agent
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import wait_until_async

from aguila.agent import output as output_module
from aguila.agent import state as shared_state
from aguila.errors import EncodeError, IllegalStep
from aguila.protocol import StateDeltaEvent, StateSnapshotEvent
from aguila.stream.json_values import json_equal
from aguila.stream.writer import EventWriter

pytestmark = pytest.mark.anyio


async def final_state(agent: Any, state: Any = None) -> tuple[Any, Outcome]:
    async def main() -> tuple[Any, Outcome]:
        thread = Thread(state=state)
        outcome = await thread.run(agent)
        return thread.conversation.state, outcome

    return await main()


async def test_a_change_in_place_is_a_delta_against_the_inputs_state() -> None:
    async def agent(run: Any) -> None:
        run.state["count"] = 1
        await run.say("hello")
        run.state["items"].append("b")

    state, outcome = await final_state(agent, {"items": ["a"], "long": "x" * 200})
    assert state == {"items": ["a", "b"], "long": "x" * 200, "count": 1}
    assert [event.delta for event in outcome.of(StateDeltaEvent)] == [
        [{"op": "add", "path": "/count", "value": 1}],
        [{"op": "add", "path": "/items/1", "value": "b"}],
    ]
    assert outcome.types.index("STATE_DELTA") < outcome.types.index("TEXT_MESSAGE_START")


async def test_an_assigned_state_that_is_shorter_than_its_patch_is_a_snapshot() -> None:
    async def agent(run: Any) -> None:
        run.state = [1]

    state, outcome = await final_state(agent, {"a": 1, "b": 2})
    assert state == [1]
    assert [event.snapshot for event in outcome.of(StateSnapshotEvent)] == [[1]]


@pytest.mark.parametrize("value", [None, 0, False, "", [], {}])
async def test_every_json_value_is_a_state(value: Any) -> None:
    async def agent(run: Any) -> None:
        run.state = value

    state, _ = await final_state(agent, {"a": 1})
    assert json_equal(state, value)


async def test_a_state_that_is_only_read_sends_nothing() -> None:
    async def agent(run: Any) -> Any:
        yield str(run.state["a"])
        run.state["a"] = run.state["a"]

    assert "STATE_DELTA" not in (await final_state(agent, {"a": 1}))[1].types


async def test_true_and_one_are_different() -> None:
    async def agent(run: Any) -> None:
        run.state["a"] = True

    assert (await final_state(agent, {"a": 1}))[0]["a"] is True


async def test_the_last_change_is_sent_before_the_end_on_every_path() -> None:
    async def fails(run: Any) -> Any:
        yield "a"
        run.state["n"] = 1
        raise ValueError

    async def asks(run: Any) -> Any:
        yield "a"
        run.state["n"] = 1
        await run.ask("?")

    def plain(run: Any) -> Any:
        yield "a"
        run.state["n"] = 1

    for agent in (fails, asks, plain):
        assert (await final_state(agent))[0] == {"n": 1}, agent


async def test_a_change_during_deltas_is_sent_at_most_every_20_ms(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(shared_state.time, "monotonic", lambda: now)
    monkeypatch.setattr(shared_state.time, "thread_time", lambda: 0.0)  # a costly comparison makes the pause longer

    async def agent(run: Any) -> None:
        nonlocal now
        run.state["n"] = 0
        async with run.text() as text:
            for n in range(1, 101):
                run.state["n"] = n
                now += 1 / 128
                await text.write(".")

    outcome = await run_agent(agent)
    changes = [event.delta[0]["value"] for event in outcome.of(StateDeltaEvent)]
    assert changes == [0, *range(3, 101, 3), 100]


async def test_a_patch_of_the_agents_own_changes_both_sides_and_is_not_sent_again() -> None:
    async def agent(run: Any) -> None:
        state = run.state
        value = {"deep": [1]}
        await run.patch_state([{"op": "add", "path": "/a", "value": value}])
        assert run.state is state
        assert state["a"] == {"deep": [1]}
        value["deep"].append(2)
        state["a"]["deep"].append(3)
        await run.say("x")

    state, outcome = await final_state(agent)
    assert state == {"a": {"deep": [1, 3]}}
    assert len(outcome.of(StateDeltaEvent)) == 2


async def test_a_patch_that_does_not_apply_changes_nothing() -> None:
    async def agent(run: Any) -> None:
        with pytest.raises(IllegalStep, match="SNAP-9"):
            await run.patch_state([{"op": "remove", "path": "/nothing"}])
        assert run.state == {"a": 1}

    assert (await final_state(agent, {"a": 1}))[1].types == ["RUN_STARTED", "RUN_FINISHED"]


async def test_patches_do_not_compare_a_state_that_was_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("compared")

    monkeypatch.setattr(shared_state.SharedState, "_encoded", refuse)

    async def agent(run: Any) -> None:
        for n in range(10):
            await run.patch_state([{"op": "add", "path": "/n", "value": n}])
            await run.say("x")

    assert (await final_state(agent))[0] == {"n": 9}


async def test_a_state_event_that_the_agent_yields_is_the_state_it_sees() -> None:
    async def agent(run: Any) -> Any:
        run.state["a"] = 1
        yield StateSnapshotEvent(snapshot={"b": 1})
        assert run.state == {"b": 1}
        yield StateDeltaEvent(delta=[{"op": "add", "path": "/c", "value": 1}])
        run.state["d"] = run.state["c"] + 1

    assert (await final_state(agent))[0] == {"b": 1, "c": 1, "d": 2}


async def test_a_state_that_is_not_json_is_refused_where_it_is_sent_with_a_path() -> None:
    async def agent(run: Any) -> str:
        run.state["a"] = {"b": [1, {2, 3}]}
        with pytest.raises(EncodeError) as caught:
            await run.say("x")
        assert caught.value.path == "/a/b/1"
        del run.state["a"]
        return "repaired"

    assert (await final_state(agent))[1].text == "repaired"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab/~", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None)
@given(start=json_values, states=st.lists(json_values, max_size=5), in_a_thread=st.booleans())
async def test_the_client_always_ends_with_the_agents_state(start: Any, states: list[Any], in_a_thread: bool) -> None:
    async def on_the_loop(run: Any) -> Any:
        for state in states:
            run.state = copy.deepcopy(state)
            yield "x"
            if isinstance(run.state, dict):
                run.state["late"] = [1]
            elif isinstance(run.state, list):
                run.state.append({"late": 1})

    def plain(run: Any) -> Any:
        for state in states:
            run.state = copy.deepcopy(state)
            yield "x"
            if isinstance(run.state, dict):
                run.state["late"] = [1]
            elif isinstance(run.state, list):
                run.state.append({"late": 1})

    expected: Any = {} if start is None else start
    if states:
        expected = copy.deepcopy(states[-1])
        if isinstance(expected, dict):
            expected["late"] = [1]
        elif isinstance(expected, list):
            expected.append({"late": 1})
    state, _ = await final_state(plain if in_a_thread else on_the_loop, start)
    assert json_equal(state, expected)


class Roomy(ListSink):
    """A sink that has room, so that nothing waits for it."""

    is_full = False


def states(sink: Any) -> list[Any]:
    """Return the values of ``n`` that were sent."""
    return [
        operation["value"] for event in sink.events if isinstance(event, StateDeltaEvent) for operation in event.delta
    ]


async def test_changes_are_sent_while_the_agent_waits_for_something_else() -> None:
    """Only the last value of a loop with other awaits was sent."""
    sink = Roomy()
    thread = Thread()
    thread.new_sink = lambda: sink

    async def agent(run: Any) -> None:
        for n in range(1, 4):
            run.state["n"] = n
            await wait_until_async(lambda n=n: states(sink)[-1:] == [n])

    outcome = await thread.run(agent)
    assert outcome.ending.outcome == "success"
    assert states(sink) == [1, 2, 3]
    assert thread.conversation.state == {"n": 3}


async def test_flush_sends_changes_at_once() -> None:
    async def agent(run: Any) -> None:
        for n in range(3):
            run.state["n"] = n
            await run.flush()
        await run.flush()

    def in_thread(run: Any) -> None:
        for n in range(3):
            run.state["n"] = n
            run.flush()

    for each in (agent, in_thread):
        outcome = await run_agent(each)
        assert [one.delta[0]["value"] for one in outcome.of(StateDeltaEvent)] == [0, 1, 2]


def test_the_pause_between_comparisons_grows_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 100.0
    monkeypatch.setattr(shared_state.time, "monotonic", lambda: clock)
    monkeypatch.setattr(shared_state.time, "thread_time", lambda: 0.0)
    pauses: list[float] = []

    class Loop:
        """A loop whose timers are run by hand."""

        def call_later(self, delay: float, call: Any) -> Any:
            nonlocal clock
            pauses.append(delay)
            clock += delay
            self.next = call
            return self

        def call_soon_threadsafe(self, call: Any) -> None:
            call()

        def cancel(self) -> None: ...

    loop: Any = Loop()

    class Out:
        """A replacement for the output of a run."""

        def __init__(self) -> None:
            writer = EventWriter("t", "r", new_id=lambda: "x", state={})
            writer.start()
            self.writer = writer
            self.state = shared_state.SharedState(writer)
            self.is_over = False
            self.failure = None

        def sample_state(self) -> bool:
            return bool(self.state.changes(self.writer))

    out: Any = Out()
    out.state.value["n"] = 0
    shared_state.StateSampler(out, loop)
    loop.next()
    for _ in range(6):
        loop.next()
    assert pauses == pytest.approx([0.02, 0.02, 0.04, 0.08, 0.16, 0.25, 0.25, 0.25])
    out.state.value["n"] = 1
    loop.next()
    assert pauses[-1] == pytest.approx(0.02)


def test_an_expensive_comparison_makes_the_pause_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = iter([0.0, 0.01])
    monkeypatch.setattr(shared_state.time, "thread_time", lambda: next(spent))
    writer = EventWriter("t", "r", new_id=lambda: "x", state={})
    writer.start()
    state = shared_state.SharedState(writer)
    state.value["n"] = 1
    assert state.changes(writer) != []
    assert state.pause == pytest.approx(0.5)


async def test_an_agent_in_a_thread_sends_changes_at_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_state, "MIN_PAUSE", 0.0)
    monkeypatch.setattr(shared_state, "_COST_FACTOR", 0)

    def agent(run: Any) -> None:
        for n in range(3):
            run.state["n"] = n
            run.new_id("thing")  # a call that sends nothing itself

    outcome = await run_agent(agent)
    assert [one.delta[0]["value"] for one in outcome.of(StateDeltaEvent)] == [0, 1, 2]


async def test_a_state_that_is_not_json_while_the_agent_waits_fails_the_run_at_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sampled: list[None] = []
    real = output_module.Output.sample_state

    def sample(self: Any) -> bool:
        sampled.append(None)
        return real(self)

    thread = Thread()
    thread.new_sink = Roomy

    async def agent(run: Any) -> None:
        run.state["n"] = object()
        await wait_until_async(lambda: sampled)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output_module.Output, "sample_state", sample)
        outcome = await thread.run(agent)
    assert outcome.ending.outcome == "error"
    assert "/n" in caplog.text
