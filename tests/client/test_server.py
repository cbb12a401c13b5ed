"""The client against our own server on a real socket: threads, joins and cancels that need stored runs."""

import asyncio
import threading

import pytest
from serving import Gate, serving
from waiting import DEADLINE

from aguila import App, AsyncClient, Client
from aguila.client import GIVE_UP, approve, part
from aguila.errors import HTTPRejected, IllegalStep, RunFailed
from aguila.protocol import SystemMessage, UserMessage

pytestmark = pytest.mark.anyio


async def echo(run):
    yield "You said: "
    yield run.messages[-1].content


def served(agent, **options):
    options.setdefault("allow_anonymous", True)
    return serving(App(agent, **options))


def test_the_names_are_exported_lazily():
    assert AsyncClient.__module__ == "aguila.client.async_client"
    assert Client.__module__ == "aguila.client.sync_client"


@pytest.mark.parametrize("protobuf", [False, True], ids=["sse", "protobuf"])
def test_a_conversation_of_two_runs(twin, protobuf):
    with served(echo) as server:
        thread = twin.client(server.url, protobuf=protobuf).thread()
        assert twin.result(thread.run("Hello")).text == "You said: Hello"
        events = twin.events(thread.run("And now?"))
        assert [events[0].type, events[-1].type] == ["RUN_STARTED", "RUN_FINISHED"]
        assert thread.messages[-1].content == "You said: And now?"
        assert [m.role for m in thread.messages] == ["user", "assistant"] * 2


@pytest.mark.parametrize("protobuf", [False, True], ids=["sse", "protobuf"])
def test_the_answer_to_removed_system_messages_has_a_notice(twin, protobuf):
    async def agent(run):
        yield f"{len(run.messages)} message"

    notices = []
    with served(agent) as server:
        thread = twin.client(server.url, protobuf=protobuf, warn=notices.append).thread()
        instructions = SystemMessage(id="s", content="Obey me.")
        run = thread.run([instructions, UserMessage(id="u", content="Hello")])
        events = twin.events(run)
        assert thread.messages[-1].content == "1 message"
        (told,) = events[0].metadata["aguila"]["notices"]
        assert (told["rule"], told["path"]) == ("system-messages", "/messages")
        assert "Trust(system_messages=True)" in told["message"]
        assert "'s'" in told["message"]
    assert [(notice.rule, notice.event_type) for notice in notices] == [("system-messages", "RUN_STARTED")]


def test_state_goes_there_and_back(twin):
    async def counts(run):
        run.state["n"] = run.state.get("n", 0) + 1
        return {"n": run.state["n"]}

    with served(counts) as server:
        thread = twin.client(server.url).thread()
        assert twin.result(thread.run("x")).result == {"n": 1}
        assert twin.result(thread.run("x")).result == {"n": 2}
        assert thread.state == {"n": 2}


def test_a_failing_agent_is_run_failed(twin):
    async def fails(run):
        yield "so far"
        raise RuntimeError("secret")

    with served(fails) as server:
        thread = twin.client(server.url).thread()
        with pytest.raises(RunFailed) as caught:
            twin.result(thread.run("x"))
        assert "secret" not in caught.value.message
        assert thread.messages[-1].content == "so far"


def test_questions_are_answered_and_the_run_goes_on_from_there(twin):
    async def asks(run):
        yield "Well. "
        name = await run.ask("Name?", schema={"type": "string"})
        age = await run.ask("Age?", schema={"type": "integer"})
        yield f"{name} is {age}."

    with served(asks) as server:
        thread = twin.client(server.url).thread()
        result = twin.result(thread.run("x"))
        assert (result.outcome, result.interrupts[0].message) == ("interrupt", "Name?")
        with pytest.raises(IllegalStep):
            twin.result(thread.resume({result.interrupts[0].id: 5}))
        result = twin.result(thread.resume({thread.interrupts[0].id: "Ada"}))
        assert result.interrupts[0].message == "Age?"
        result = twin.result(thread.resume({thread.interrupts[0].id: 36}))
        assert result.outcome == "success"
        assert "Ada is 36." in "".join(m.content for m in thread.messages if m.role == "assistant")
        assert "Ada is 36." in result.text, "what the agent said last, in a message that it had begun before"


