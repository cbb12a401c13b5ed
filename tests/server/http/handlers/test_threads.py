"""The routes of threads: list, read, delete, join, history."""

from __future__ import annotations

import json
import random
import re
import time
from typing import Any

import pytest
from builders import user_json
from cpu_bounds import allowed, frozen_heap
from in_process import Reader, Slices
from serving import Held, check_valid, run_input, serving, text_of, types
from waiting import wait_until

from aguila import App
from aguila.codec import decode, encode
from aguila.errors import StoreUnavailable
from aguila.server import Limits, Principal, Quota, Request, Sends, Timing
from aguila.server.runs import maintenance
from aguila.store import MemoryStore, Retention, ThreadFilter, ThreadPage
from aguila.stream import Lineage


async def echo(run: Any) -> Any:
    last = run.messages[-1].content if run.messages else "nothing"
    yield f"{len(run.messages)}: {last}"


def test_threads_are_listed_in_pages_last_updated_first(store: Any) -> None:
    with serving(App(echo, store=store, allow_anonymous=True)) as server:
        for i in range(5):
            server.events(thread_id=f"t{i}")
        server.events(thread_id="t1", run_id="again")
        seen: list[str] = []
        before = ""
        while True:
            page = server.get(f"/threads?limit=2{before}").json()
            seen += [one["threadId"] for one in page["threads"]]
            if page["next"] is None:
                break
            before = f"&before={page['next']}"
        assert seen == ["t1", "t4", "t3", "t2", "t0"]
        first = server.get("/threads?limit=1").json()["threads"][0]
        assert (first["runs"], first["isRunning"]) == (2, False)
        page = server.get("/threads?limit=2").json()
        assert server.client.delete(f"/threads/{page['threads'][-1]['threadId']}").status_code == 204
        rest = server.get(f"/threads?before={page['next']}").json()["threads"]
        assert [one["threadId"] for one in rest] == ["t3", "t2", "t0"]  # whatever became of the thread it ended with


def test_a_run_is_compacted_some_time_after_its_end(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "PRUNE_INTERVAL", 0.0)

    async def agent(run: Any) -> Any:
        for number in range(40):
            yield f"{number} "

    retention = Retention(compact_after=0.0)
    with serving(
        App(agent, store=store, retention=retention, timing=Timing(lease=0.5), sends=Sends(merge_deltas=False))
    ) as server:
        server.events(run_id="r1", messages=[user_json("u1", "Hello")])
        before = server.get("/threads/thread").json()
        route = "/threads/thread/runs/r1/events?protocolVersion=1.1"
        wait_until(lambda: server.get(route).text.count("data: ") == 5)
        after = server.get("/threads/thread").json()
        assert after == before
        (run,) = after["runs"]
        ids = [int(text) for text in re.findall(r"^id: (\d+)-.{8}$", server.get(route).text, re.MULTILINE)]
        assert ids == list(range(run["last"] - 4, run["last"] + 1))
        for cursor in (run["first"], run["last"] - 1):
            assert server.client.get(f"{route}&after={cursor}").status_code == 410
        assert server.get(f"{route}&after={run['last']}").text == ""
        check_valid(server.events(run_id="r2", messages=[*after["messages"], user_json("u2", "Again")]))


@pytest.mark.parametrize("route", ["/threads/thread/events", "/threads/thread/runs/r1/events"])
def test_events_can_be_read_with_the_times_of_their_batches(store: Any, route: str) -> None:
    start = int(time.time() * 1000)
    with serving(App(echo, store=store)) as server:
        server.events(run_id="r1")
        plain = server.get(f"{route}?protocolVersion=1.1").text
        answer = server.get(f"{route}?protocolVersion=1.1&times=true").text
        times = [int(text) for text in re.findall(r"^: time=(\d+)$", answer, re.MULTILINE)]
        assert times == sorted(times)
        assert start <= times[0] <= times[-1] <= time.time() * 1000
        assert re.sub(r": time=\d+\n\n", "", answer) == plain
        resumed = server.get(f"{route}?protocolVersion=1.1&times=true&after=1").text
        assert resumed.startswith(": time=")
        assert "id: 1-" not in resumed
        for query, headers in (
            ("times=1", {}),
            ("times=true&compact=true", {}),
            ("times=true", {"accept": "application/vnd.ag-ui.event+proto"}),
        ):
            refused = server.client.get(f"{route}?{query}", headers=headers)
            assert (refused.status_code, refused.json()["error"]["path"]) == (422, "/times")


