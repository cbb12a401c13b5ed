"""A user of scope A cannot see, attach to, cancel, resume, delete or download anything of scope B."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from serving import Held, Peer, Server, run_input, serving, text_of
from waiting import wait_until

from aguila import App


def authenticate(request: Any) -> str | None:
    return request.headers.get("x-user")


class Both:
    """A server with a running run and a finished one of Ada's, and clients of Ada and of Eve."""

    def __init__(self, server: Server, agent: Held) -> None:
        self.server = server
        self.agent = agent
        self.ada = server.peer(**{"x-user": "ada"})
        self.eve = server.peer(**{"x-user": "eve"})
        agent.gate("done").open()
        assert self.ada.events(thread_id="old", run_id="done", state={"secret": 1})[-1]["type"] == "RUN_FINISHED"

    def close(self) -> None:
        for peer in (self.ada, self.eve):
            peer.close()


@pytest.fixture
def both(store: Any) -> Iterator[Both]:
    agent = Held()
    with serving(App(agent, store=store, authenticate=authenticate, drain=0.1)) as server:
        both = Both(server, agent)
        yield both
        both.close()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/threads/old"),
        ("GET", "/threads/old?run=done"),
        ("GET", "/threads/old/events"),
        ("GET", "/threads/old/events?after=1"),
        ("GET", "/threads/old/events?compact=true"),
        ("GET", "/threads/old/runs/done"),
        ("GET", "/threads/old/runs/done/events"),
        ("GET", "/threads/old/runs/done/input"),
        ("GET", "/threads/old/runs/done/check"),
        ("POST", "/threads/old/runs/done/cancel"),
        ("DELETE", "/threads/old"),
    ],
)
def test_what_belongs_to_another_scope_is_as_if_it_did_not_exist(both: Both, method: str, path: str) -> None:
    foreign = both.eve.client.request(method, path)
    absent = both.eve.client.request(method, path.replace("old", "xyz").replace("done", "none"))
    assert foreign.status_code == absent.status_code == 404
    strip = str.maketrans("", "", "'\"")
    assert foreign.text.replace("old", "xyz").replace("done", "none").translate(strip) == absent.text.translate(strip)
    assert both.ada.get("/threads/old").json()["state"] == {"secret": 1}


def test_a_list_of_threads_has_only_those_of_the_scope(both: Both) -> None:
    assert [one["threadId"] for one in both.ada.get("/threads").json()["threads"]] == ["old"]
    assert both.eve.get("/threads").json()["threads"] == []


def test_a_list_of_threads_has_an_id_of_the_caller_that_does_not_show_the_scope(both: Both) -> None:
    ada, again, eve = (one.get("/threads").json()["caller"] for one in (both.ada, both.ada, both.eve))
    assert ada == again
    assert ada != eve
    assert "ada" not in ada


def test_connecting_to_a_foreign_thread_shows_an_empty_one(both: Both) -> None:
    with both.eve.run(path="/connect", thread_id="old", run_id="done") as stream:
        assert "secret" not in json.dumps(stream.rest())


def test_a_foreign_run_id_does_not_attach_but_begins_a_thread_of_ones_own(both: Both) -> None:
    both.agent.gate("live").open()
    with both.ada.run(thread_id="shared", run_id="live") as theirs:
        theirs.rest()
    calls = len(both.agent.calls)
    events = both.eve.events(thread_id="shared", run_id="live")
    assert len(both.agent.calls) == calls + 1
    assert text_of(events) == "onetwo"
    assert len(both.eve.get("/threads/shared").json()["runs"]) == 1


def test_a_foreign_run_that_is_on_can_be_neither_watched_nor_cancelled(both: Both) -> None:
    with both.ada.run(thread_id="busy", run_id="live") as stream:
        stream.read_until("TEXT_MESSAGE_CONTENT")
        assert both.eve.get("/threads/busy/runs/live/events").status_code == 404
        assert both.eve.post("/threads/busy/runs/live/cancel").status_code == 404
        both.agent.gate("live").open()
        assert stream.rest()[-1]["outcome"] == {"type": "success"}


def test_limits_count_each_scope_for_itself() -> None:
    from aguila.server import Limits

    agent = Held()
    app = App(agent, authenticate=authenticate, limits=Limits(runs_per_scope=1), drain=0.1)
    with serving(app) as server:
        ada, eve = server.peer(**{"x-user": "ada"}), server.peer(**{"x-user": "eve"})
        with ada.run() as first:
            first.read_until("TEXT_MESSAGE_CONTENT")
            assert ada.post("/", json=run_input("other", "other")).status_code == 429
            with eve.run() as second:
                assert second.status == 200
                second.read_until("TEXT_MESSAGE_CONTENT")
                agent.gate("run").open()
                assert second.rest()[-1]["type"] == "RUN_FINISHED"
        for peer in (ada, eve):
            peer.close()


def test_an_interrupt_of_another_scope_cannot_be_answered() -> None:
    answers: list[Any] = []

    async def agent(run: Any) -> None:
        answers.append((run.principal, await run.ask("Send it?")))

    with serving(App(agent, authenticate=authenticate)) as server:
        ada, eve = server.peer(**{"x-user": "ada"}), server.peer(**{"x-user": "eve"})
        outcome = ada.events(run_id="asks")[-1]["outcome"]
        assert outcome["type"] == "interrupt"
        answer = [{"interruptId": outcome["interrupts"][0]["id"], "status": "resolved", "payload": True}]
        with eve.run(run_id="answers", resume=answer) as stream:
            stream.rest()
        assert answers == []
        assert ada.get("/threads/thread").json()["interrupts"] != []
        assert ada.events(run_id="answers", resume=answer)[-1]["outcome"] == {"type": "success"}
        assert answers == [("ada", True)]
        for peer in (ada, eve):
            peer.close()


def test_files_belong_to_a_scope(both: Both) -> None:
    content = b"\x89PNG of Ada"
    answer = both.ada.post("/files", content=content, headers={"content-type": "image/png"})
    assert answer.status_code == 201
    file_id = answer.json()["id"]
    assert both.ada.get(f"/files/{file_id}").content == content
    assert both.eve.get(f"/files/{file_id}").status_code == 404
    assert both.eve.delete(f"/files/{file_id}").status_code == 404
    assert both.ada.delete(f"/files/{file_id}").status_code == 204
    assert both.ada.get(f"/files/{file_id}").status_code == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/"),
        ("POST", "/connect"),
        ("GET", "/capabilities"),
        ("GET", "/openapi.json"),
        ("GET", "/threads"),
        ("GET", "/threads/old"),
        ("DELETE", "/threads/old"),
        ("GET", "/threads/old/events"),
        ("GET", "/threads/old/runs/done"),
        ("GET", "/threads/old/runs/done/events"),
        ("GET", "/threads/old/runs/done/input"),
        ("GET", "/threads/old/runs/done/check"),
        ("POST", "/threads/old/runs/done/cancel"),
        ("POST", "/files"),
        ("GET", "/files/x"),
        ("DELETE", "/files/x"),
        ("GET", "/data"),
        ("DELETE", "/data"),
        ("GET", "/admin/runs"),
        ("GET", "/admin/scopes"),
        ("POST", "/admin/scopes/ada/threads/old/runs/done/cancel"),
    ],
)
def test_every_route_asks_who_is_there(both: Both, method: str, path: str) -> None:
    nobody = Peer(both.server.url)
    answer = nobody.client.request(method, path, json=run_input() if method == "POST" else None)
    nobody.close()
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthenticated")
    assert wait_until(lambda: both.ada.get("/threads/old").status_code == 200)
