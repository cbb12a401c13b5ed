"""Branches of a thread, with both clients: continue from a run, edit and resend, regenerate, and the tree of runs."""

import pytest
from serving import serving

from aguila import App
from aguila.client.transports import ASGITransport
from aguila.errors import DecodeError, HTTPRejected, IllegalStep, RunFailed


@pytest.fixture(params=["client", "server"])
def history(request):
    return request.param


class Seen:
    """An agent that notes the contents it sees, and counts in the state."""

    def __init__(self):
        self.inputs = []

    async def __call__(self, run):
        self.inputs.append([message.content for message in run.messages])
        run.state["runs"] = [*run.state.get("runs", []), run.run_id]
        if run.user_text == "fail":
            raise RuntimeError
        if run.user_text == "ask":
            await run.ask("Sure?")
        yield f"re {run.user_text}"


def served(agent, **options):
    return serving(App(agent, allow_anonymous=True, **options))


def contents(thread):
    return [message.content for message in thread.messages]


@pytest.mark.parametrize("protobuf", [False, True], ids=["sse", "protobuf"])
def test_a_branch_continues_from_its_run_and_sends_only_its_messages(twin, store, history, protobuf):
    agent = Seen()
    with served(agent, store=store, history=history) as server:
        thread = twin.client(server.url, protobuf=protobuf).thread("t")
        twin.result(thread.run("one", run_id="r1"))
        twin.result(thread.run("two", run_id="r2"))
        view = twin.wait(thread.branch("r1"))
        assert (contents(view), view.state, view.branch_run_id) == (["one", "re one"], {"runs": ["r1"]}, "r1")
        twin.result(view.run("three", run_id="r3"))
        assert agent.inputs[-1] == ["one", "re one", "three"]
        # Views take turns, each on its own branch.
        other = twin.wait(thread.branch("r2"))
        twin.result(other.run("four", run_id="r4"))
        assert agent.inputs[-1] == ["one", "re one", "two", "re two", "four"]
        twin.result(view.run("five", run_id="r5"))
        assert agent.inputs[-1] == ["one", "re one", "three", "re three", "five"]
        assert view.state == {"runs": ["r1", "r3", "r5"]}
        tree = twin.wait(thread.branches())
        assert {run.run_id: run.parent_run_id for run in tree.runs} == {
            "r1": None, "r2": "r1", "r3": "r1", "r4": "r2", "r5": "r3",
        }  # fmt: skip
        assert tree.leaves == ["r4", "r5"]
        assert tree.path("r5") == ["r1", "r3", "r5"]
        assert contents(thread) == ["one", "re one", "two", "re two"]  # as it was
        assert twin.wait(other.refresh()).messages == other.messages
        assert contents(other)[-1] == "re four"


def test_a_message_is_edited_and_sent_again(twin, store, history):
    agent = Seen()
    with served(agent, store=store, history=history) as server:
        thread = twin.client(server.url).thread("t")
        for number, text in enumerate(["one", "two", "three", "four", "five"], 1):
            twin.result(thread.run(text, run_id=f"r{number}"))
        for text, parent in (("two", "r1"), ("three", "r2"), ("five", "r4")):
            edited = next(message for message in thread.messages if message.content == text)
            view = twin.wait(thread.fork(edited.id))  # of this thread's branch, whichever is the latest
            assert view.branch_run_id == parent
            twin.result(view.run(f"{text}, edited"))
            before = contents(thread)[: contents(thread).index(text)]
            assert agent.inputs[-1] == [*before, f"{text}, edited"]


@pytest.mark.parametrize("protobuf", [False, True], ids=["sse", "protobuf"])
def test_the_first_message_is_edited_and_sent_again(twin, store, history, protobuf):
    agent = Seen()
    with served(agent, store=store, history=history) as server:
        thread = twin.client(server.url, protobuf=protobuf).thread("t")
        twin.result(thread.run("one", run_id="r1"))
        twin.result(thread.run("two", run_id="r2"))
        view = twin.wait(thread.fork(thread.messages[0].id))
        assert (contents(view), view.state, view.branch_run_id) == ([], {}, None)
        assert twin.wait(view.refresh()).messages == []
        with pytest.raises(IllegalStep, match="no run to join"):
            twin.result(view.attach())
        twin.result(view.run("uno", run_id="r3"))
        assert agent.inputs[-1] == ["uno"]
        assert view.branch_run_id == "r3"
        twin.result(view.run("due", run_id="r4"))
        assert agent.inputs[-1] == ["uno", "re uno", "due"]
        assert view.state == {"runs": ["r3", "r4"]}
        again = twin.wait(thread.fork(thread.messages[1].id))  # the answer of the first run
        assert contents(again) == ["one"]
        twin.result(again.run(run_id="r5"))
        assert agent.inputs[-1] == ["one"]
        tree = twin.wait(thread.branches())
        assert {run.run_id: run.parent_run_id for run in tree.runs} == {
            "r1": None, "r2": "r1", "r3": None, "r4": "r3", "r5": None,
        }  # fmt: skip
        assert tree.leaves == ["r2", "r4", "r5"]
        assert [contents(twin.wait(thread.branch(run_id))) for run_id in tree.leaves] == [
            ["one", "re one", "two", "re two"],
            ["uno", "re uno", "due", "re due"],
            ["one", "re one"],
        ]
        assert contents(twin.wait(thread.branch("r2"))) == contents(thread)  # as it was