def test_a_new_run_is_sent_with_the_times_of_the_log(store: Any) -> None:
    def times_of(text: str) -> list[str]:
        time, found = "", list[str]()
        for line in text.splitlines():
            time = line if line.startswith(": time=") else time
            found += [time] if line.startswith("data: ") else []
        return found

    with serving(App(echo, store=store)) as server:
        answer = server.client.post("/?times=true", json=run_input(run_id="r1"))
        assert answer.text.startswith(": time=")
        stored = server.get("/threads/thread/runs/r1/events?protocolVersion=1.1&times=true").text
        assert times_of(answer.text) == times_of(stored)
        protobuf = {"accept": "application/vnd.ag-ui.event+proto"}
        refused = server.client.post("/?times=true", json=run_input(run_id="r2"), headers=protobuf)
        assert (refused.status_code, refused.json()["error"]["path"]) == (422, "/times")


def test_a_thread_shows_messages_state_interrupts_and_what_they_cover(store: Any) -> None:
    async def agent(run: Any) -> None:
        run.state["step"] = 1
        await run.say("May I?")
        await run.ask("Send it?", schema={"type": "boolean"})

    with serving(App(agent, store=store)) as server:
        events = server.events(messages=[user_json("u1", "Hello")])
        found = server.get("/threads/thread").json()
        assert [message["content"] for message in found["messages"]] == ["Hello", "May I?"]
        assert found["state"] == {"step": 1}
        assert found["interrupts"] == events[-1]["outcome"]["interrupts"]
        assert found["last"] == len(events)
        assert [run["status"] for run in found["runs"]] == ["interrupt"]


def test_a_thread_is_deleted_whole_but_not_while_a_run_is_on(store: Any) -> None:
    agent = Held()
    with serving(App(agent, store=store, allow_anonymous=True)) as server:
        with server.run() as stream:
            stream.read_until("TEXT_MESSAGE_CONTENT")
            answer = server.delete("/threads/thread")
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "thread_busy")
            agent.gate("run").open()
            stream.rest()
        assert server.delete("/threads/thread").status_code == 204
        assert server.get("/threads/thread").status_code == 404
        assert server.get("/threads/thread/events").status_code == 404
        agent.gate("run").open()
        assert server.events()[0]["type"] == "RUN_STARTED"  # the id is free again


def test_the_files_of_a_thread_that_never_ran_go_with_it_and_others_by_themselves(store: Any) -> None:
    with serving(App(echo, store=store, allow_anonymous=True)) as server:
        given = server.post("/files?threadId=thread", content=b"1").json()["id"]
        free = server.post("/files", content=b"2").json()["id"]
        assert server.delete("/threads/thread").status_code == 204
        assert server.delete("/threads/thread").status_code == 404
        assert server.get(f"/files/{given}").status_code == 404
        assert server.get(f"/files/{free}").status_code == 200
        assert server.delete(f"/files/{free}").status_code == 204
        assert server.delete(f"/files/{free}").status_code == 404


def test_a_full_store_is_not_healthy() -> None:
    agent = Held()
    with serving(App(agent, store=MemoryStore(max_threads=1), drain=0.1)) as server, server.run() as stream:
        stream.read_until("TEXT_MESSAGE_CONTENT")
        with server.run(thread_id="second") as second:
            assert second.status == 503
        assert server.get("/readyz").status_code == 503
        agent.gate("run").open()
        stream.rest()
        wait_until(lambda: server.get("/readyz").status_code == 200)  # the check before it counts for a second


