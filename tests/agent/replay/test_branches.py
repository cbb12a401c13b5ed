"""Agent branches that ask at the same time: a replay finds each of them again, in any order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from agent_threads import Outcome, Shelf, Thread
from waiting import DEADLINE, let_tasks_run, wait_until_async

from aguila.agent import RunInterrupt
from aguila.protocol import ResumeEntry, SubagentStartedEvent, ToolCallResultEvent, ToolCallStartEvent

pytestmark = pytest.mark.anyio


class AtOnce(Shelf):
    """Services that do not suspend, as those of a store in memory."""

    async def record(self, key: str, value: bytes) -> None:
        self.records.setdefault(key, value)

    async def settle(self, interrupt_ids: Sequence[str]) -> None:
        self.settled += interrupt_ids


@pytest.fixture(params=[Shelf, AtOnce], ids=["suspending", "at once"])
def thread(request: pytest.FixtureRequest) -> Thread:
    thread = Thread()
    thread.shelf = request.param()
    return thread


def message_texts(thread: Thread) -> list[Any]:
    return [each.content for each in thread.conversation.messages if each.content is not None]


def question_texts(outcome: Outcome) -> list[Any]:
    return [each.message for each in outcome.ending.interrupts]


async def chain(thread: Thread, agent: Any, *answers: Sequence[Any]) -> list[Outcome]:
    outcomes = [await thread.run(agent)]
    for some in answers:
        outcomes.append(await thread.resume(agent, *some))
    return outcomes


async def both(one: Any, two: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(one)
        group.create_task(two)


async def test_each_call_is_answered_under_the_id_it_was_shown_with(thread: Thread) -> None:
    async def agent(run: Any) -> None:
        async def branch(number: int) -> None:
            call = await run.tool_call("tool", {"n": number})
            await call.result(await run.ask(f"{number}?", key=str(number)))

        await both(branch(1), branch(2))

    first, second = await chain(thread, agent, ["A", "B"])
    results = [(event.tool_call_id, event.content) for event in second.of(ToolCallResultEvent)]
    shown = [event.tool_call_id for event in first.of(ToolCallStartEvent)]
    assert results == list(zip(shown, ["A", "B"], strict=True))
    assert second.of(ToolCallStartEvent) == []


async def test_each_subagent_and_text_goes_on_under_its_own_id(thread: Thread) -> None:
    async def agent(run: Any) -> None:
        async def branch(number: int) -> None:
            async with run.subagent(f"sub {number}") as sub, sub.text() as text:
                await text.write(f"question {number}, ")
                await text.write(await sub.ask(f"{number}?", key=str(number)))

        await both(branch(1), branch(2))
        await run.say("done")

    first, second = await chain(thread, agent, ["A", "B"])
    subs = [event.subagent_run_id for event in first.of(SubagentStartedEvent)]
    assert [interrupt.subagent_run_id for interrupt in first.ending.interrupts] == subs
    assert [event.subagent_run_id for event in second.of(SubagentStartedEvent)] == subs
    assert message_texts(thread) == ["question 1, A", "question 2, B", "done"]


async def test_branches_that_come_in_another_order_are_still_themselves(thread: Thread) -> None:
    first_to_come = iter([1, 2])

    async def agent(run: Any) -> None:
        first = next(first_to_come)

        async def branch(number: int) -> None:
            if number != first:
                await let_tasks_run(5)
            async with run.text() as text:
                await text.write(f"question {number}, ")
                await let_tasks_run(20)
                await text.write(await run.ask(f"{number}?"))

        named = (run.branch(str(number), branch, number) for number in (1, 2))
        results = await asyncio.gather(*named, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    first, _ = await chain(thread, agent, ["A", "B"])
    assert question_texts(first) == ["1?", "2?"]
    assert message_texts(thread) == ["question 1, A", "question 2, B"]


@pytest.mark.parametrize("how", ["plain", "wait_for", "task"])
async def test_a_question_asked_in_an_own_task_continues_in_the_branch_that_waits(thread: Thread, how: str) -> None:
    async def agent(run: Any) -> Any:
        async def ask(number: int) -> Any:
            question = run.ask(f"{number}?")
            if how == "wait_for":
                return await asyncio.wait_for(question, 60)
            return await (asyncio.create_task(question) if how == "task" else question)

        async def branch(number: int) -> None:
            await let_tasks_run(10 * number)
            await run.say(f"branch {number} got {await ask(number)}")

        named = (run.branch(str(number), branch, number) for number in (1, 3))
        results = await asyncio.gather(*named, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        await run.say("all")

    first, _ = await chain(thread, agent, ["A", "B"])
    assert question_texts(first) == ["1?", "3?"]
    assert message_texts(thread) == ["branch 1 got A", "branch 3 got B", "all"]


async def test_questions_without_keys_find_their_answers_in_every_branch(thread: Thread) -> None:
    async def agent(run: Any) -> None:
        async def interview(who: str) -> None:
            async with run.step(who):
                name = await run.ask(f"{who}: name?")
                await run.say(f"{who} is {name}, {await run.ask(f'{who}: age?')}")

        results = await asyncio.gather(*(run.branch(who, interview, who) for who in ("A", "B")), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    outcomes = await chain(thread, agent, ["Ada", "Bob"], [36, 40])
    assert [question_texts(each) for each in outcomes] == [["A: name?", "B: name?"], ["A: age?", "B: age?"], []]
    assert message_texts(thread) == ["A is Ada, 36", "B is Bob, 40"]


async def test_a_branch_that_was_stopped_before_it_asked_goes_on_where_it_was(thread: Thread) -> None:
    async def agent(run: Any) -> None:
        async def asks() -> None:
            await run.say("asker")
            await run.say(await run.ask("?"))

        async def talks() -> None:
            async with run.text() as text:
                for word in ("one ", "two ", "three ", "four"):
                    await text.write(word)
                    await asyncio.sleep(0)
            await run.say("talked")

        await both(run.branch("asks", asks), run.branch("talks", talks))
        await run.say("done")

    await chain(thread, agent, ["A"])
    assert sorted(message_texts(thread)) == ["A", "asker", "done", "one two three four", "talked"]


async def test_a_branch_that_takes_longer_than_the_one_with_the_answer_says_nothing_twice(thread: Thread) -> None:
    async def agent(run: Any) -> None:
        async def early() -> None:
            await run.say(f"early {await run.ask('1?')}")

        async def late() -> None:
            await run.say("late")
            await run.say(f"late {await run.ask('2?')}")

        async def slow() -> None:
            for number in range(30):
                await asyncio.sleep(0)
                if number % 10 == 0:
                    await run.say(f"slow {number}")

        await early()
        await asyncio.gather(run.branch("slow", slow), run.branch("late", late))

    await chain(thread, agent, ["A"], ["B"])
    assert sorted(message_texts(thread)) == ["early A", "late", "late B", "slow 0", "slow 10", "slow 20"]


async def test_what_a_parent_says_after_it_saw_a_question_of_its_child_does_not_count(thread: Thread) -> None:
    """The agent swallows the question: a replay sends other output there, and that is sent on."""

    async def agent(run: Any) -> None:
        await run.say("begin")
        (answer,) = await asyncio.gather(asyncio.create_task(run.ask("?")), return_exceptions=True)
        await run.say("nothing" if isinstance(answer, BaseException) else answer)

    await chain(thread, agent, ["A"])
    assert message_texts(thread) == ["begin", "nothing", "A"]


@pytest.mark.parametrize("key", [None, "name"])
async def test_a_task_that_first_writes_to_a_text_of_another_task_is_found_by_the_replay(
    thread: Thread, key: str | None
) -> None:
    async def agent(run: Any) -> None:
        async with run.text() as text:

            async def helper() -> str:
                await text.write("I need your name. ")
                call = await run.tool_call("look_up", {})
                name = await run.ask("Your name?", key=key)
                await call.result(name)
                return name

            name = await asyncio.wait_for(helper(), 60)
            await text.write(f"Hello {name}")

    first, second = await chain(thread, agent, ["Ann"])
    assert (question_texts(first), question_texts(second)) == (["Your name?"], [])
    assert message_texts(thread) == ["I need your name. Hello Ann", "Ann"]
    shown = [event.tool_call_id for event in first.of(ToolCallStartEvent)]
    assert [event.tool_call_id for event in second.of(ToolCallResultEvent)] == shown
    assert second.of(ToolCallStartEvent) == []


async def test_what_a_branch_failed_of_beside_a_question_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    thread = Thread()

    async def agent(run: Any) -> None:
        async def fails() -> None:
            raise ValueError("it broke")

        await both(run.ask("Really?"), fails())

    (first,) = await chain(thread, agent)
    assert question_texts(first) == ["Really?"]
    assert [record.exc_info[1].args for record in caplog.records if record.exc_info] == [("it broke",)]  # type: ignore[index, union-attr]


async def asks_in_tasks(run: Any, **options: Any) -> None:
    await both(run.ask("Go on?", **options), run.ask("Sure?", **options))


async def speaks_and_asks(run: Any) -> None:
    async def branch(number: int) -> None:
        await run.say(str(number))
        await asyncio.sleep(0)
        await run.ask("Go on?")

    await both(branch(1), branch(2))


async def asks_while_another_speaks(run: Any) -> None:
    async def speaks() -> None:
        await run.say("I speak")
        await asyncio.Event().wait()

    async def asks() -> None:
        await asyncio.sleep(0)
        await run.ask("Go on?")

    await both(speaks(), asks())


async def waits_for_answers(run: Any) -> None:
    async def branch(number: int) -> None:
        await run.say(str(number))
        await asyncio.sleep(0)
        await asyncio.wait_for(run.ask("Go on?"), 60)

    await asyncio.gather(branch(1), branch(2), return_exceptions=True)


async def asks_in_a_name_below_unnamed_tasks(run: Any) -> None:
    async def branch(number: int) -> None:
        await run.say(str(number))
        await asyncio.sleep(0)
        async with run.branch(str(number)):
            await run.ask("Go on?")

    await both(branch(1), branch(2))


async def approves_at_once(run: Any) -> None:
    async def branch(number: int) -> None:
        await run.approve("pay", {"amount": number})

    await both(branch(1), branch(2))


async def asks_several_at_once(run: Any) -> None:
    await both(run.ask_all(["1?", "2?"]), run.ask_all(["3?", "4?"]))


def asks_in_threads(run: Any) -> None:
    barrier = threading.Barrier(2)

    def job(number: int) -> None:
        run.say(str(number))
        barrier.wait(DEADLINE)
        run.ask("Go on?")

    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(job, number) for number in range(2)]
    for each in jobs:
        each.result()


@pytest.mark.parametrize(
    "agent",
    [
        asks_in_tasks,
        speaks_and_asks,
        asks_while_another_speaks,
        waits_for_answers,
        asks_in_a_name_below_unnamed_tasks,
        approves_at_once,
        asks_several_at_once,
        asks_in_threads,
    ],
)
async def test_a_question_of_an_unnamed_task_beside_others_says_how_to_name_it(
    agent: Any, thread: Thread, caplog: pytest.LogCaptureFixture
) -> None:
    refused = await thread.run(agent)
    assert refused.ending.outcome == "error"
    assert "run.branch('a name', function, ...)" in caplog.text
    assert "pass key=" in caplog.text


async def test_a_question_with_a_key_needs_no_name(thread: Thread) -> None:
    async def agent(run: Any) -> None:
        async def branch(number: int) -> None:
            await run.say(str(await run.ask("Go on?", key=str(number))))

        await both(branch(1), branch(2))

    await chain(thread, agent, ["A", "B"])
    assert message_texts(thread) == ["A", "B"]


async def test_branches_that_are_active_at_once_have_different_names(
    thread: Thread, caplog: pytest.LogCaptureFixture
) -> None:
    async def agent(run: Any) -> None:
        await both(run.branch("one", run.ask, "1?"), run.branch("one", run.ask, "2?"))

    assert (await thread.run(agent)).ending.outcome == "error"
    assert "run.branch('one') is already active here" in caplog.text


async def test_a_name_may_be_used_again_when_its_branch_has_ended(thread: Thread) -> None:
    async def agent(run: Any) -> None:
        for round_ in range(2):

            async def ask(who: str, round_: int) -> None:
                async with run.text() as text:
                    await text.write(f"{round_} {who} ")
                    await text.write(await run.ask("Well?"))

            await both(run.branch("a", ask, "a", round_), run.branch("b", ask, "b", round_))
        async with run.branch("a"):
            await run.say(await run.ask("Well?"))
        await run.say("end")

    await chain(thread, agent, ["A", "B"], ["C", "D"], ["E"])
    assert message_texts(thread) == ["0 a A", "0 b B", "1 a C", "1 b D", "E", "end"]


@pytest.mark.parametrize("name", ["", 7, None])
async def test_a_branch_needs_a_name_that_is_text(name: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def agent(run: Any) -> None:
        run.branch(name)

    assert (await Thread().run(agent)).ending.outcome == "error"
    assert "takes a name, which is a non-empty string" in caplog.text


async def test_a_branch_takes_a_function_rather_than_a_coroutine(caplog: pytest.LogCaptureFixture) -> None:
    async def agent(run: Any) -> None:
        question = run.ask("?")
        try:
            run.branch("one", question)
        finally:
            question.close()

    assert (await Thread().run(agent)).ending.outcome == "error"
    assert "takes a function and its arguments" in caplog.text


async def test_a_branch_gives_what_its_function_gives(thread: Thread) -> None:
    async def agent(run: Any) -> Any:
        async def double(number: int, *, and_then: int) -> int:
            return number * 2 + and_then

        return await run.branch("double", double, 4, and_then=1)

    assert (await thread.run(agent)).last.result == 9


async def test_a_question_that_is_caught_outside_of_its_scope_does_not_count(thread: Thread) -> None:
    async def agent(run: Any) -> None:
        answer = "nothing"
        try:
            async with run.branch("asks"):
                await run.say("begin")
                answer = await run.ask("?")
        except RunInterrupt:
            pass
        await run.say(answer)

    await chain(thread, agent, ["A"])
    assert message_texts(thread) == ["begin", "nothing", "A"]


async def test_what_a_generator_yields_in_a_scope_belongs_to_the_branch(thread: Thread) -> None:
    async def agent(run: Any) -> Any:
        yield "one "
        async with run.branch("asks"):
            yield "two "
            yield await run.ask("?")
        yield " end"

    await chain(thread, agent, ["A"])
    assert message_texts(thread) == ["one two A end"]


async def test_what_a_generator_in_a_thread_yields_in_a_scope_belongs_to_the_branch(thread: Thread) -> None:
    def agent(run: Any) -> Any:
        yield "one "
        with run.branch("asks"):
            yield "two "
            yield run.ask("?")
        yield " end"

    await chain(thread, agent, ["A"])
    assert message_texts(thread) == ["one two A end"]


async def test_the_same_question_in_one_task_after_another_has_an_answer_each(thread: Thread) -> None:
    async def agent(run: Any) -> None:
        for _ in range(3):
            await run.say(await asyncio.create_task(run.ask("Next?")))

    await chain(thread, agent, ["A"], ["B"], ["C"])
    assert message_texts(thread) == ["A", "B", "C"]


async def test_state_of_a_branch_that_is_behind_is_not_taken_back(thread: Thread) -> None:
    async def agent(run: Any) -> None:
        async def quick() -> None:
            await run.say(await run.ask("1?"))

        async def slow() -> None:
            for number in range(10):
                await asyncio.sleep(0)
                run.state[str(number)] = True
            await run.say("counted")
            await run.say(await run.ask("2?"))

        named = (run.branch("quick", quick), run.branch("slow", slow))
        results = await asyncio.gather(*named, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    _, second = await chain(thread, agent, ["A", "B"])
    assert [kind for kind in second.types if kind.startswith("STATE")] == []
    assert len(thread.conversation.state) == 10


async def test_a_run_that_is_cancelled_before_it_used_an_answer_leaves_its_branches_where_they_are(
    thread: Thread,
) -> None:
    runs: list[str] = []
    is_stuck = asyncio.Event()

    async def agent(run: Any) -> None:
        runs.append(run.run_id)

        async def asks() -> None:
            if len(runs) == 2:
                await asyncio.Event().wait()
            await run.say(await run.ask("?"))

        async def talks() -> None:
            await run.say("one")
            await asyncio.sleep(0)
            await run.say("two")
            if len(runs) == 2:
                is_stuck.set()
                await asyncio.Event().wait()
            await run.say("three")

        await both(run.branch("asks", asks), run.branch("talks", talks))

    first = await thread.run(agent)
    entry = ResumeEntry(interrupt_id=first.ending.interrupts[0].id, status="resolved", payload="A")
    task = asyncio.create_task(thread.resume_some(agent, [entry]))
    await wait_until_async(is_stuck.is_set)
    task.cancel()
    assert (await task).ending.outcome == "cancelled"
    assert (await thread.resume_some(agent, [entry])).ending.outcome == "success"
    assert sorted(message_texts(thread)) == ["A", "one", "three", "two"]


async def test_workers_of_a_pool_are_muted_each_for_itself(thread: Thread) -> None:
    def agent(run: Any) -> None:
        first_asked = threading.Event()

        def one() -> Any:
            try:
                return run.ask("1?")
            finally:
                first_asked.set()

        def two() -> Any:
            run.say("two is here")
            call = run.tool_call("tool", {})
            first_asked.wait(DEADLINE)
            answer = run.ask("2?")
            call.result(answer)
            return answer

        with ThreadPoolExecutor(2) as pool:
            jobs = [pool.submit(run.branch, "one", one), pool.submit(run.branch, "two", two)]
        run.say(f"all {[job.result() for job in jobs]}")

    first, second = await chain(thread, agent, ["A", "B"])
    (shown,) = first.of(ToolCallStartEvent)
    (result,) = second.of(ToolCallResultEvent)
    assert result.tool_call_id == shown.tool_call_id
    assert message_texts(thread) == ["two is here", "B", "all ['A', 'B']"]


async def test_the_jobs_of_one_worker_are_branches_of_their_own() -> None:
    """The workers take the jobs in another order in every run."""
    workers = iter([1, 3])

    def agent(run: Any) -> None:
        def job(number: int) -> Any:
            with run.branch(str(number)), run.text() as text:
                text.write(f"{number} asks, ")
                text.write(run.ask(f"{number}?"))

        with ThreadPoolExecutor(next(workers)) as pool:
            jobs = [pool.submit(job, number) for number in range(3)]
        for each in jobs:
            each.result()

    thread = Thread()
    await chain(thread, agent, ["A", "B", "C"])
    assert sorted(message_texts(thread)) == ["0 asks, A", "1 asks, B", "2 asks, C"]


async def test_a_thread_that_an_agent_leaves_behind_gets_an_error_after_the_run() -> None:
    told: list[BaseException] = []
    is_over, is_told = threading.Event(), threading.Event()

    def agent(run: Any) -> None:
        def late() -> None:
            is_over.wait()
            try:
                run.say("late")
            except BaseException as error:  # noqa: BLE001
                told.append(error)
            is_told.set()

        threading.Thread(target=late, daemon=True).start()
        run.say("done")

    thread = Thread()
    await thread.run(agent)
    is_over.set()
    assert is_told.wait(DEADLINE)
    assert [type(error) for error in told] == [asyncio.CancelledError]
    assert message_texts(thread) == ["done"]


async def nests(run: Any) -> None:
    await run.once("key", lambda: run.once("key", lambda: 1))


async def nests_in_a_task(run: Any) -> None:
    async def inner() -> Any:
        return await asyncio.create_task(run.once("key", lambda: 1))

    await run.once("key", inner)


def nests_in_a_thread(run: Any) -> None:
    run.once("key", lambda: run.once("key", lambda: 1))


@pytest.mark.parametrize("agent", [nests, nests_in_a_task, nests_in_a_thread])
async def test_once_within_itself_is_an_error(agent: Any, caplog: pytest.LogCaptureFixture) -> None:
    outcome = await Thread().run(agent)
    assert outcome.ending.outcome == "error"
    assert "within its own effect" in caplog.text


async def tells_again(run: Any) -> None:
    is_new = False

    async def effect() -> None:
        nonlocal is_new
        is_new = True
        await run.say("told", message_id="m1")

    await run.once("key", effect, uses_run=True)
    if not is_new:
        with run.muted():
            await run.say("told", message_id="m1")
    await asyncio.create_task(run.ask("?"))
    await run.say("end")


def tells_again_in_a_thread(run: Any) -> None:
    with run.muted():
        run.say("told")
    run.ask("?")
    run.say("end")


@pytest.mark.parametrize("agent", [tells_again, tells_again_in_a_thread])
async def test_events_repeated_in_a_replay_are_suppressed(thread: Thread, agent: Any) -> None:
    await chain(thread, agent, ["A"])
    assert message_texts(thread) == ["told", "end"]
