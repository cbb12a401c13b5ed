"""Several agents in one app, and the data of threads besides the log."""

from __future__ import annotations

from typing import Any

import pytest
from serving import Held, run_input, serving, text_of
from waiting import wait_until

from aguila import App
from aguila.errors import EncodeError
from aguila.server import Principal


async def first(run: Any) -> str:
    return "first"


async def second(run: Any) -> str:
    return "second"


def two(**options: Any) -> App:
    return App({"default": first, "research": second}, allow_anonymous=True, **options)


def test_each_agent_has_its_path_and_the_root_is_the_first(store: Any) -> None:
    with serving(two(store=store)) as server:
        assert text_of(server.events(thread_id="t1")) == "first"
        assert text_of(server.events(path="/agents/default", thread_id="t2")) == "first"
        assert text_of(server.events(path="/agents/research", thread_id="t3")) == "second"
        assert text_of(server.events(path="/agents/research/", thread_id="t3", run_id="r2")) == "second"
        assert server.get("/agents").json() == {"agents": [{"name": "default"}, {"name": "research"}]}
        answer = server.post("/agents/nobody", json=run_input())
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
        assert "nobody" in answer.json()["error"]["message"]


def test_without_credentials_the_names_of_agents_cannot_be_found_out() -> None:
    def authenticate(request: Any) -> Principal | None:
        return Principal(scope="ada") if request.headers.get("authorization") == "Bearer ada" else None

    app = App({"default": first, "research": second}, authenticate=authenticate, page=True)
    requests: list[tuple[str, str, dict[str, str]]] = [
        ("POST", "", {}),
        ("GET", "", {}),
        ("GET", "/", {"accept": "text/html"}),
        ("DELETE", "/threads", {}),
        ("GET", "/threads/t", {}),
        ("GET", "/readyz", {}),
        ("OPTIONS", "", {"origin": "https://evil.example", "access-control-request-method": "POST"}),
        ("GET", "/nothing", {}),
    ]
    with serving(app) as server:
        for method, path, headers in requests:
            known, unknown = (
                server.client.request(method, f"/agents/{name}{path}", headers=headers)
                for name in ("research", "nobody12")
            )
            assert known.status_code == unknown.status_code
            assert known.text.replace("research", "nobody12") == unknown.text
        assert server.client.post("/agents/nobody12").status_code == 401
        assert server.client.post("/agents/nobody12", headers={"authorization": "Bearer ada"}).status_code == 404


def test_a_run_of_another_agent_on_a_thread_is_refused(store: Any) -> None:
    with serving(two(store=store)) as server:
        server.events(path="/agents/research", thread_id="t", run_id="r1")
        for run_id in ("r1", "r2"):  # the same request as before is still one of another agent
            for path in ("/", "/agents/default"):
                answer = server.post(path, json=run_input("t", run_id))
                assert (answer.status_code, answer.json()["error"]["code"]) == (409, "wrong_agent")
                assert "'research'" in answer.json()["error"]["message"]
        again = server.events(path="/agents/research", thread_id="t", run_id="r1")
        assert again[0]["runId"] == "r1"
        assert text_of(server.events(path="/agents/research", thread_id="t", run_id="r2")) == "second"


def test_below_an_agent_only_its_own_threads_are_there(store: Any) -> None:
    with serving(two(store=store)) as server:
        server.events(thread_id="t1", run_id="r")
        server.events(path="/agents/research", thread_id="t2", run_id="r")

        def listed(path: str) -> list[tuple[str, str]]:
            return [(one["threadId"], one["agent"]) for one in server.get(path).json()["threads"]]

        assert listed("/threads") == [("t2", "research"), ("t1", "default")]
        assert listed("/agents/default/threads") == [("t1", "default")]
        assert listed("/agents/research/threads") == [("t2", "research")]
        below = "/agents/default/threads/t2"
        for path in ("", "/events", "/runs/r", "/runs/r/events"):
            assert server.get(below + path).status_code == 404
            assert server.get("/agents/research/threads/t2" + path).status_code == 200
            assert server.get("/threads/t2" + path).status_code == 200
        for query in ("threadId=t2", "offset=-1&runId=r&threadId=t2"):  # as TanStack AI asks
            assert server.get(f"/agents/default?{query}").status_code == 404
            assert server.get(f"/agents/research?{query}").status_code == 200
        for path in ("/runs/r/cancel", "/cancel"):
            assert server.post(below + path).status_code == 404
        assert server.client.patch(below, json={"title": "mine"}).status_code == 404
        assert server.delete(below).status_code == 404
        assert server.post("/agents/default/connect", json=run_input("t2", "c")).status_code == 404
        assert server.get("/threads/t2").json()["agent"] == "research"
        assert server.get("/threads/t2/runs/r").json()["agent"] == "research"
        connected = server.events(path="/agents/research/connect", thread_id="t2", run_id="c")
        assert any(event["type"] == "MESSAGES_SNAPSHOT" for event in connected)
        assert server.delete("/agents/research/threads/t2").status_code == 204