def test_the_status_of_a_run_has_its_place_in_the_log(store: Any) -> None:
    with serving(App(echo, store=store)) as server:
        count = len(server.events(run_id="a"))
        server.events(run_id="b", parentRunId="a")
        found = server.get("/threads/thread/runs/b").json()
        assert (found["parentRunId"], found["status"]) == ("a", "success")
        assert (found["first"], found["last"]) == (count + 1, 2 * count)
        assert found["startedAt"] <= found["endedAt"]


# Joining


def test_connecting_to_a_finished_thread_restates_it_and_ends(store: Any) -> None:
    with serving(App(echo, store=store)) as server:
        server.events(messages=[user_json("u1", "Hello")], state={"a": 1})
        with server.run(path="/connect", run_id="visitor") as stream:
            events = stream.rest()
        check_valid(events)
        assert events[0]["type"] == "RUN_STARTED"
        snapshot = next(event for event in events if event["type"] == "MESSAGES_SNAPSHOT")
        assert [message["content"] for message in snapshot["messages"]] == ["Hello", "1: Hello"]
        assert next(event for event in events if event["type"] == "STATE_SNAPSHOT")["snapshot"] == {"a": 1}
        assert events[-1]["type"] == "RUN_FINISHED"
        assert server.get("/threads/thread/runs/visitor").status_code == 404  # a hydration is not a run


def test_connecting_to_a_running_thread_restates_it_and_follows_it_to_its_end(store: Any) -> None:
    agent = Held()
    with serving(App(agent, store=store)) as server, server.run() as first:
        first.read_until("TEXT_MESSAGE_CONTENT")
        with server.run(path="/connect", run_id="visitor") as stream:
            events = [stream.next_event()]
            while events[-1]["type"] != "TEXT_MESSAGE_START":
                events.append(stream.next_event())
            agent.gate("run").open()
            events += stream.rest()
        check_valid(events)
        snapshot = next(event for event in events if event["type"] == "MESSAGES_SNAPSHOT")
        assert snapshot["messages"][-1]["content"] == "one"
        assert text_of(events) == "two"
        assert (events[-1]["type"], events[-1]["runId"]) == ("RUN_FINISHED", "run")


def test_connecting_to_a_thread_that_does_not_exist_is_an_empty_answer(store: Any) -> None:
    with serving(App(echo, store=store)) as server:
        with server.run(path="/connect", thread_id="new") as stream:
            assert types(stream.rest()) == ["RUN_STARTED", "RUN_FINISHED"]
        assert server.get("/threads/new").status_code == 404


# History


def test_with_client_history_the_agent_sees_what_the_client_sends(store: Any) -> None:
    with serving(App(echo, store=store)) as server:
        server.events(run_id="1", messages=[user_json("u1", "Hello")])
        assert text_of(server.events(run_id="2", messages=[user_json("u2", "Again")])) == "1: Again"


def test_with_server_history_the_client_sends_only_what_is_new(store: Any) -> None:
    with serving(App(echo, store=store, history="server")) as server:
        server.events(run_id="1", messages=[user_json("u1", "Hello")])
        assert text_of(server.events(run_id="2", messages=[user_json("u2", "Again")])) == "3: Again"


def test_with_server_history_a_request_without_messages_hydrates(store: Any) -> None:
    with serving(App(echo, store=store, history="server")) as server:
        server.events(run_id="1", messages=[user_json("u1", "Hello")])
        events = server.events(run_id="2")
        snapshot = next(event for event in events if event["type"] == "MESSAGES_SNAPSHOT")
        assert [message["content"] for message in snapshot["messages"]] == ["Hello", "1: Hello"]
        assert server.get("/threads/thread/runs/2").status_code == 404