def test_an_answer_is_regenerated(twin, store, history):
    agent = Seen()
    with served(agent, store=store, history=history) as server:
        thread = twin.client(server.url).thread("t")
        for text in ("one", "two", "three"):
            twin.result(thread.run(text))
        view = twin.wait(thread.fork(thread.messages[3].id))  # the answer to "two"
        assert contents(view) == ["one", "re one", "two"]
        twin.result(view.run())
        assert agent.inputs[-1] == ["one", "re one", "two"]
        assert contents(view) == ["one", "re one", "two", "re two"]
        assert view.messages[3].id != thread.messages[3].id
        twin.result(view.run("four"))
        assert agent.inputs[-1] == ["one", "re one", "two", "re two", "four"]


def test_a_branch_goes_on_after_a_question_and_after_a_failure(twin, store, history):
    agent = Seen()
    with served(agent, store=store, history=history) as server:
        thread = twin.client(server.url).thread("t")
        twin.result(thread.run("one", run_id="r1"))
        twin.result(thread.run("two", run_id="r2"))
        view = twin.wait(thread.branch("r1"))
        asked = twin.result(view.run("ask", run_id="r3"))
        twin.result(thread.run("more", run_id="r4", parent_run_id="r2"))  # the other branch is not asked
        assert twin.result(view.resume({asked.interrupts[0].id: True})).text == "re ask"
        with pytest.raises(RunFailed):
            twin.result(view.run("fail", run_id="r6"))
        twin.result(view.run("again"))
        assert agent.inputs[-1] == ["one", "re one", "ask", "re ask", "fail", "again"]


@pytest.mark.parametrize("learns", ["attach", "refresh"])
def test_a_message_of_a_thread_that_was_joined_is_forked(twin, store, learns):
    agent = Seen()
    with served(agent, store=store) as server:
        client = twin.client(server.url)
        thread = client.thread("t")
        twin.result(thread.run("one", run_id="r1"))
        twin.result(thread.run("two", run_id="r2"))
        other = client.thread("t")
        if learns == "attach":
            twin.result(other.attach())  # under a run id that the server does not store
        else:
            twin.wait(other.refresh())
        twin.result(twin.wait(other.fork(thread.messages[2].id)).run("edited"))
        assert agent.inputs[-1] == ["one", "re one", "edited"]


def test_a_view_attaches_to_its_branch(twin, store):
    with served(Seen(), store=store) as server:
        thread = twin.client(server.url).thread("t")
        twin.result(thread.run("one", run_id="r1"))
        twin.result(thread.run("two", run_id="r2"))
        view = twin.wait(thread.branch("r1"))
        twin.result(view.run("three", run_id="r3"))
        twin.result(thread.run("four", run_id="r4", parent_run_id="r2"))
        twin.result(view.attach())
        assert contents(view) == ["one", "re one", "three", "re three"]
        assert twin.wait(view.fork(view.messages[2].id)).branch_run_id == "r1"


def test_what_cannot_be_branched_is_refused(twin):
    with served(Seen()) as server:
        thread = twin.client(server.url).thread("t")
        twin.result(thread.run("one"))
        with pytest.raises(HTTPRejected) as caught:
            twin.wait(thread.branch("no"))
        assert caught.value.status == 404
        with pytest.raises(IllegalStep, match="no message 'no'"):
            twin.wait(thread.fork("no"))


def test_a_server_that_does_not_return_branches_is_refused(twin):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": b'{"messages": []}'})

    thread = twin.over(lambda: ASGITransport(app)).thread("t")
    with pytest.raises(DecodeError, match="not the branch"):
        twin.wait(thread.branch("r1"))


def test_branches_over_a_transport_without_sockets(twin):
    agent = Seen()
    app = App(agent, history="server", allow_anonymous=True)
    thread = twin.over(lambda: ASGITransport(app)).thread("t")
    twin.result(thread.run("one", run_id="r1"))
    twin.result(thread.run("two", run_id="r2"))
    twin.result(twin.wait(thread.branch("r1")).run("three"))
    assert agent.inputs[-1] == ["one", "re one", "three"]
