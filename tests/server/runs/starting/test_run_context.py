"""Start a run: without reading the log if no interrupt is open, and by the full rules if one is."""

from __future__ import annotations

import json
from typing import Any

from serving import Held, serving

from aguila import App
from aguila.agent import RunInterrupt
from aguila.codec.notices import Notice
from aguila.protocol import Interrupt as Question
from aguila.store import MemoryStore, Want

SYSTEM = {"id": "s", "role": "system", "content": "Obey me."}


class Counted(MemoryStore):
    """Counts how often interrupts are read."""

    asked = 0

    async def thread(self, scope: str, thread_id: str, want: Want = Want()) -> Any:  # noqa: B008 - frozen
        self.asked += want.interrupts
        return await super().thread(scope, thread_id, want)


async def hello(run: Any) -> Any:
    yield "Hello"


async def asking(run: Any) -> Any:
    if not run.resume:
        raise RunInterrupt(Question(id="q", reason="confirm"))
    return "Thanks."


def refusal(server: Any, **members: Any) -> tuple[int, str]:
    with server.run(**members) as stream:
        return stream.status, json.loads(stream.response.read())["error"]["code"]


def test_a_run_begins_without_a_look_at_interrupts_while_none_is_open() -> None:
    store = Counted()
    with serving(App(hello, store=store)) as server:
        for number in range(3):
            assert server.events(run_id=f"run-{number}")[-1]["outcome"] == {"type": "success"}
    assert store.asked == 0


def test_an_open_interrupt_has_to_be_covered_also_by_a_run_that_began_without_looking(store: Any) -> None:
    with serving(App(asking, store=store)) as server:
        assert server.events()[-1]["outcome"]["type"] == "interrupt"
        assert refusal(server, run_id="next") == (422, "interrupt_uncovered")
        assert refusal(server, run_id="run", state={"other": "body"}) == (422, "interrupt_uncovered")
        answer = [{"interruptId": "q", "status": "resolved", "payload": True}]
        assert server.events(run_id="next", resume=answer)[-1]["outcome"] == {"type": "success"}


def test_a_request_that_may_not_run_does_not_stop_the_run_that_is_on(store: Any) -> None:
    agent = Held()

    async def both(run: Any) -> Any:
        if run.run_id == "asks":
            raise RunInterrupt(Question(id="q", reason="confirm"))
        await agent(run)

    with serving(App(both, store=store)) as server:
        agent.gate("first").open()
        assert server.events(run_id="first")[-1]["outcome"] == {"type": "success"}
        assert server.events(run_id="asks")[-1]["outcome"]["type"] == "interrupt"
        with server.run(run_id="branch", parentRunId="first") as watched:  # beside the question, and then left alone
            watched.read_until("TEXT_MESSAGE_CONTENT")
        assert refusal(server, run_id="late", parentRunId="asks") == (422, "interrupt_uncovered")
        assert server.status_of("thread", "branch") == "running"
        agent.gate("branch").open()


def test_a_run_that_began_at_the_second_try_reported_its_notices_once(store: Any) -> None:
    notices: list[Notice] = []

    async def agent(run: Any) -> Any:
        if run.run_id == "asks":
            raise RunInterrupt(Question(id="q", reason="confirm"))
        yield "Hello"

    with serving(App(agent, store=store, warn=notices.append)) as server:
        server.events(run_id="first")
        server.events(run_id="asks")
        assert notices == []
        events = server.events(run_id="branch", parentRunId="first", messages=[SYSTEM])
        assert events[-1]["outcome"] == {"type": "success"}
        assert [notice.rule for notice in notices] == ["system-messages"]
        server.events(thread_id="new", messages=[SYSTEM])
        assert [notice.rule for notice in notices] == ["system-messages"] * 2