def test_a_branch_goes_on_from_the_run_it_names(store: Any) -> None:
    with serving(App(echo, store=store, history="server")) as server:
        server.events(run_id="1", messages=[user_json("u1", "Hello")])
        server.events(run_id="2", messages=[user_json("u2", "Again")])
        branch = server.events(run_id="3", parentRunId="1", messages=[user_json("u3", "Instead")])
        assert text_of(branch) == "3: Instead"
        view = server.get("/threads/thread").json()
        assert [message["content"] for message in view["messages"]] == ["Hello", "1: Hello", "Instead", "3: Instead"]
        other = server.get("/threads/thread?run=2").json()
        assert [message["content"] for message in other["messages"]] == ["Hello", "1: Hello", "Again", "3: Again"]


@pytest.mark.parametrize("sends", ["branch", "everything", "new message"])
@pytest.mark.parametrize("seed", range(3))
def test_the_agent_the_routes_and_the_lineage_see_one_branch(store: Any, sends: str, seed: int) -> None:
    rng = random.Random(seed)
    inputs: list[list[str]] = []

    async def agent(run: Any) -> Any:
        inputs.append([message.id for message in run.messages])
        run.state = {"last": run.run_id}
        await run.say(f"answer of {run.run_id}")

    history = "client" if sends == "branch" else "server"
    with serving(App(agent, store=store, history=history, sends=Sends(echo_input=True))) as server:
        branches: dict[str, list[dict[str, Any]]] = {}
        everything: list[dict[str, Any]] = []
        for number in range(8):
            run_id, new = f"r{number}", user_json(f"u{number}", f"question {number}")
            parent = rng.choice([None, *branches]) if branches else None
            before = [] if not branches else branches[parent or f"r{number - 1}"]
            sent = {"branch": before, "everything": everything, "new message": []}[sends]
            more = {} if parent is None else {"parentRunId": parent}
            events = server.events(run_id=run_id, messages=[*sent, new], **more)
            answer = next(event["messageId"] for event in events if event["type"] == "TEXT_MESSAGE_START")
            added = [new, {"id": answer, "role": "assistant", "content": f"answer of {run_id}"}]
            branches[run_id] = [*before, *added]
            everything += added
            assert inputs[-1] == [message["id"] for message in [*before, new]]
        with server.stream("GET", "/threads/thread/events") as stream:
            lineage = Lineage([decode(encode(event)) for event in stream.rest()])
        for run_id, expected in branches.items():
            wanted = [message["id"] for message in expected]
            found = server.get(f"/threads/thread?run={run_id}").json()
            assert [message["id"] for message in found["messages"]] == wanted
            assert (found["state"], found["tip"]) == ({"last": run_id}, run_id)
            assert [message.id for message in lineage.reduce_along(run_id).messages] == wanted
            joined = server.events(path="/connect", run_id="joins", parentRunId=run_id, messages=[])
            snapshot = next(event for event in joined if event["type"] == "MESSAGES_SNAPSHOT")
            assert [message["id"] for message in snapshot["messages"]] == wanted


@pytest.mark.parametrize("history", ["client", "server"])
@pytest.mark.parametrize("path", ["/", "/connect"])
def test_a_run_that_the_thread_does_not_have_cannot_be_gone_on_from(store: Any, history: Any, path: str) -> None:
    with serving(App(echo, store=store, history=history)) as server:
        # Nothing is known of the thread, as after the loss of a store: a client that has the thread is accepted, also
        # the next time.
        lost = run_input(run_id="1", parentRunId="lost", messages=[user_json("u1", "Hello")])
        assert server.post(path, json=lost).status_code == 200
        assert server.post("/", json=lost).status_code == 200
        assert server.post(path, json=lost).status_code == 200
        before = server.get("/threads/thread").json()
        refused = server.post(path, json=run_input(run_id="2", parentRunId="no", messages=[user_json("u2", "Instead")]))
        assert refused.status_code == 422
        error = refused.json()["error"]
        assert (error["code"], error["path"]) == ("unknown_parent", "/parentRunId")
        assert server.get("/threads/thread").json() == before


# Interrupts


def asking(answers: list[Any]) -> Any:
    async def agent(run: Any) -> Any:
        await run.say("before")
        answer = await run.ask("Send it?", schema={"type": "object", "required": ["ok"]})
        answers.append(answer)
        await run.say("after")

    return agent


