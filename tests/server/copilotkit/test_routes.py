"""CopilotKit's runtime contract: every route over HTTP, as REST and over the single endpoint."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from builders import user_json
from cpu_bounds import allowed, frozen_heap
from faults.kit import scaled
from in_process import Reader, Slices
from serving import Background, Held, Server, check_valid, run_input, serving, text_of, types
from waiting import wait_until

from aguila import App
from aguila.server import Principal

BASE = "/copilotkit"


async def echo(run: Any) -> Any:
    run.state["seen"] = len(run.messages)
    yield f"echo {run.messages[-1].content}" if run.messages else "nothing"


async def other(run: Any) -> str:
    return "other"


def make(agent: Any = None, **options: Any) -> App:
    agents = {"default": echo if agent is None else agent, "research": other}
    options = {"allow_anonymous": True, **options}
    return App(agents, copilotkit=True, **options)


def page_input(thread_id: str = "t", run_id: str = "r", **members: Any) -> dict[str, Any]:
    """Return the input of a CopilotKit page: a client of AG-UI 0.x, which declares no version."""
    body = run_input(thread_id, run_id, protocolVersion=..., **members)
    return {"tools": [], "context": [], "forwardedProps": {}, "state": {}, **body}


class Rest:
    """Calls the routes."""

    def __init__(self, server: Server, base: str = BASE) -> None:
        self._server, self._base = server, base

    def agent(self, method: str, agent: str, body: Any) -> Any:
        return self._server.client.post(f"{self._base}/agent/{agent}/{method}", json=body)

    def stop(self, agent: str, thread_id: str, body: Any = None) -> Any:
        path = f"{self._base}/agent/{agent}/stop/{thread_id}"
        if body is None:
            return self._server.client.post(path, headers={"content-type": "application/json"})
        return self._server.client.post(path, json=body)

    def resource(self, method: str, path: str, body: Any = None) -> Any:
        return self._server.client.request(method, self._base + path, json=body)

    def info(self) -> Any:
        return self._server.get(f"{self._base}/info")


class Single(Rest):
    """Puts the same requests into envelopes."""

    def _post(self, method: str, params: Any = None, body: Any = None) -> Any:
        envelope = {"method": method, "params": params, "body": body}
        members = {name: value for name, value in envelope.items() if value is not None}
        return self._server.client.post(self._base, json=members)

    def agent(self, method: str, agent: str, body: Any) -> Any:
        return self._post(f"agent/{method}", {"agentId": agent}, body)

    def stop(self, agent: str, thread_id: str, body: Any = None) -> Any:
        return self._post("agent/stop", {"agentId": agent, "threadId": thread_id}, body)

    def resource(self, method: str, path: str, body: Any = None) -> Any:
        return self._post("resource/request", {"path": path, "httpMethod": method}, body)

    def info(self) -> Any:
        return self._post("info")


@pytest.fixture(params=[Rest, Single])
def transport(request: pytest.FixtureRequest) -> Any:
    return request.param


def events_of(answer: Any) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]


# Info


def test_info_names_the_agents_and_what_may_be_done(transport: Any) -> None:
    with serving(make()) as server:
        answer = transport(server).info()
        assert answer.status_code == 200
        info = answer.json()
        assert list(info["agents"]) == ["default", "research"]
        agent = info["agents"]["research"]
        assert (agent["name"], agent["description"], agent["className"]) == ("research", "", "Aguila")
        assert agent["capabilities"]["transport"]["streaming"] is True
        assert (info["mode"], info["suggestions"], info["audioFileTranscriptionEnabled"]) == ("sse", True, False)
        assert (info["a2uiEnabled"], info["openGenerativeUIEnabled"]) == (False, False)
        threads = {"list": True, "inspect": True, "mutations": True, "realtimeMetadata": False}
        if transport is Rest:
            assert info["threadEndpoints"] == threads
            assert "singleRoute" not in info
        else:
            assert set(info["threadEndpoints"].values()) == {False}
            assert info["singleRoute"] == {"resourceOperations": True, "threadEndpoints": threads}


def test_info_announces_only_what_the_caller_may_do(transport: Any) -> None:
    with serving(make(allow_anonymous=False)) as server:
        client = transport(server)
        info = client.info().json()
        threads = info["threadEndpoints"] if transport is Rest else info["singleRoute"]["threadEndpoints"]
        assert threads == {"list": False, "inspect": True, "mutations": False, "realtimeMetadata": False}
        events_of(client.agent("run", "default", page_input()))
        for method, path in (
            ("GET", "/threads"),
            ("POST", "/threads/clear"),
            ("PATCH", "/threads/t"),
            ("DELETE", "/threads/t"),
            ("POST", "/threads/t/archive"),
        ):
            answer = client.resource(method, path, None if method == "GET" else {"agentId": "default"})
            assert (answer.status_code, answer.json()["code"]) == (403, "anonymous_not_allowed"), path
        assert server.get("/threads/t").status_code == 200


def test_info_announces_a2ui_and_descriptions_that_are_declared() -> None:
    capabilities = {"custom": {"a2ui": True}, "identity": {"description": "Knows birds"}}
    with serving(make(capabilities=capabilities)) as server:
        info = server.get("/copilotkit/info").json()
        assert info["a2uiEnabled"] is True
        assert info["a2ui"] == {"enabled": True, "agents": ["default", "research"]}
        assert info["agents"]["default"]["description"] == "Knows birds"


# Runs


def test_a_run_streams_and_is_stored_under_its_agent(store: Any, transport: Any) -> None:
    with serving(make(store=store)) as server:
        client = transport(server)
        events = events_of(client.agent("run", "default", page_input(messages=[user_json("u", "Hi")])))
        assert (events[0]["type"], events[-1]["type"]) == ("RUN_STARTED", "RUN_FINISHED")
        assert text_of(events) == "echo Hi"
        assert text_of(events_of(client.agent("run", "research", page_input("t2")))) == "other"
        assert server.get("/agents/research/threads").json()["threads"][0]["threadId"] == "t2"
        # The same request comes back to the same run, over either transport.
        again = events_of(Rest(server).agent("run", "default", page_input(messages=[user_json("u", "Hi")])))
        assert len(server.get("/threads/t").json()["runs"]) == 1
        assert again[0]["runId"] == "r"


def test_an_agent_that_is_not_there_is_404(transport: Any) -> None:
    with serving(make()) as server:
        client = transport(server)
        expected = {"error": "Agent not found", "message": "Agent 'nobody' does not exist"}
        for method in ("run", "connect", "suggest"):
            answer = client.agent(method, "nobody", page_input())
            assert (answer.status_code, answer.json()) == (404, expected)
        answer = client.stop("nobody", "t")
        assert (answer.status_code, answer.json()) == (404, expected)


def test_a_body_that_is_no_input_is_400_with_details(transport: Any) -> None:
    with serving(make()) as server:
        for method in ("run", "connect", "suggest"):
            answer = transport(server).agent(method, "default", {"threadId": 7})
            assert answer.status_code == 400
            assert answer.json()["error"] == "Invalid request body"
            assert "/threadId" in answer.json()["details"]


def test_a_run_of_another_agent_on_a_thread_is_a_conflict(transport: Any) -> None:
    with serving(make()) as server:
        client = transport(server)
        events_of(client.agent("run", "default", page_input()))
        answer = client.agent("run", "research", page_input(run_id="r2"))
        assert (answer.status_code, answer.json()["code"]) == (409, "wrong_agent")
        assert "'default'" in answer.json()["message"]


# Connect


def test_connect_sends_the_history(store: Any, transport: Any) -> None:
    with serving(make(store=store)) as server:
        client = transport(server)
        events_of(client.agent("run", "default", page_input(messages=[user_json("u", "Hi")])))
        events = events_of(client.agent("connect", "default", page_input(run_id="c")))
        (snapshot,) = [event for event in events if event["type"] == "MESSAGES_SNAPSHOT"]
        assert [message["content"] for message in snapshot["messages"]] == ["Hi", "echo Hi"]
        assert (events[0]["type"], events[-1]["type"]) == ("RUN_STARTED", "RUN_FINISHED")


def test_connect_is_empty_for_a_thread_that_this_agent_does_not_have(transport: Any) -> None:
    with serving(make()) as server:
        client = transport(server)
        assert events_of(client.agent("connect", "default", page_input("new"))) == []
        events_of(client.agent("run", "research", page_input("t")))
        assert events_of(client.agent("connect", "default", page_input("t", "c"))) == []


def test_two_connects_of_which_the_first_is_aborted_see_the_run_to_its_end(store: Any) -> None:
    agent = Held()
    with serving(make(agent, store=store)) as server:
        path = f"{BASE}/agent/default"
        with server.stream("POST", f"{path}/run", json=page_input()) as running:
            running.read_until("TEXT_MESSAGE_CONTENT")
            with server.stream("POST", f"{path}/connect", json=page_input(run_id="c1")) as first:
                first.read_until("TEXT_MESSAGE_START")
                with server.stream("POST", f"{path}/connect", json=page_input(run_id="c2")) as second:
                    first.close()
                    second.read_until("TEXT_MESSAGE_START")
                    agent.gate("r").open()
                    rest = second.rest()
                    assert (text_of(rest), rest[-1]["type"]) == ("two", "RUN_FINISHED")
            assert running.rest()[-1]["type"] == "RUN_FINISHED"
        assert agent.cancelled == []


# Suggest


def test_suggestions_are_not_stored(store: Any, transport: Any) -> None:
    with serving(make(store=store)) as server:
        answer = transport(server).agent("suggest", "default", page_input("s", messages=[user_json("u", "Suggest")]))
        assert text_of(events_of(answer)) == "echo Suggest"
        assert "id:" not in answer.text
        assert server.get("/threads").json()["threads"] == []


def test_a_client_without_suggest_leaves_no_threads_of_suggestions(transport: Any) -> None:
    props = {"toolChoice": {"type": "function", "function": {"name": "copilotkitSuggest"}}}
    with serving(make()) as server:
        client = transport(server)
        answer = client.agent("run", "default", page_input("s", messages=[user_json("u", "Hi")], forwardedProps=props))
        assert text_of(events_of(answer)) == "echo Hi"
        assert listed(server) == []
        for other in ({}, {"toolChoice": "auto"}, {"toolChoice": {"function": {"name": "x"}}}, {"note": props}):
            body = page_input("t", messages=[user_json("u", "copilotkitSuggest")], forwardedProps=other)
            assert text_of(events_of(client.agent("run", "default", body))) == "echo copilotkitSuggest"
            assert [one["threadId"] for one in listed(server)] == ["t"]
            server.delete("/threads/t")


# Stop


@pytest.mark.parametrize("body", [None, {}, {"runId": "r"}])
def test_stop_cancels_the_run_that_is_on(store: Any, transport: Any, body: Any) -> None:
    agent = Held()
    with serving(make(agent, store=store)) as server:
        with server.stream("POST", f"{BASE}/agent/default/run", json=page_input()) as running:
            running.read_until("TEXT_MESSAGE_CONTENT")
            answer = transport(server).stop("default", "t", body)
            assert (answer.status_code, answer.json()) == (
                200,
                {
                    "stopped": True,
                    "interrupt": {"type": "RUN_ERROR", "message": "Run stopped by user", "code": "STOPPED"},
                },
            )
            assert types(running.rest())[-1] == "RUN_FINISHED"
        wait_until(lambda: server.status_of("t", "r") == "cancelled")
        assert agent.cancelled == ["r"]


def test_stop_says_if_there_is_nothing_to_stop(transport: Any) -> None:
    agent = Held()
    with serving(make(agent)) as server:
        client = transport(server)
        nothing = {"stopped": False, "message": "No active run for thread 't'."}
        answer = client.stop("default", "t")
        assert (answer.status_code, answer.json()) == (200, nothing)
        with server.stream("POST", f"{BASE}/agent/default/run", json=page_input()) as running:
            running.read_until("TEXT_MESSAGE_CONTENT")
            answer = client.stop("default", "t", {"runId": "another"})
            message = "Run 'another' is not the active run for thread 't'."
            assert (answer.status_code, answer.json()) == (200, {"stopped": False, "message": message})
            assert client.stop("research", "t").json() == nothing  # it is not that agent's thread
            agent.gate("r").open()
            running.rest()
        wait_until(lambda: client.stop("default", "t").json() == nothing)
        assert agent.cancelled == []


def test_stop_reaches_a_run_that_answers_under_the_id_of_the_run_that_asked(transport: Any) -> None:
    agent = Held()

    async def asking(run: Any) -> None:
        await run.ask("Well?")
        await agent(run)

    with serving(make(asking)) as server:
        (interrupt,) = events_of(Rest(server).agent("run", "default", page_input()))[-1]["outcome"]["interrupts"]
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": "yes"}]
        with server.stream("POST", f"{BASE}/agent/default/run", json=page_input(resume=resume)) as running:
            running.read_until("TEXT_MESSAGE_CONTENT")
            assert transport(server).stop("default", "t", {"runId": "r"}).json()["stopped"] is True
            assert types(running.rest())[-1] == "RUN_FINISHED"


@pytest.mark.parametrize(
    ("body", "error"),
    [({"runId": 7}, "Invalid runId"), ({"runId": " "}, "Invalid runId"), ({"x": 1}, "Invalid stop request")],
)
def test_a_stop_request_that_is_none_is_400(transport: Any, body: Any, error: str) -> None:
    with serving(make()) as server:
        answer = transport(server).stop("default", "t", body)
        assert (answer.status_code, answer.json()["error"]) == (400, error)


# Threads


def test_threads_are_listed_renamed_archived_and_deleted(store: Any, transport: Any) -> None:
    with serving(make(store=store)) as server:
        client = transport(server)
        for name in ("a", "b"):
            events_of(client.agent("run", "default", page_input(name)))
        events_of(client.agent("run", "research", page_input("c")))

        def listed(query: str = "") -> list[str]:
            return [one["id"] for one in client.resource("GET", f"/threads{query}").json()["threads"]]

        assert listed() == ["c", "b", "a"]
        assert listed("?agentId=default") == ["b", "a"]
        assert listed("?agentId=nobody") == []
        (record,) = client.resource("GET", "/threads?agentId=research").json()["threads"]
        assert record == {
            "id": "c",
            "name": None,
            "agentId": "research",
            "organizationId": "",
            "createdById": "",
            "archived": False,
            "createdAt": record["createdAt"],
            "updatedAt": record["updatedAt"],
        }
        for time in (record["createdAt"], record["updatedAt"]):
            assert time.endswith("Z")
            assert datetime.fromisoformat(time).year >= 2024

        renamed = client.resource("PATCH", "/threads/a", {"agentId": "default", "name": "Eagles"})
        assert (renamed.status_code, renamed.json()["name"], renamed.json()["id"]) == (200, "Eagles", "a")
        archived = client.resource("POST", "/threads/a/archive", {"agentId": "default"})
        assert (archived.status_code, archived.json()) == (200, {"threadId": "a", "archived": True})
        assert listed("?agentId=default") == ["b"]
        assert listed("?agentId=default&includeArchived=true") == ["b", "a"]
        restored = client.resource("PATCH", "/threads/a", {"agentId": "default", "archived": False})
        assert (restored.json()["archived"], restored.json()["name"]) == (False, "Eagles")
        deleted = client.resource("DELETE", "/threads/a", {"agentId": "default"})
        assert (deleted.status_code, deleted.json()) == (200, {"threadId": "a", "deleted": True})
        assert listed() == ["c", "b"]


def test_threads_come_in_pages(transport: Any) -> None:
    with serving(make()) as server:
        client = transport(server)
        for name in "abcde":
            events_of(client.agent("run", "default", page_input(name)))
        seen: list[str] = []
        cursor = ""
        while True:
            page = client.resource("GET", f"/threads?agentId=default&limit=2{cursor}").json()
            seen += [one["id"] for one in page["threads"]]
            if page["nextCursor"] is None:
                break
            cursor = f"&cursor={page['nextCursor']}"
        assert seen == list("edcba")
        assert client.resource("GET", "/threads?limit=none").status_code == 400


def test_a_change_of_a_thread_that_is_not_there_or_of_another_agent_is_404(transport: Any) -> None:
    with serving(make()) as server:
        client = transport(server)
        events_of(client.agent("run", "default", page_input()))
        for path, agent in (("/threads/none", "default"), ("/threads/t", "research")):
            for method, below in (("PATCH", ""), ("DELETE", ""), ("POST", "/archive")):
                answer = client.resource(method, path + below, {"agentId": agent, "name": "x"})
                assert answer.status_code == 404
                assert answer.json()["error"] == "Not found"
                assert answer.json()["message"]
        answer = client.resource("PATCH", "/threads/t", {"agentId": "default", "name": 7})
        assert (answer.status_code, answer.json()["error"]) == (400, "Invalid request body")
        assert "/name" in answer.json()["details"]
        assert client.resource("PATCH", "/threads/t", {"agentId": 7}).status_code == 400


def test_a_thread_that_runs_is_neither_deleted_nor_cleared(store: Any, transport: Any) -> None:
    agent = Held()
    with serving(make(agent, store=store)) as server:
        client = transport(server)
        for name in ("a", "b"):
            events_of(client.agent("run", "research", page_input(name)))
        with server.stream("POST", f"{BASE}/agent/default/run", json=page_input()) as running:
            running.read_until("TEXT_MESSAGE_CONTENT")
            answer = client.resource("DELETE", "/threads/t", {"agentId": "default"})
            assert (answer.status_code, answer.json()["code"]) == (409, "thread_busy")
            assert client.resource("POST", "/threads/clear", {}).status_code == 204
            assert [one["threadId"] for one in server.get("/threads").json()["threads"]] == ["t"]
            agent.gate("r").open()
            running.rest()
        wait_until(lambda: client.resource("POST", "/threads/clear", {}).status_code == 204 and not listed(server))


def listed(server: Server) -> list[Any]:
    return server.get("/threads").json()["threads"]


def test_clearing_is_for_the_agent_that_the_body_names(transport: Any) -> None:
    with serving(make()) as server:
        client = transport(server)
        client.agent("run", "default", page_input("t1", "r1", messages=[user_json("m1", "Hi")]))
        client.agent("run", "research", page_input("t2", "r2", messages=[user_json("m1", "Hi")]))
        assert client.resource("POST", "/threads/clear", {"agentId": 5}).status_code == 400
        assert client.resource("POST", "/threads/clear", {"agentId": "research"}).status_code == 204
        assert [one["id"] for one in server.get(f"{BASE}/threads").json()["threads"]] == ["t1"]


def test_a_thread_of_another_agent_than_the_query_names_is_empty(transport: Any) -> None:
    with serving(make()) as server:
        client = transport(server)
        client.agent("run", "default", page_input("t", "r", messages=[user_json("m1", "Hi")]))
        for name, empty in (("messages", []), ("events", []), ("state", None)):
            assert client.resource("GET", f"/threads/t/{name}").json()[name]
            assert client.resource("GET", f"/threads/t/{name}?agentId=default").json()[name]
            assert client.resource("GET", f"/threads/t/{name}?agentId=research").json()[name] == empty


def test_a_wrong_query_parameter_is_not_called_a_body() -> None:
    with serving(make()) as server:
        refused = server.get(f"{BASE}/threads?limit=abc")
    assert refused.status_code == 400
    assert refused.json()["error"] == "Invalid query parameter"


def test_clearing_leaves_the_threads_of_others() -> None:
    def who(request: Any) -> Any:
        return Principal(scope=request.headers["authorization"])

    with serving(make(authenticate=who, allow_anonymous=False)) as server:
        alice, bob = server.peer(authorization="alice"), server.peer(authorization="bob")
        for peer in (alice, bob):
            assert peer.post(f"{BASE}/agent/default/run", json=page_input()).status_code == 200
        assert alice.post(f"{BASE}/threads/clear").status_code == 204
        assert alice.get(f"{BASE}/threads").json()["threads"] == []
        assert len(bob.get(f"{BASE}/threads").json()["threads"]) == 1
        assert bob.get(f"{BASE}/info").json()["threadEndpoints"]["mutations"] is True
        for peer in (alice, bob):
            peer.close()


def test_messages_state_and_events_are_for_inspection(store: Any, transport: Any) -> None:
    async def agent(run: Any) -> None:
        run.state["step"] = 1
        call = await run.tool_call("search", {"q": "eagles"})
        await call.result("two eagles")
        await run.say("Found.")

    with serving(make(agent, store=store)) as server:
        client = transport(server)
        sent = events_of(client.agent("run", "default", page_input(messages=[user_json("u", "Find")])))
        messages = client.resource("GET", "/threads/t/messages").json()["messages"]
        assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
        assert messages[0] == {"id": "u", "role": "user", "content": "Find"}
        (call,) = messages[1]["toolCalls"]
        assert (call["name"], json.loads(call["args"])) == ("search", {"q": "eagles"})
        assert (messages[2]["toolCallId"], messages[2]["content"]) == (call["id"], "two eagles")
        assert messages[3]["content"] == "Found."
        assert client.resource("GET", "/threads/t/state").json() == {"state": {"step": 1}}
        events = client.resource("GET", "/threads/t/events").json()["events"]
        check_valid(events)
        assert types(events)[0] == "RUN_STARTED"
        assert types(events)[-1] == "RUN_FINISHED"
        assert text_of(events) == text_of(sent)
        events_of(client.agent("run", "default", page_input(run_id="r2", messages=[user_json("u2", "Again")])))
        assert types(client.resource("GET", "/threads/t/events").json()["events"]).count("RUN_STARTED") == 2


def test_a_thread_that_is_not_there_has_nothing_to_inspect(transport: Any) -> None:
    with serving(make()) as server:
        client = transport(server)
        assert client.resource("GET", "/threads/none/messages").json() == {"messages": []}
        assert client.resource("GET", "/threads/none/state").json() == {"state": None}
        assert client.resource("GET", "/threads/none/events").json() == {"events": []}


def test_a_thread_id_may_hold_anything(transport: Any) -> None:
    with serving(make()) as server:
        client = transport(server)
        events_of(client.agent("run", "default", page_input("a/b c")))
        renamed = client.resource("PATCH", "/threads/a%2Fb%20c", {"agentId": "default", "name": "x"})
        assert (renamed.status_code, renamed.json()["id"]) == (200, "a/b c")


# The rest


def test_there_is_no_transcriber(transport: Any) -> None:
    with serving(make()) as server:
        if transport is Rest:
            answer = server.post(f"{BASE}/transcribe", files={"audio": b"RIFF"})
        else:
            answer = server.post(BASE, json={"method": "transcribe", "body": {"audio": "", "mimeType": "audio/wav"}})
        assert (answer.status_code, answer.json()["error"]) == (503, "service_not_configured")


@pytest.mark.parametrize(
    "path", ["annotate", "memories", "memories/1", "inspector-metadata", "inspector-learning", "cpk-debug-events", "x"]
)
def test_what_this_runtime_does_not_have_is_404(path: str) -> None:
    with serving(make()) as server:
        for method in ("GET", "POST"):
            answer = server.client.request(method, f"{BASE}/{path}")
            assert (answer.status_code, answer.json()["error"]) == (404, "Not found")
        answer = Single(server).resource("GET", f"/{path}")
        assert answer.status_code == 404


def test_a_method_that_is_not_possible_is_405() -> None:
    with serving(make()) as server:
        answer = server.post(f"{BASE}/info")
        assert (answer.status_code, answer.json()["error"]) == (405, "Method not allowed")
        assert answer.headers["allow"] == "GET, HEAD"
        assert server.get(BASE).status_code == 405
        assert Single(server).resource("GET", "/threads/clear").status_code == 405


@pytest.mark.parametrize(
    ("envelope", "message"),
    [
        ({}, "Missing method field"),
        ({"method": "agent/fly"}, "Unsupported method 'agent/fly'"),
        ({"method": ["info"]}, "Expected `str | null`, got `array` - at `$.method`"),
        ({"method": "agent/run", "params": {"agentId": "default"}}, "Missing request body"),
        ({"method": "agent/run", "body": {}}, "'agentId'"),
        ({"method": "agent/stop", "params": {"agentId": "default"}}, "'threadId'"),
        ({"method": "resource/request", "params": {"path": "/threads"}}, "'httpMethod'"),
        ({"method": "resource/request", "params": {"path": "//x/threads", "httpMethod": "GET"}}, "Runtime-relative"),
        ({"method": "resource/request", "params": {"path": "threads", "httpMethod": "GET"}}, "Runtime-relative"),
        ({"method": "resource/request", "params": [], "body": 1}, "got `array` - at `$.params`"),
        ({"method": "resource/request", "params": {}, "body": 1}, "'path'"),
        ({"method": "resource/request", "params": {"path": 1}}, "got `int` - at `$.params.path`"),
        ({"method": "agent/run", "params": {"agentId": "x" * 8193}}, "length <= 8192 - at `$.params.agentId`"),
    ],
)
def test_an_envelope_that_is_none_is_400(envelope: Any, message: str) -> None:
    with serving(make()) as server:
        answer = server.post(BASE, json=envelope)
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
        assert message in answer.json()["message"]


SIZE = scaled(1_000_000, 9_000_000)
GET_THREADS = {"httpMethod": "GET", "path": "/threads"}


@pytest.mark.anyio
@pytest.mark.parametrize(
    "envelope",
    [
        {"method": "resource/request", "params": GET_THREADS},
        {"method": "resource/request", "params": {**GET_THREADS, "path": "/threads?" + "a&" * (SIZE // 2)}},
        {"method": "resource/request", "params": {**GET_THREADS, "path": "/threads?" + "a&" * 1000}},
        {"method": "resource/request", "params": {**GET_THREADS, "path": "/%41" * (SIZE // 4)}},
        {"method": "resource/request", "params": {"httpMethod": "get" * (SIZE // 3), "path": "/threads"}},
        {"method": "resource/request", "params": {**GET_THREADS, "others": [{}] * (SIZE // 4)}},
        {"method": "resource/request", "params": {**GET_THREADS, "path": "/threads/t/messages"}, "body": "x" * SIZE},
        {"method": "x" * SIZE},
        {"method": "agent/run", "params": {"agentId": "x" * SIZE}, "body": {}},
        {"method": "agent/stop", "params": {"agentId": "default", "threadId": "x" * SIZE}},
    ],
    ids=["normal", "query", "fields", "path", "method", "others", "body", "name", "agent", "thread"],
)
async def test_a_large_envelope_does_not_block_the_event_loop(envelope: Any) -> None:
    body = json.dumps(envelope).encode()
    async with make() as app:
        slices = Slices()
        with frozen_heap():
            slices.start()
            try:
                status = await Reader(app).request("POST", BASE, body, content_type="application/json")
            finally:
                slices.stop()
    is_resource = envelope["method"] == "resource/request"
    is_fine = is_resource and (len(body) < 200 or "others" in envelope["params"] or "body" in envelope)
    assert status == (200 if is_fine else 400)
    assert slices.longest < allowed(0.05)


def test_an_envelope_is_json_and_within_the_limits() -> None:
    with serving(make()) as server:
        headers = {"content-type": "application/json"}
        assert server.post(BASE, content=b"{", headers=headers).status_code == 400
        assert (
            server.post(BASE, content=b'{"method": "info"}', headers={"content-type": "text/plain"}).status_code == 415
        )
        assert server.post(BASE, content=b" " * (11 << 20), headers=headers).status_code == 413


def test_an_envelope_cannot_reach_routes_that_are_not_threads() -> None:
    with serving(make()) as server:
        for path in ("/info", "/agent/default/stop/t", "/threads/../info", "/../threads", "/files", ""):
            answer = Single(server).resource("POST", path or "/")
            assert answer.status_code in (404, 405), path


def test_the_path_is_chosen_and_works_below_a_mount() -> None:
    from starlette.applications import Starlette

    app = App(echo, copilotkit="/api/copilotkit/", allow_anonymous=True)
    parent = Starlette(lifespan=app.lifespan)
    app.mount_on(parent, "/sub")
    with serving(parent) as server:
        assert list(server.get("/sub/api/copilotkit/info").json()["agents"]) == ["default"]
        assert server.get("/sub/copilotkit/info").status_code == 404
        client = Single(server, "/sub/api/copilotkit")
        assert (
            text_of(events_of(client.agent("run", "default", page_input(messages=[user_json("u", "x")])))) == "echo x"
        )
        assert server.post("/sub/api/copilotkit/", json={"method": "info"}).status_code == 200


def test_without_the_option_there_is_nothing() -> None:
    with serving(App(echo)) as server:
        answer = server.get("/copilotkit/info")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize("path", ["copilotkit", "/", "//", "/a//b", "/threads", "/agents/x", "/../x", 7])
def test_a_path_that_cannot_be_served_is_refused(path: Any) -> None:
    with pytest.raises(ValueError, match="copilotkit"):
        App(echo, copilotkit=path)


def test_authentication_origins_and_hosts_are_those_of_the_app() -> None:
    def who(request: Any) -> Any:
        return request.headers.get("authorization")

    app = make(authenticate=who, cors_origins=["http://page.test"], allowed_hosts=["127.0.0.1"])
    with serving(app) as server:
        answer = server.get(f"{BASE}/info")
        assert (answer.status_code, answer.json()["error"]) == (401, "Unauthorized")
        known = {"authorization": "alice"}
        assert server.post(BASE, json={"method": "info"}, headers=known).status_code == 200
        foreign = {**known, "origin": "http://other.test"}
        answer = server.post(f"{BASE}/agent/default/run", json=page_input(), headers=foreign)
        assert (answer.status_code, answer.json()["code"]) == (403, "foreign_origin")
        page = {"origin": "http://page.test"}
        preflight = server.client.options(
            f"{BASE}/threads/t", headers={**page, "access-control-request-method": "PATCH"}
        )
        assert (preflight.status_code, preflight.headers["access-control-allow-methods"]) == (204, "PATCH, DELETE")
        refused = server.get(f"{BASE}/info", headers=page)
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "http://page.test")
        assert server.get(f"{BASE}/info", headers={**known, "host": "evil.test"}).status_code == 403


def test_limits_are_those_of_the_app(transport: Any) -> None:
    from aguila.server import Limits

    agent = Held()
    with serving(make(agent, limits=Limits(runs=1))) as server:
        client = transport(server)
        with server.stream("POST", f"{BASE}/agent/default/run", json=page_input()) as running:
            running.read_until("TEXT_MESSAGE_CONTENT")
            for method in ("run", "suggest"):
                answer = client.agent(method, "default", page_input("t2", "r2"))
                assert (answer.status_code, answer.json()["error"]) == (429, "Too many runs")
            agent.gate("r").open()
            running.rest()


def test_stop_through_another_agent_does_not_withdraw_a_queued_run() -> None:
    held = Held()
    held.gate("r2").open()
    app = make(held, busy="queue")
    with serving(app) as server, server.run(thread_id="t", run_id="r1") as first:
        first.read_until("TEXT_MESSAGE_CONTENT")
        with Background(lambda: server.events(thread_id="t", run_id="r2")) as second:
            wait_until(lambda: app._service is not None and app._service.runs.admission.total == 2)
            assert Rest(server).stop("research", "t", {"runId": "r2"}).json()["stopped"] is False
            held.gate("r1").open()
            assert second.result()[-1]["outcome"] == {"type": "success"}
    assert held.calls == ["r1", "r2"]