def test_a_question_is_answered_by_the_agent_that_asked(store: Any) -> None:
    async def asking(run: Any) -> str:
        return f"answer {await run.ask('Well?')}"

    app = App({"default": first, "asking": asking}, store=store)
    with serving(app) as server:
        (interrupt,) = server.events(path="/agents/asking", run_id="r1")[-1]["outcome"]["interrupts"]
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": "yes"}]
        answer = server.post("/", json=run_input(run_id="r2", resume=resume))
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "wrong_agent")
        assert text_of(server.events(path="/agents/asking", run_id="r2", resume=resume)) == "answer yes"
        for path in ("/", "/agents/default"):  # no request attaches to a run of another agent
            for answers in (
                {"run_id": "r2", "resume": resume},
                {"run_id": "r1", "resume": resume},
                {"run_id": "r3", "forwardedProps": {"command": {"resume": "yes"}}},
            ):
                answer = server.post(path, json=run_input(**answers))
                assert (answer.status_code, answer.json()["error"]["code"]) == (409, "wrong_agent"), answers


def test_files_health_and_capabilities_are_below_an_agent_too() -> None:
    with serving(two(capabilities={"identity": {"name": "ours"}})) as server:
        names = {
            path: server.get(f"{path}/capabilities").json()["identity"]["name"]
            for path in ("", "/agents/default", "/agents/research")
        }
        assert names == {"": "ours", "/agents/default": "default", "/agents/research": "research"}
        assert server.get("/agents/research/healthz").status_code == 200
        upload = server.post("/agents/research/files", content=b"data", headers={"content-type": "text/plain"})
        assert upload.status_code in (200, 201)
        assert server.get("/agents/default/threads?limit=0").status_code == 422


def test_an_agent_alone_is_called_default(store: Any) -> None:
    with serving(App(second, store=store, allow_anonymous=True)) as server:
        server.events(path="/agents/default")
        assert text_of(server.events(run_id="r2")) == "second"
        assert server.get("/threads").json()["threads"][0]["agent"] == "default"
        assert "identity" not in server.get("/capabilities").json()


@pytest.mark.parametrize("name", ["", "a/b", "a b", "ä", ".", "-a", "a" * 65, 7, None])
def test_a_name_that_no_path_can_hold_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match="cannot name an agent"):
        App({name: first})


def test_agents_are_checked_when_the_app_is_made() -> None:
    with pytest.raises(ValueError, match="at least one agent"):
        App({})
    with pytest.raises(TypeError, match="is not callable"):
        App({"default": first, "other": "no agent"})


# Titles, flags and metadata


def test_a_thread_is_renamed_archived_and_described(store: Any) -> None:
    with serving(App(first, store=store, allow_anonymous=True)) as server:
        server.events(thread_id="t")
        server.events(thread_id="u")
        answer = server.client.patch("/threads/t", json={"title": "Eagles", "metadata": {"pinned": True}})
        assert answer.status_code == 200
        shown = answer.json()
        assert (shown["threadId"], shown["title"], shown["archived"], shown["metadata"]) == (
            "t", "Eagles", False, {"pinned": True},
        )  # fmt: skip
        assert server.client.patch("/threads/t", json={"archived": True}).json()["title"] == "Eagles"
        listed = server.get("/threads").json()["threads"]
        assert [(one["threadId"], one["title"], one["archived"]) for one in listed] == [
            ("u", None, False),
            ("t", "Eagles", True),
        ]
        assert [one["threadId"] for one in server.get("/threads?archived=true").json()["threads"]] == ["t"]
        assert [one["threadId"] for one in server.get("/threads?archived=false").json()["threads"]] == ["u"]
        whole = server.get("/threads/t").json()
        assert (whole["title"], whole["archived"], whole["metadata"]) == ("Eagles", True, {"pinned": True})
        shown = server.client.patch("/threads/t", json={"title": None, "metadata": None}).json()
        assert (shown["title"], shown["archived"], shown["metadata"]) == (None, True, None)