def test_an_answer_resumes_the_run_where_it_asked(store: Any) -> None:
    answers: list[Any] = []
    with serving(App(asking(answers), store=store)) as server:
        first = server.events(run_id="1")
        interrupt = first[-1]["outcome"]["interrupts"][0]
        answer = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"ok": True}}]
        second = server.events(run_id="2", resume=answer)
        check_valid(second)
        assert (text_of(first), text_of(second)) == ("before", "after")
        assert answers == [{"ok": True}]
        with server.run(run_id="3", resume=answer) as third:
            assert third.status == 409
        again = server.events(run_id="2", resume=answer)  # the same request again is not a second answer
        assert again[-1]["type"] == "RUN_FINISHED"
        assert answers == [{"ok": True}]


def test_an_open_interrupt_must_be_covered_by_a_fitting_answer(store: Any) -> None:
    with serving(App(asking([]), store=store)) as server:
        interrupt = server.events(run_id="1")[-1]["outcome"]["interrupts"][0]
        uncovered = server.post("/", json=run_input(run_id="2"))
        assert (uncovered.status_code, uncovered.json()["error"]["code"]) == (422, "interrupt_uncovered")
        wrong = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"no": 1}}]
        invalid = server.post("/", json=run_input(run_id="3", resume=wrong))
        assert (invalid.status_code, invalid.json()["error"]["code"]) == (422, "interrupt_answer_invalid")
        assert server.get("/threads/thread").json()["interrupts"] == [interrupt]


def test_two_racing_answers_let_one_run(store: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    answers: list[Any] = []
    with serving(App(asking(answers), store=store)) as server:
        interrupt = server.events(run_id="1")[-1]["outcome"]["interrupts"][0]
        answer = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"ok": True}}]

        def resumed(run_id: str) -> int:
            return server.post("/", json=run_input(run_id=run_id, resume=answer)).status_code

        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(resumed, ("2", "3")))
        assert sorted(found) in ([200, 200], [200, 409])  # the second attaches to the run while it uses the answer
        assert answers == [{"ok": True}]


def test_a_file_reaches_the_agent_as_bytes(store: Any) -> None:
    async def agent(run: Any) -> Any:
        part = run.messages[-1].content[0]
        data = await run.file(part)
        yield f"{len(data)} bytes"

    with serving(App(agent, store=store, allow_anonymous=True)) as server:
        stored = server.post("/files?filename=a.png", content=b"12345", headers={"content-type": "image/png"}).json()
        content = [{"type": "image", "source": stored["source"]}]
        assert text_of(server.events(messages=[{"id": "u", "role": "user", "content": content}])) == "5 bytes"
        answer = server.get(f"/files/{stored['id']}")
        assert (answer.content, answer.headers["content-type"]) == (b"12345", "image/png")
        assert server.get(f"/files/{stored['id']}", headers={"if-none-match": answer.headers["etag"]}).content == b""
        part = server.get(f"/files/{stored['id']}", headers={"range": "bytes=1-2"})
        assert (part.status_code, part.content) == (206, b"23")
        beyond = server.get(f"/files/{stored['id']}", headers={"range": "bytes=5-"})
        assert (beyond.status_code, beyond.json()["error"]["code"]) == (416, "range_not_satisfiable")


def test_head_is_get_without_the_body(store: Any) -> None:
    with serving(App(echo, store=store, allow_anonymous=True)) as server:
        server.events()
        stored = server.post("/files", content=b"12345", headers={"content-type": "image/png"}).json()
        for path in (
            "/healthz",
            "/readyz",
            "/capabilities",
            "/threads",
            "/threads/thread",
            "/threads/thread/runs/run",
            f"/files/{stored['id']}",
            "/threads/unknown",
        ):
            whole, head = server.get(path), server.client.head(path)
            assert (head.status_code, head.content) == (whole.status_code, b"")
            for name in ("content-type", "content-length", "etag"):
                assert head.headers.get(name) == whole.headers.get(name), (path, name)
        for path in ("/", "/threads/thread/events", "/threads/thread/runs/run/events"):
            answer = server.client.head(path)
            assert answer.status_code == 405
            assert "HEAD" not in answer.headers["allow"]
        assert server.client.put("/threads").headers["allow"] == "GET, HEAD"


