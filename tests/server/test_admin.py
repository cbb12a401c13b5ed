"""The routes of operators: a caller with the right ``admin`` sees the runs and the usage of all scopes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from faults.kit import act, workers
from serving import Gate, Peer, serving
from waiting import wait_until

from aguila import App
from aguila.server import Principal, Request
from aguila.store import SQLiteStore

PRINCIPALS = {
    "ops": Principal(scope="ops", name="Olga", rights={"admin"}),
    "ana": Principal(scope="ana"),
    "a/b c?": Principal(scope="a/b c?"),
}
CANCEL = "/admin/scopes/{}/threads/{}/runs/{}/cancel"


def authenticate(request: Request) -> Principal | None:
    return PRINCIPALS.get(request.headers.get("x-user", ""))


class Both:
    """A server, its gate, and a client of each principal."""

    def __init__(self, url: str, gate: Gate, stack: ExitStack) -> None:
        self.gate = gate
        self.ops, self.ana, self.odd = (
            stack.enter_context(closing(Peer(url, **{"x-user": name}))) for name in PRINCIPALS
        )


@pytest.fixture
def both(store: Any) -> Iterator[Both]:
    gate = Gate()

    async def agent(run: Any) -> Any:
        yield "one"
        if run.run_id.startswith("waits"):
            await gate.wait()

    with ExitStack() as stack:
        server = stack.enter_context(serving(App(agent, store=store, authenticate=authenticate, drain=0.1)))
        both = Both(server.url, gate, stack)
        yield both
        gate.open()


@pytest.mark.postgres
def test_the_runs_of_all_scopes_are_listed_and_cancelled(both: Both, caplog: pytest.LogCaptureFixture) -> None:
    with (
        both.odd.run(thread_id="t/1", run_id="waits/1") as odd,
        both.ana.run(thread_id="t", run_id="waits") as ana,
    ):
        odd.read_until("TEXT_MESSAGE_CONTENT")
        ana.read_until("TEXT_MESSAGE_CONTENT")
        both.ana.events(thread_id="ended", run_id="r")
        runs = both.ops.get("/admin/runs").json()["runs"]
        assert [(one["scope"], one["threadId"], one["runId"]) for one in runs] == [
            ("a/b c?", "t/1", "waits/1"),
            ("ana", "t", "waits"),
        ]
        assert runs[1] == {"scope": "ana", **both.ana.get("/threads/t/runs/waits").json()}
        assert [one["runId"] for one in both.ops.get("/admin/runs?scope=ana").json()["runs"]] == ["waits"]
        assert both.ops.get("/admin/runs?olderThan=3600").json() == {"runs": []}
        assert len(both.ops.get("/admin/runs?olderThan=0").json()["runs"]) == 2
        with caplog.at_level(logging.INFO, "aguila.server"):
            answer = both.ops.post(CANCEL.format(quote("a/b c?", safe=""), "t%2F1", "waits%2F1"))
        assert (answer.status_code, answer.json()["cancelRequested"]) == (202, True)
        assert odd.rest()[-1]["outcome"]["type"] == "cancelled"
        assert "thread=t/1 run=waits/1 scope='a/b c?' by=ops" in caplog.text
        wait_until(lambda: len(both.ops.get("/admin/runs").json()["runs"]) == 1)
        again = both.ops.post(CANCEL.format(quote("a/b c?", safe=""), "t%2F1", "waits%2F1"))
        assert (again.status_code, again.json()["status"]) == (200, "cancelled")
        assert both.ops.post(CANCEL.format("nobody", "t", "waits")).status_code == 404
        assert both.ana.status_of("t", "waits") == "running"
        both.gate.open()
        assert ana.rest()[-1]["type"] == "RUN_FINISHED"
    wait_until(lambda: both.ops.get("/admin/runs").json() == {"runs": []})


@pytest.mark.postgres
def test_the_usage_of_all_scopes_is_counted(both: Both) -> None:
    assert both.ops.get("/admin/scopes").json() == {"scopes": []}
    for number in range(2):
        both.ana.events(thread_id="t", run_id=f"r{number}")
    both.odd.events(thread_id="t", run_id="r", messages=[{"id": "m", "role": "user", "content": "x" * 10_000}])
    assert both.ana.post("/files", content=b"12345", headers={"content-type": "text/plain"}).status_code == 201
    odd, ana = both.ops.get("/admin/scopes").json()["scopes"]
    last = both.ana.get("/threads/t/runs/r1").json()["last"]
    assert ana == {"scope": "ana", "threads": 1, "runs": 2, "events": last, "bytes": ana["bytes"], "files": 1}
    assert (odd["scope"], odd["runs"], odd["files"]) == ("a/b c?", 1, 0)
    assert odd["bytes"] > 10_000 > ana["bytes"] > 0
    assert both.ops.get("/admin/scopes?scope=ana").json() == {"scopes": [ana]}
    for foreign in ("nobody", "", "%00", "%F0%9F%A6%85", "%FF", "x" * 2_000):
        assert both.ops.get(f"/admin/scopes?scope={foreign}").json() == {"scopes": []}
        assert both.ops.get(f"/admin/runs?scope={foreign}").json() == {"runs": []}


@pytest.mark.parametrize("value", ["", "-1", "1.5", "x", "1" * 19])
def test_a_bad_age_is_refused(both: Both, value: str) -> None:
    answer = both.ops.get(f"/admin/runs?olderThan={value}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "bad_parameter")


ROUTES = [("GET", "/admin/runs"), ("HEAD", "/admin/runs"), ("GET", "/admin/scopes")]
ROUTES.append(("POST", CANCEL.format("ana", "t", "r")))


def test_a_caller_without_the_right_is_refused(both: Both) -> None:
    both.ana.events(thread_id="t", run_id="r")
    for method, path in ROUTES:
        answer = both.ana.client.request(method, path)
        assert answer.status_code == 403
        assert method == "HEAD" or answer.json()["error"]["code"] == "forbidden"
        assert both.ana.client.request(method, path, headers={"x-user": "nobody"}).status_code == 401


@pytest.mark.parametrize(
    "authenticated",
    [None, "ops", type("User", (), {"scope": "ops", "rights": {"admin"}})()],
    ids=["none", "a scope", "an object"],
)
def test_only_a_principal_has_rights(authenticated: Any) -> None:
    hook = None if authenticated is None else lambda request: authenticated
    with serving(App(lambda run: "hi", store=":memory:", authenticate=hook, allow_anonymous=True)) as server:
        for method, path in ROUTES:
            assert server.client.request(method, path).status_code == 403


@pytest.mark.parametrize("rights", ["admin", {"Admin"}, ["admin", "read"]])
def test_an_unknown_right_is_refused_where_it_is_given(rights: Any) -> None:
    with pytest.raises(ValueError, match="has an unknown right"):
        Principal(scope="ops", rights=rights)


def test_the_routes_of_operators_are_not_those_of_an_agent(both: Both) -> None:
    assert both.ops.get("/agents/default/admin/runs").status_code == 404
    with pytest.raises(ValueError, match="below a route of the app"):
        App(lambda run: "hi", copilotkit="/admin/kit")


def test_a_run_of_another_process_is_listed_and_cancelled(tmp_path: Path) -> None:
    with ExitStack() as stack:
        (worker,) = stack.enter_context(workers(tmp_path))
        app = App(lambda run: "hi", store=SQLiteStore(tmp_path / "threads.db"), authenticate=authenticate)
        server = stack.enter_context(serving(app))
        ops = stack.enter_context(closing(server.peer(**{"x-user": "ops"})))
        stream = stack.enter_context(worker.run(**act("everything_open", "t", "r")))
        stream.read_until("TEXT_MESSAGE_CONTENT")
        (run,) = ops.get("/admin/runs").json()["runs"]
        assert (run["scope"], run["runId"], run["status"]) == ("anonymous", "r", "running")
        assert ops.post(CANCEL.format("anonymous", "t", "r")).status_code == 202
        assert stream.rest()[-1]["outcome"]["type"] == "cancelled"
        wait_until(lambda: ops.get("/admin/runs").json() == {"runs": []})