def test_threads_are_listed_by_a_member_of_their_metadata(store: Any) -> None:
    with serving(App(first, store=store, allow_anonymous=True)) as server:
        for thread_id, metadata in {"t": {"project": "x"}, "u": {"project": "y"}, "v": None}.items():
            server.events(thread_id=thread_id)
            server.client.patch(f"/threads/{thread_id}", json={"metadata": metadata})

        def listed(query: str) -> list[str]:
            return [one["threadId"] for one in server.get(f"/threads?{query}").json()["threads"]]

        assert listed("metadataKey=project") == ["u", "t"]
        assert listed("metadataKey=project&metadataValue=x") == ["t"]
        page = server.get("/threads?metadataKey=project&limit=1").json()
        assert listed(f"metadataKey=project&before={page['next']}") == ["t"]
        answer = server.get("/threads?metadataValue=x")
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "bad_parameter")


@pytest.mark.parametrize("ends", ["success", "error", "interrupt"])
def test_an_agent_titles_its_thread(store: Any, ends: str) -> None:
    seen: list[str | None] = []

    async def titles(run: Any) -> None:
        seen.append(run.title)
        if run.title is None:
            run.title = f"About {run.user_text}"
        if ends == "error":
            raise RuntimeError
        if ends == "interrupt":
            await run.ask("Why?")

    with serving(App(titles, store=store, allow_anonymous=True)) as server:
        sent = {"messages": [{"id": "m", "role": "user", "content": "eagles"}]}
        server.events(thread_id="t", run_id="r1", **sent)
        assert server.get("/threads").json()["threads"][0]["title"] == "About eagles"
        assert seen == [None]
        if ends == "interrupt":
            return
        server.client.patch("/threads/t", json={"title": "Hawks"})
        server.events(thread_id="t", run_id="r2", **sent)
        assert server.get("/threads/t").json()["title"] == "Hawks"
        assert seen == [None, "Hawks"]


def test_a_thread_without_a_title_gets_the_beginning_of_its_first_message(store: Any) -> None:
    held = Held()
    image = {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}}
    contents: dict[str, Any] = {
        "text": " How do\neagles  sleep? " + "Tell me more. " * 9,
        "parts": [image, {"type": "text", "text": "What is this?"}],
        "image": [image],
        "renamed": "eagles",
    }
    with serving(App(held, store=store, allow_anonymous=True)) as server:
        for thread, content in contents.items():
            messages = [{"id": f"m-{thread}", "role": "user", "content": content}]
            with server.stream("POST", "/", json=run_input(thread, thread, messages=messages)) as stream:
                held.gate(thread).await_reached()
                if thread == "renamed":
                    server.client.patch("/threads/renamed", json={"title": "Hawks"})
                held.gate(thread).open()
                assert stream.frames()
        titles = {one["threadId"]: one["title"] for one in server.get("/threads").json()["threads"]}
        assert titles == {
            "text": "How do eagles sleep? Tell me more. Tell me more. Tell me mor",
            "parts": "What is this?",
            "image": None,
            "renamed": "Hawks",
        }
        server.client.patch("/threads/parts", json={"title": None})
        held.gate("again").open()
        server.events(thread_id="parts", run_id="again", messages=[{"id": "m2", "role": "user", "content": "More"}])
        assert server.get("/threads/parts").json()["title"] is None