def test_head_needs_what_get_needs() -> None:
    with serving(App(echo)) as server:
        assert server.client.head("/threads").status_code == 403
    with serving(App(echo, authenticate=lambda request: None)) as server:
        assert server.client.head("/threads/thread").status_code == 401


def test_health_is_checked_at_most_once_a_second() -> None:
    class Counting(MemoryStore):
        checks = 0
        is_broken = False

        async def check(self) -> None:
            self.checks += 1
            if self.is_broken:
                raise StoreUnavailable("broken")
            await super().check()

    store = Counting()
    with serving(App(echo, store=store)) as server:
        before = store.checks
        began = time.monotonic()
        assert {server.get("/readyz").status_code for _ in range(50)} == {200}
        assert store.checks - before <= 1 + (time.monotonic() - began)
        store.is_broken = True
        wait_until(lambda: server.get("/readyz").status_code == 503)
        before, began = store.checks, time.monotonic()
        assert {server.get("/readyz").status_code for _ in range(50)} == {503}
        assert store.checks - before <= 2 + (time.monotonic() - began)


class CountingStore(MemoryStore):
    """Counts how often the threads are listed."""

    lists = 0

    async def threads(self, scope: str, filter: ThreadFilter = ThreadFilter()) -> ThreadPage:  # noqa: B008
        self.lists += filter.limit > 0
        return await super().threads(scope, filter)


def test_a_list_that_has_not_changed_is_answered_with_304_without_reading_it() -> None:
    store = CountingStore()

    def authenticate(request: Request) -> str:
        return request.headers["authorization"]

    with serving(App(echo, store=store, authenticate=authenticate)) as server:
        ada, bob = {"authorization": "ada"}, {"authorization": "bob"}
        server.events(headers=ada, thread_id="t")
        first = server.get("/threads", headers=ada)
        known = {"if-none-match": first.headers["etag"]}
        lists = store.lists
        again = server.get("/threads", headers=ada | known)
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
        assert server.get("/threads?limit=0", headers=ada | known).status_code == 422
        assert store.lists == lists
        other = server.get("/threads", headers=bob | known)
        assert (other.status_code, other.json()["threads"]) == (200, [])
        server.client.patch("/threads/t", json={"archived": True}, headers=ada)
        changed = server.get("/threads", headers=ada | known)
        assert (changed.status_code, changed.json()["threads"][0]["archived"]) == (200, True)


# Limits of titles and metadata


def describe(server: Any, number: int, update: Any) -> Any:
    return server.client.patch(f"/threads/t{number}", json=update)


@pytest.mark.postgres
def test_a_page_of_threads_is_bounded_by_bytes_and_metadata_is_sent_as_stored(store: Any) -> None:
    metadata = {"nested": [[]] * 5_000}  # 15 KB, slow to decode
    with serving(App(echo, store=store, allow_anonymous=True)) as server:
        for number in range(100):
            server.events(thread_id=f"t{number}", run_id="r")
            assert describe(server, number, {"metadata": metadata}).status_code == 200
        normal = server.get("/threads?limit=1")
        assert normal.json()["threads"][0]["metadata"] == metadata
        found: list[str] = []
        before = ""
        while True:
            page = server.get(f"/threads?limit=500{before}")
            assert len(page.content) < 1_200_000
            found += [one["threadId"] for one in page.json()["threads"]]
            if page.json()["next"] is None:
                break
            before = f"&before={page.json()['next']}"
        assert sorted(found) == sorted(f"t{number}" for number in range(100))
        assert server.get("/threads/t1").json()["metadata"] == metadata


