"""Plan a resume: which answers are accepted, which interrupts they cover, and which runs are replayed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from builders import text_message, user
from stores.stored_threads import (
    SCOPE,
    THREAD,
    agent_input,
    append_events,
    begin_run,
    make_interrupt,
    resume_entry,
    runs_of,
    write_run,
)

from aguila.errors import InterruptTaken, StoreError, ThreadBusy
from aguila.protocol import RunErrorEvent, RunFinishedCancelledOutcome, RunFinishedEvent
from aguila.server.config.errors import Rejected
from aguila.server.config.options import Settings
from aguila.server.threads.cache import Threads
from aguila.server.threads.interrupts.plan import ResumePlan, find_open_interrupts, plan_resume
from aguila.server.threads.interrupts.resume_chain import FailedAttempts
from aguila.store import RunChange, Store

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000.0


async def plan(store: Store, input: Any, **options: Any) -> ResumePlan:
    settings = Settings(history=options.pop("history", "client"))
    options = {"now": NOW, "scope": SCOPE, **options}
    return await plan_resume(input, settings, store=store, threads=Threads(store), **options)


async def refusal(store: Store, input: Any, **options: Any) -> tuple[int, str, str | None]:
    with pytest.raises(Rejected) as caught:
        await plan(store, input, **options)
    return caught.value.status, caught.value.code, caught.value.path


def resuming(run_id: str, *entries: Any, **fields: Any) -> Any:
    return agent_input(run_id, resume=list(entries), **fields)


# Coverage


async def test_a_run_that_continues_nothing_needs_no_plan(open_store: Store) -> None:
    for _ in range(2):
        made = await plan(open_store, agent_input("r2", user("u1")))
        assert made == ResumePlan(
            claims=[], contested=[], waiting=frozenset(), replay=None, root_run_id="r2", original_input=None, notices=[]
        )
        if not await runs_of(open_store):
            await write_run(open_store, agent_input("r1", user("u1")))


async def test_every_open_interrupt_has_to_be_covered_int_8(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1"), outcome=[make_interrupt("i1"), make_interrupt("i2")])
    for sent in (agent_input("r2", user("u2")), resuming("r2"), resuming("r2", resume_entry("i1"))):
        assert await refusal(open_store, sent) == (422, "interrupt_uncovered", "/resume")
    with pytest.raises(Rejected, match="'i2'") as caught:
        await plan(open_store, resuming("r2", resume_entry("i1")))
    assert "'i1'" not in caught.value.message
    made = await plan(open_store, resuming("r2", resume_entry("i1"), resume_entry("i2", status="cancelled")))
    assert made.claims == ["i1", "i2"]


async def test_a_failed_resume_leaves_the_interrupt_open_and_answerable_int_15(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1"), outcome=[make_interrupt("i1")])
    await write_run(open_store, resuming("r2", resume_entry("i1")), claims=["i1"], outcome="error")
    assert await refusal(open_store, agent_input("r3", user("u3"))) == (422, "interrupt_uncovered", "/resume")
    assert (await plan(open_store, resuming("r3", resume_entry("i1")))).claims == ["i1"]


async def test_after_a_cancelled_run_the_next_one_is_ordinary_but_may_still_answer_life_10(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1"), outcome=[make_interrupt("i1"), make_interrupt("i2")])
    both = [resume_entry("i1"), resume_entry("i2")]
    await write_run(open_store, resuming("r2", *both), claims=["i1", "i2"], outcome="cancelled")
    assert (await plan(open_store, agent_input("r3", user("u3")))).claims == []
    assert (await plan(open_store, resuming("r3", *both))).claims == ["i1", "i2"]
    # A request that answers one interrupt answers all.
    assert await refusal(open_store, resuming("r3", resume_entry("i1"))) == (422, "interrupt_uncovered", "/resume")


async def test_the_branch_being_continued_decides_what_is_open_int_7(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1", user("u1")))
    await write_run(open_store, agent_input("r2", user("u2")), outcome=[make_interrupt("i1")])
    # A run that continues from before the question leaves it open.
    assert (await plan(open_store, agent_input("r3", user("u3"), parent_run_id="r1"))).claims == []
    await write_run(open_store, agent_input("r3", user("u3"), parent_run_id="r1"))
    assert (await plan(open_store, agent_input("r4", user("u4")))).claims == []
    assert await refusal(open_store, resuming("r4", resume_entry("i1"))) == (422, "interrupt_foreign", "/resume/0")
    assert await refusal(open_store, agent_input("r4", parent_run_id="r2")) == (422, "interrupt_uncovered", "/resume")
    assert (await plan(open_store, resuming("r4", resume_entry("i1"), parent_run_id="r2"))).claims == ["i1"]


async def test_open_interrupts_are_those_that_the_path_left_open_and_no_run_has_used(open_store: Store) -> None:
    threads = Threads(open_store)

    async def waiting(run_id: str | None = None) -> list[str]:
        found = await find_open_interrupts(open_store, SCOPE, await threads.at(SCOPE, THREAD, run_id))
        return [interrupt.id for interrupt in found]

    await write_run(open_store, agent_input("r0"))
    await write_run(open_store, agent_input("r1"), outcome=[make_interrupt("i1"), make_interrupt("i2")])
    assert await waiting() == ["i1", "i2"]
    assert await waiting("r0") == []
    both = [resume_entry("i1"), resume_entry("i2")]
    await write_run(open_store, resuming("r2", *both), claims=["i1", "i2"], settled=["i1"], outcome="error")
    assert await waiting() == ["i2"]
    await write_run(open_store, resuming("r3", *both), claims=["i2"])  # a success that has settled nothing
    assert await waiting() == []


# Entries that do not count


async def test_an_answer_that_was_used_is_stale(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1"), outcome=[make_interrupt("i1")])
    await write_run(open_store, resuming("r2", resume_entry("i1")), claims=["i1"], settled=["i1"])
    assert await refusal(open_store, resuming("r3", resume_entry("i1"))) == (409, "interrupt_stale", "/resume/0")


async def test_an_answer_that_was_used_by_a_run_that_failed_is_tried_again_or_given_up(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1"), outcome=[make_interrupt("int_1")])
    await write_run(
        open_store, resuming("r2", resume_entry("int_1", "yes")), claims=["int_1"], settled=["int_1"], outcome="error"
    )
    again = await plan(open_store, resuming("r3", resume_entry("int_1", "yes")))
    assert (again.claims, again.contested, again.is_retry, again.is_abandoned) == ([], ["int_1"], True, False)
    assert again.failed_attempts == FailedAttempts(asked_by="r1", run_ids=["r2"])
    assert again.replay is not None
    assert again.replay.current == again.replay.settled == {"int_1"}
    over = await plan(open_store, resuming("r3", resume_entry("int_1", status="cancelled")))
    assert (over.claims, over.contested, over.is_retry, over.is_abandoned) == ([], ["int_1"], False, True)
    assert [notice.rule for notice in over.notices] == ["INT-8"]
    assert await refusal(open_store, resuming("r3", resume_entry("int_1", "no"))) == (
        409,
        "interrupt_stale",
        "/resume/0",
    )
    assert (await plan(open_store, agent_input("r3", user("u3")))).claims == []


async def test_what_a_run_that_failed_used_is_stale_on_another_branch(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1"), outcome=[make_interrupt("int_1")])
    await write_run(
        open_store, resuming("r2", resume_entry("int_1")), claims=["int_1"], settled=["int_1"], outcome="error"
    )
    for entry in (resume_entry("int_1"), resume_entry("int_1", status="cancelled")):
        sent = resuming("r3", entry, parent_run_id="r1")
        assert await refusal(open_store, sent) == (409, "interrupt_stale", "/resume/0")


async def test_a_chain_goes_on_through_a_run_that_took_the_place_of_a_failed_one(open_store: Store) -> None:
    first = agent_input("r1", user("u1"))
    await write_run(open_store, first, outcome=[make_interrupt("int_1")])
    one = resume_entry("int_1", "one")
    await write_run(open_store, resuming("r2", one), claims=["int_1"], settled=["int_1"], outcome="error")
    await write_run(open_store, resuming("r3", one), outcome=[make_interrupt("int_2")])
    made = await plan(open_store, resuming("r4", resume_entry("int_2", "two")))
    assert (made.root_run_id, made.original_input, made.is_retry, made.failed_attempts) == ("r1", first, False, None)
    assert made.replay is not None
    assert {key: entry.payload for key, entry in made.replay.answers.items()} == {"int_1": "one", "int_2": "two"}
    assert (made.replay.current, made.replay.settled) == ({"int_2"}, frozenset())


async def test_an_answer_is_stale_once_the_conversation_has_gone_on(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1"), outcome=[make_interrupt("i1")])
    await write_run(open_store, resuming("r2", resume_entry("i1")), claims=["i1"])  # open again: nobody used it
    assert await refusal(open_store, resuming("r3", resume_entry("i1"))) == (409, "interrupt_stale", "/resume/0")


async def test_of_a_partly_used_list_the_first_answer_counts_and_the_rest_is_asked_again(open_store: Store) -> None:
    asked = [make_interrupt("int_1"), make_interrupt("int_2")]
    await write_run(open_store, agent_input("r1", user("u1")), outcome=asked)
    first = resuming("r2", resume_entry("int_1", "first"), resume_entry("int_2", "first"))
    await write_run(open_store, first, claims=["int_1", "int_2"], settled=["int_1"], outcome="error")
    made = await plan(open_store, resuming("r3", resume_entry("int_1", "second"), resume_entry("int_2", "second")))
    assert made.claims == ["int_2"]
    assert [notice.rule for notice in made.notices] == ["INT-14"]
    assert made.replay is not None
    assert {key: entry.payload for key, entry in made.replay.answers.items()} == {"int_1": "first", "int_2": "second"}
    assert (made.replay.current, made.replay.settled) == ({"int_1", "int_2"}, {"int_1"})
    assert (made.failed_attempts, made.is_retry) == (FailedAttempts(asked_by="r1", run_ids=["r2"]), False)


async def test_an_interrupt_of_another_thread_is_foreign(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1", thread_id="other"), outcome=[make_interrupt("i1")])
    for sent in (resuming("r2", resume_entry("i1")), resuming("r2", resume_entry("nobody's"), resume_entry("i1"))):
        path = f"/resume/{len(sent.resume) - 1}"
        assert await refusal(open_store, sent) == (422, "interrupt_foreign", path)


async def test_an_interrupt_of_a_thread_unused_for_long_is_foreign_too(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1", thread_id="old"), outcome=[make_interrupt("i1")])
    for number in range(60):
        await write_run(open_store, agent_input("r1", thread_id=f"newer {number}"))
    assert await refusal(open_store, resuming("r2", resume_entry("i1"))) == (422, "interrupt_foreign", "/resume/0")


async def test_what_another_scope_raised_was_never_raised(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1"), outcome=[make_interrupt("i1")], scope="other")
    await write_run(open_store, agent_input("r1", thread_id="third"), outcome=[make_interrupt("i2")], scope="other")
    made = await plan(open_store, resuming("r2", resume_entry("i1"), resume_entry("i2")))
    assert made.claims == []
    assert [(notice.rule, notice.path) for notice in made.notices] == [("INT-14", "/resume/0")]


async def test_an_entry_for_an_interrupt_never_raised_is_ignored_with_a_notice_int_14(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1"), outcome=[make_interrupt("i1")])
    made = await plan(open_store, resuming("r2", resume_entry("never"), resume_entry("i1")))
    assert made.claims == ["i1"]
    assert [(notice.rule, notice.path) for notice in made.notices] == [("INT-14", "/resume/0")]


async def test_two_entries_for_one_interrupt_are_refused(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1"), outcome=[make_interrupt("i1")])
    sent = resuming("r2", resume_entry("i1", True), resume_entry("i1", False))
    assert await refusal(open_store, sent) == (422, "interrupt_duplicate", "/resume/1")


# Expiry


@pytest.mark.parametrize(
    ("expires_at", "is_expired"),
    [
        ("2027-01-15T07:59:59Z", True),
        ("2027-01-15T08:00:00Z", True),
        ("2027-01-15T08:00:01Z", False),
        ("2027-01-15T08:00:00", True),
        ("2027-01-15T10:00:00+02:00", True),
        ("2027-01-15", True),
        ("2999-01-01T00:00:00Z", False),
        ("whenever", False),
        ("", False),
        ("0001-01-01T00:00:00+14:00", True),
        ("9999-12-31T23:59:59-14:00", False),
    ],
)
async def test_an_expired_interrupt_can_only_be_cancelled_int_9(
    open_store: Store, expires_at: str, is_expired: bool
) -> None:
    await write_run(open_store, agent_input("r1"), outcome=[make_interrupt("i1", expires_at=expires_at)])
    if is_expired:
        assert await refusal(open_store, resuming("r2", resume_entry("i1"))) == (422, "interrupt_expired", "/resume/0")
    else:
        assert (await plan(open_store, resuming("r2", resume_entry("i1")))).claims == ["i1"]
    assert (await plan(open_store, resuming("r2", resume_entry("i1", status="cancelled")))).claims == ["i1"]
    assert await refusal(open_store, agent_input("r2")) == (422, "interrupt_uncovered", "/resume")


# Schemas of answers

SCHEMA = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "a/b": {"type": "array", "items": {"type": "integer"}}},
    "required": ["approved"],
}


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        ({"approved": "yes"}, "/resume/0/payload/approved"),
        ({"approved": True, "a/b": [1, "2"]}, "/resume/0/payload/a~1b/1"),
        ({}, "/resume/0/payload"),
        (True, "/resume/0/payload"),
        (None, "/resume/0/payload"),
    ],
)
async def test_an_answer_must_be_what_the_schema_asks_for(open_store: Store, payload: Any, path: str) -> None:
    await write_run(open_store, agent_input("r1"), outcome=[make_interrupt("i1", response_schema=SCHEMA)])
    sent = resuming("r2", resume_entry("i1", payload))
    assert await refusal(open_store, sent) == (422, "interrupt_answer_invalid", path)
    assert (await plan(open_store, resuming("r2", resume_entry("i1", payload, "cancelled")))).claims == ["i1"]


async def test_a_right_answer_passes_and_one_without_schema_may_be_anything(open_store: Store) -> None:
    await write_run(
        open_store, agent_input("r1"), outcome=[make_interrupt("i1", response_schema=SCHEMA), make_interrupt("i2")]
    )
    payloads: list[Any] = [None, 0, "", [], {"x": "\ud83d"}]
    for payload in payloads:
        made = await plan(
            open_store, resuming("r2", resume_entry("i1", {"approved": False}), resume_entry("i2", payload))
        )
        assert made.claims == ["i1", "i2"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"$ref": "#/nowhere"},
        {"$ref": "http://127.0.0.1:9/never-fetched"},
        {"pattern": "("},
        {"$schema": "urn:unknown"},
        {"title": "\ud83d"},
    ],
)
async def test_a_broken_schema_is_the_agents_fault_and_refuses_no_answer(open_store: Store, schema: Any) -> None:
    await write_run(open_store, agent_input("r1"), outcome=[make_interrupt("i1", response_schema=schema)])
    made = await plan(open_store, resuming("r2", resume_entry("i1", {"any": "thing"})))
    assert made.claims == ["i1"]
    assert [notice.rule for notice in made.notices] == ["INT-4"]


async def test_half_an_emoji_in_an_answer_is_no_reason_to_fail(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1"), outcome=[make_interrupt("i1", response_schema={"type": "string"})])
    assert (await plan(open_store, resuming("r2", resume_entry("i1", "a\ud83d")))).claims == ["i1"]
    sent = resuming("r2", resume_entry("i1", ["\ud83d"]))
    assert await refusal(open_store, sent) == (422, "interrupt_answer_invalid", "/resume/0/payload")


# Replay


async def test_a_question_asked_with_ask_is_resumed_by_replay_from_the_input_it_began_with(open_store: Store) -> None:
    first = agent_input("r1", user("u1", "do it"), state={"n": 1})
    await write_run(open_store, first, outcome=[make_interrupt("int_1")])
    made = await plan(open_store, resuming("r2", resume_entry("int_1", "yes"), state={"n": 2}))
    assert made.root_run_id == "r1"
    assert made.original_input == first
    assert made.replay is not None
    assert made.replay.answers == {"int_1": resume_entry("int_1", "yes")}
    assert made.replay.current == {"int_1"}


async def test_an_agent_that_raises_interrupts_itself_is_not_replayed(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1"), outcome=[make_interrupt("mine")])
    made = await plan(open_store, resuming("r2", resume_entry("mine")))
    assert (made.claims, made.replay, made.original_input, made.root_run_id) == (["mine"], None, None, "r2")


async def test_a_chain_of_answers_is_replayed_from_its_root(open_store: Store) -> None:
    await write_run(open_store, agent_input("r0", user("u0")), text_message("a0", "before"))
    first = agent_input("r1", user("u1", "do it"))
    await write_run(open_store, first, outcome=[make_interrupt("int_1")])
    second = resuming("r2", resume_entry("int_1", "one"))
    await write_run(open_store, second, claims=["int_1"], settled=["int_1"], outcome=[make_interrupt("int_2")])
    # An attempt that failed before it used the answer is not part of the chain.
    await write_run(open_store, resuming("r3", resume_entry("int_2", "lost")), claims=["int_2"], outcome="error")
    fourth = resuming("r4", resume_entry("int_2", "two"))
    await write_run(open_store, fourth, claims=["int_2"], settled=["int_2"], outcome=[make_interrupt("int_3")])
    made = await plan(open_store, resuming("r5", resume_entry("int_3", "three")))
    assert made.root_run_id == "r1"
    assert made.original_input == first
    assert made.replay is not None
    payloads = {key: entry.payload for key, entry in made.replay.answers.items()}
    assert payloads == {"int_1": "one", "int_2": "two", "int_3": "three"}
    assert made.replay.current == {"int_3"}


async def test_a_new_question_after_an_ordinary_run_begins_a_chain_of_its_own(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1"), outcome=[make_interrupt("int_1")])
    await write_run(open_store, resuming("r2", resume_entry("int_1")), claims=["int_1"], settled=["int_1"])
    third = agent_input("r3", user("u3"))
    await write_run(open_store, third, outcome=[make_interrupt("int_3")])
    made = await plan(open_store, resuming("r4", resume_entry("int_3")))
    assert (made.root_run_id, made.original_input) == ("r3", third)
    assert made.replay is not None
    assert set(made.replay.answers) == {"int_3"}


async def test_an_unused_answer_is_not_replayed(open_store: Store) -> None:
    # The question changed: its answer was not used, and another question was asked.
    await write_run(open_store, agent_input("r1"), outcome=[make_interrupt("int_old")])
    await write_run(
        open_store,
        resuming("r2", resume_entry("int_old", "x")),
        claims=["int_old"],
        outcome=[make_interrupt("int_new")],
    )
    made = await plan(open_store, resuming("r3", resume_entry("int_new", "y")))
    assert made.root_run_id == "r1"
    assert made.replay is not None
    assert set(made.replay.answers) == {"int_new"}


async def test_a_replay_sees_what_its_first_run_saw_of_the_servers_history(open_store: Store) -> None:
    await write_run(open_store, agent_input("r0", user("u0"), state={"n": 1}), text_message("a0", "before"))
    await write_run(open_store, agent_input("r1", user("u1")), outcome=[make_interrupt("int_1")])
    made = await plan(open_store, resuming("r2", resume_entry("int_1")), history="server")
    assert made.original_input is not None
    assert [message.id for message in made.original_input.messages] == ["u0", "a0", "u1"]
    assert made.original_input.state == {"n": 1}


# Races


async def test_an_interrupt_that_a_run_is_answering_is_planned_and_marked_as_taken(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1"), outcome=[make_interrupt("i1")])
    lease = await begin_run(open_store, resuming("r2", resume_entry("i1")), claims=["i1"])
    made = await plan(open_store, resuming("r3", resume_entry("i1")))
    assert (made.claims, made.contested) == (["i1"], ["i1"])
    with pytest.raises(ThreadBusy):
        await begin_run(open_store, resuming("r3", resume_entry("i1")), claims=made.claims)
    # The other run ends, and the plan is made again.
    cancelled = RunFinishedEvent(thread_id=THREAD, run_id="r2", outcome=RunFinishedCancelledOutcome())
    await append_events(open_store, lease, [cancelled])
    made = await plan(open_store, resuming("r3", resume_entry("i1")))
    assert (made.claims, made.contested) == (["i1"], [])


async def test_of_racing_resumes_with_the_same_plan_one_begins(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1"), outcome=[make_interrupt("i1")])

    async def resume(number: int) -> str:
        sent = resuming(f"r2-{number}", resume_entry("i1", number))
        made = await plan(open_store, sent)
        try:
            lease = await begin_run(open_store, sent, claims=made.claims)
        except StoreError as error:
            return type(error).__name__
        await open_store.write(lease, RunChange(settles=made.claims))
        await append_events(open_store, lease, [RunErrorEvent(message="over")])
        return "began"

    outcomes = await asyncio.gather(*(resume(number) for number in range(8)), return_exceptions=True)
    assert outcomes.count("began") == 1
    lost = [outcome for outcome in outcomes if outcome != "began"]
    refused = [outcome for outcome in lost if isinstance(outcome, Rejected) and outcome.code == "interrupt_stale"]
    assert len(refused) + lost.count("ThreadBusy") + lost.count("InterruptTaken") == 7


async def test_a_plan_that_has_become_old_is_refused_by_the_store(open_store: Store) -> None:
    await write_run(open_store, agent_input("r1"), outcome=[make_interrupt("i1")])
    made = await plan(open_store, resuming("r2", resume_entry("i1")))
    await write_run(open_store, resuming("r3", resume_entry("i1")), claims=["i1"], settled=["i1"])
    with pytest.raises(InterruptTaken):
        await begin_run(open_store, resuming("r2", resume_entry("i1")), claims=made.claims)