def test_a_plain_function_titles_its_thread_and_removes_the_title() -> None:
    def titles(run: Any) -> None:
        run.title = None if run.title == "Eagles" else "Eagles"

    with serving(App(titles, allow_anonymous=True)) as server:
        for run_id, expected in (("r1", "Eagles"), ("r2", None)):
            server.events(thread_id="t", run_id=run_id)
            assert server.get("/threads/t").json()["title"] == expected


@pytest.mark.parametrize("title", [7, "x" * 501, "\ud800"])
def test_what_is_no_title_is_refused_where_the_agent_sets_it(title: Any) -> None:
    async def titles(run: Any) -> str:
        with pytest.raises(EncodeError, match=r"run\.title"):
            run.title = title
        return "refused"

    with serving(App(titles, allow_anonymous=True)) as server:
        assert text_of(server.events(thread_id="t")) == "refused"
        assert server.get("/threads/t").json()["title"] is None


def test_a_run_that_is_not_stored_cannot_title_its_thread() -> None:
    async def titles(run: Any) -> None:
        run.title = "Eagles"

    with serving(App(titles, allow_anonymous=True)) as server:
        assert server.events(path="/?store=false", thread_id="t")[-1]["code"] == "run_not_stored"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"title": 7}, "bad_title"),
        ({"title": "x" * 501}, "bad_title"),
        ({"archived": "yes"}, "bad_archived"),
        ({"archived": None}, "bad_archived"),
        ({"metadata": [1]}, "bad_metadata"),
        ({"metadata": {"a": "x" * 20_000}}, "too_large"),
        ({"name": "Eagles"}, "unknown_member"),
        ([], "bad_json"),
    ],
)
def test_what_is_no_change_of_a_thread_is_refused_and_changes_nothing(body: Any, code: str) -> None:
    with serving(App(first, allow_anonymous=True)) as server:
        server.events(thread_id="t")
        answer = server.client.patch("/threads/t", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, code)
        shown = server.get("/threads").json()["threads"][0]
        assert (shown["title"], shown["archived"], shown["metadata"]) == (None, False, None)


def test_half_a_character_is_no_title() -> None:
    with serving(App(first, allow_anonymous=True)) as server:
        server.events(thread_id="t")
        answer = server.client.patch(
            "/threads/t", content=b'{"title": "\\ud800"}', headers={"content-type": "application/json"}
        )
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "bad_title")
        answer = server.client.patch("/threads/t", content=b"{}", headers={"content-type": "text/plain"})
        assert answer.status_code == 415


def test_changing_a_thread_needs_the_rights_of_its_owner() -> None:
    with serving(App(first)) as server:
        server.events(thread_id="t")
        answer = server.client.patch("/threads/t", json={"title": "mine"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "anonymous_not_allowed")

    def who(request: Any) -> Any:
        return Principal(scope=request.headers["authorization"])

    with serving(App(first, authenticate=who)) as server:
        alice, bob = server.peer(authorization="alice"), server.peer(authorization="bob")
        alice.events(thread_id="t")
        assert bob.client.patch("/threads/t", json={"title": "mine"}).status_code == 404
        assert alice.client.patch("/threads/t", json={"title": "mine"}).status_code == 200
        assert alice.client.patch("/threads/none", json={"title": "mine"}).status_code == 404
        assert bob.post("/threads/t/cancel").status_code == 404
        alice.close()
        bob.close()


def test_whatever_runs_on_a_thread_is_cancelled_without_its_run_id(store: Any) -> None:
    agent = Held()
    with serving(App(agent, store=store, allow_anonymous=True)) as server:
        assert server.post("/threads/thread/cancel").status_code == 404
        with server.run() as stream:
            stream.read_until("TEXT_MESSAGE_CONTENT")
            assert server.get("/threads").json()["threads"][0]["runningRunId"] == "run"
            answer = server.post("/threads/thread/cancel")
            assert (answer.status_code, answer.json()["runId"]) == (202, "run")
            assert stream.rest()[-1]["outcome"] == {"type": "cancelled"}
        wait_until(lambda: server.status_of("thread", "run") == "cancelled")
        answer = server.post("/threads/thread/cancel")
        assert (answer.status_code, answer.json()) == (
            200, {"threadId": "thread", "runId": None, "status": "idle", "cancelRequested": False},
        )  # fmt: skip