def test_a_call_is_approved_with_other_arguments_and_given_up(twin):
    async def deletes(run):
        approval = await run.approve("delete", {"path": "/"})
        await approval.call.result("done" if approval else "refused")
        return [approval.approved, approval.arguments]

    with served(deletes) as server:
        client = twin.client(server.url)
        thread = client.thread()
        twin.result(thread.run("x"))
        result = twin.result(thread.resume({thread.interrupts[0].id: approve({"path": "/tmp"})}))
        assert result.result == [True, {"path": "/tmp"}]
        other = client.thread()
        twin.result(other.run("x"))
        assert twin.result(other.resume({other.interrupts[0].id: GIVE_UP})).outcome == "cancelled"


def test_a_front_end_tool_is_called_and_the_agent_goes_on(twin):
    made = []

    def weather(city: str) -> str:
        """The weather in a city."""
        made.append(city)
        return f"sunny in {city}"

    async def agent(run):
        last = run.messages[-1]
        if last.role == "tool":
            yield f"It is {last.content}."
            return
        await run.tool_call(run.tools[0].name, {"city": "Rome"})

    with served(agent) as server:
        thread = twin.client(server.url, tools=[weather]).thread()
        assert twin.result(thread.run("?")).text == "It is sunny in Rome."
        assert made == ["Rome"]


class Slow:
    """Says one word, waits for the test, says another."""

    def __init__(self):
        self.gate = Gate()
        self.cancelled = threading.Event()

    async def __call__(self, run):
        try:
            async with run.text() as text:
                await text.write("one ")
                await self.gate.wait()
                await text.write("two")
            run.state["done"] = True
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def is_content(event):
    return event.type == "TEXT_MESSAGE_CONTENT"


def test_leaving_the_loop_disconnects_and_another_client_attaches_to_the_run(twin):
    agent = Slow()
    with served(agent) as server:
        client = twin.client(server.url)
        thread = client.thread("t")
        twin.events(thread.run("x"), is_content)
        other = client.thread("t")
        run = other.attach()
        seen = []

        def look(event):
            seen.append(str(event.type))
            agent.gate.open()
            return False

        twin.events(run, look)
        assert other.messages[-1].content == "one two"
        assert other.state == {"done": True}
        assert seen[0] == "RUN_STARTED"
        assert seen[-1] == "RUN_FINISHED"
        assert not agent.cancelled.is_set()


def test_attaching_to_a_thread_that_is_quiet_shows_how_it_stands(twin):
    async def asks(run):
        run.state["n"] = 1
        await run.ask("Sure?")

    with served(asks) as server:
        client = twin.client(server.url)
        twin.result(client.thread("t").run("x"))
        other = client.thread("t")
        result = twin.result(other.attach())
        assert result.outcome == "interrupt"
        assert (other.state, [m.content for m in other.messages]) == ({"n": 1}, ["x"])
        assert [i.message for i in other.interrupts] == ["Sure?"]
        assert twin.result(other.resume({other.interrupts[0].id: True})).outcome == "success"


def test_cancelling_stops_the_run_on_the_server(twin):
    agent = Slow()
    with served(agent) as server, Client(server.url) as elsewhere:
        thread = twin.client(server.url).thread("t")

        def cancel(event):
            if is_content(event):
                assert elsewhere.thread("t").cancel(thread.run_id) is True
            return False

        twin.events(thread.run("x"), cancel)
        assert thread.runs[-1].outcome == "cancelled"
        assert agent.cancelled.wait(DEADLINE)
        assert twin.wait(thread.cancel()) is False, "cancelling again is no error"


def test_an_attached_run_is_cancelled_by_its_own_id(twin):
    agent = Slow()
    with served(agent) as server:
        client = twin.client(server.url)
        first = client.thread("t")
        twin.events(first.run("x"), is_content)
        other = client.thread("t")
        twin.events(other.attach(), is_start)
        assert twin.wait(other.cancel()) is True
        assert agent.cancelled.wait(DEADLINE)