@pytest.mark.anyio
@pytest.mark.postgres
async def test_a_page_of_large_metadata_does_not_block_the_event_loop(store: Any) -> None:
    async with App(echo, store=store, allow_anonymous=True) as app:
        body = json.dumps({"metadata": {"nested": [[]] * 5_000}}).encode()
        for number in range(60):
            given = json.dumps(run_input(f"t{number}", "r")).encode()
            assert await Reader(app).request("POST", "/", given, content_type="application/json") == 200
            assert (
                await Reader(app).request("PATCH", f"/threads/t{number}", body, content_type="application/json") == 200
            )
        slices = Slices()
        with frozen_heap():
            slices.start()
            try:
                assert await Reader(app).request("GET", "/threads?limit=500") == 200
            finally:
                slices.stop()
    assert slices.longest < allowed(0.01)


@pytest.mark.postgres
def test_metadata_is_checked_against_the_quotas_with_its_index(store: Any) -> None:
    large = {"metadata": {"text": "x" * 16_000}}
    limits = Limits(per_scope=Quota(bytes=70_000))  # 16 KB count three times
    with serving(App(echo, store=store, allow_anonymous=True, limits=limits)) as server:
        for number in range(3):
            server.events(thread_id=f"t{number}", run_id="r")
        assert describe(server, 0, large).status_code == 200
        answers = [describe(server, number, large) for number in (1, 2)]
        assert [answer.status_code for answer in answers] == [507, 507]
        assert answers[0].json()["error"]["code"] == "quota_exceeded"
        assert describe(server, 0, {"metadata": {"text": "y" * 16_000}}).status_code == 200  # it does not grow
        assert describe(server, 0, {"archived": True, "metadata": None}).status_code == 200
        assert describe(server, 1, large).status_code == 200


@pytest.mark.postgres
def test_metadata_has_at_most_64_members(store: Any) -> None:
    with serving(App(echo, store=store, allow_anonymous=True)) as server:
        server.events(thread_id="t0", run_id="r")
        assert describe(server, 0, {"metadata": {str(i): i for i in range(64)}}).status_code == 200
        refused = describe(server, 0, {"metadata": {str(i): i for i in range(65)}})
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "bad_metadata")


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("body", "path"),
    [
        (rb'{"metadata":{"a":"\ud800"}}', "/metadata/a"),
        (rb'{"metadata":{"a":{"b/c":["x","\udfff"]}}}', "/metadata/a/b~1c/1"),
        (rb'{"metadata":{"\ud800":"x"}}', r"/metadata/\ud800"),
        (rb'{"title":"\ud800"}', "/title"),
        (rb'{"\ud800":1}', r"/\ud800"),
    ],
)
def test_a_lone_surrogate_is_refused_before_anything_is_stored(store: Any, body: bytes, path: str) -> None:
    with serving(App(echo, store=store, allow_anonymous=True)) as server:
        server.events(thread_id="t0", run_id="r")
        refused = server.client.patch("/threads/t0", content=body, headers={"content-type": "application/json"})
        assert (refused.status_code, refused.json()["error"]["path"]) == (422, path)
        assert describe(server, 0, {"metadata": {"a": "\U0001f600"}}).json()["metadata"] == {"a": "\U0001f600"}
        assert server.client.delete("/threads/t0").status_code < 300


@pytest.mark.postgres
def test_ids_with_nul_do_not_exist(store: Any) -> None:
    """PostgreSQL cannot compare them with others: changes of such threads failed (500)."""
    paths = [
        ("GET", "/threads/%00"),
        ("PATCH", "/threads/%00"),
        ("DELETE", "/threads/%00"),
        ("DELETE", "/files/%00"),
        ("POST", "/threads/t/runs/%00/cancel"),
        ("POST", "/admin/scopes/%00/threads/t/runs/r/cancel"),
    ]
    hook = lambda _: Principal(scope="ops", rights={"admin"})  # noqa: E731
    with serving(App(lambda _: "done", store=store, authenticate=hook)) as server:
        for method, path in paths:
            response = server.client.request(method, path, json={"title": "x"} if method == "PATCH" else None)
            assert (path, response.status_code, response.json()["error"]["code"]) == (path, 404, "not_found")