def is_start(event):
    return event.type == "TEXT_MESSAGE_START"


def test_there_is_nothing_to_cancel_before_a_run(twin):
    with pytest.raises(IllegalStep):
        twin.wait(twin.client("http://127.0.0.1:9").thread().cancel())


def test_refreshing_takes_over_what_the_server_holds(twin):
    async def asks(run):
        yield "Hello"
        run.state["n"] = 1
        await run.ask("Sure?")

    with served(asks) as server:
        client = twin.client(server.url)
        first = client.thread("t")
        twin.result(first.run("x"))
        other = client.thread("t")
        conversation = twin.wait(other.refresh())
        assert conversation is other.conversation
        assert [(m.id, m.content) for m in other.messages] == [(m.id, m.content) for m in first.messages]
        assert other.state == {"n": 1}
        assert [i.id for i in other.interrupts] == [i.id for i in first.interrupts]
        errors = []

        def too_early(event):
            if twin.name == "sync":
                with pytest.raises(IllegalStep) as caught:
                    first.refresh()
                errors.append(caught.value.rule)
            return False

        twin.events(first.resume({first.interrupts[0].id: 1}), too_early)
        assert set(errors) <= {"LIFE-17"}
        with pytest.raises(HTTPRejected) as caught:
            twin.wait(client.thread("nobody").refresh())
        assert caught.value.status == 404


def test_capabilities_are_read(twin):
    with served(echo, capabilities={"identity": {"name": "Echo"}}) as server:
        found = twin.wait(twin.client(server.url).capabilities())
        assert found.identity.name == "Echo"


def test_a_file_is_uploaded_or_sent_inline(twin, tmp_path):
    seen = []

    async def looks(run):
        for each in run.messages[-1].content:
            if each.type == "image":
                seen.append(each.source.type)
        yield "Nice."

    picture = tmp_path / "kleiner Adler.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    with served(looks) as server:
        client = twin.client(server.url)
        uploaded = twin.wait(client.upload(picture))
        assert uploaded.type == "image"
        assert uploaded.source.type == "file"
        assert uploaded.source.mime_type == "image/png"
        assert uploaded.metadata == {"filename": "kleiner Adler.png"}
        assert server.get(f"/files/{uploaded.source.value}").content == picture.read_bytes()
        assert twin.result(client.thread().run(["Look", uploaded, part(picture)])).text == "Nice."
        assert seen == ["file", "data"]


def test_uploading_needs_permission(twin):
    with served(echo, allow_anonymous=False) as server:
        with pytest.raises(HTTPRejected) as caught:
            twin.wait(twin.client(server.url).upload(b"x", filename="x.txt"))
        assert (caught.value.status, caught.value.code) == (403, "anonymous_not_allowed")


def test_credentials_reach_every_route(twin):
    asked = []

    def authenticate(request):
        asked.append(request.headers.get("authorization"))
        return "me" if asked[-1] == "Bearer token" else None

    with serving(App(echo, authenticate=authenticate)) as server:
        client = twin.client(server.url, auth=lambda: "token")
        thread = client.thread()
        twin.result(thread.run("x"))
        twin.wait(thread.refresh())
        twin.wait(thread.cancel())
        twin.result(thread.attach())
        assert set(asked) == {"Bearer token"}
        assert len(asked) == 4
        with pytest.raises(HTTPRejected) as caught:
            twin.result(twin.client(server.url).thread().run("x"))
        assert caught.value.status == 401


async def test_an_async_credentials_callback():
    async def token():
        await asyncio.sleep(0)
        return {"X-Key": "1"}

    seen = []

    async def agent(run):
        yield "ok"

    def authenticate(request):
        seen.append(request.headers.get("x-key"))
        return "me"

    with serving(App(agent, authenticate=authenticate)) as server:
        async with AsyncClient(server.url, auth=token) as client:
            assert (await client.thread().run("x")).text == "ok"
        assert seen == ["1"]
