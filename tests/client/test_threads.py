"""Threads on the server, with both clients: list, rename, delete."""

import pytest
from serving import Gate, serving

from aguila import App
from aguila.client import ThreadInfo
from aguila.client.transports import ASGITransport
from aguila.errors import DecodeError, HTTPRejected


async def echo(run):
    yield f"You said: {run.user_text}"


def served(agent, **options):
    return serving(App(agent, allow_anonymous=True, **options))


def test_threads_are_listed_last_updated_first_over_several_pages(twin):
    with served(echo) as server:
        client = twin.client(server.url)
        for number in range(53):  # a page has 50
            twin.result(client.thread(f"t{number}").run("x"))
        found = twin.events(client.threads())
        assert [one.thread_id for one in found] == [f"t{number}" for number in reversed(range(53))]
        assert (found[0].runs, found[0].running_run_id, found[0].title) == (1, None, "x")


def test_threads_are_selected_by_flag_and_metadata(twin):
    with served(echo) as server:
        client = twin.client(server.url + "/agents/default")
        for thread_id, changes in {
            "a": {"archived": True},
            "b": {"metadata": {"project": "x & y"}},
            "c": {"metadata": {"project": "z"}},
        }.items():
            twin.result(client.thread(thread_id).run("x"))
            server.client.patch(f"/threads/{thread_id}", json=changes)

        def listed(**wanted):
            return "".join(one.thread_id for one in twin.events(client.threads(**wanted)))

        assert listed(archived=True) == "a"
        assert listed(archived=False) == "cb"
        assert listed(metadata_key="project") == "cb"
        assert listed(metadata_key="project", metadata_value="x & y") == "b"


def test_a_thread_is_renamed(twin):
    with served(echo) as server:
        client = twin.client(server.url)
        thread = client.thread("t")
        twin.result(thread.run("x"))
        renamed = twin.wait(thread.rename("Eagles"))
        assert isinstance(renamed, ThreadInfo)
        assert [one.title for one in twin.events(client.threads())] == [renamed.title] == ["Eagles"]
        assert twin.wait(thread.rename(None)).title is None
        with pytest.raises(HTTPRejected) as caught:
            twin.wait(thread.rename("x" * 501))
        assert caught.value.code == "bad_title"


def test_a_thread_is_archived_and_gets_metadata(twin):
    with served(echo) as server:
        client = twin.client(server.url)
        thread = client.thread("t")
        twin.result(thread.run("x"))
        assert twin.wait(thread.archive()).archived
        assert twin.wait(thread.set_metadata({"project": "x"})).metadata == {"project": "x"}
        found = twin.events(client.threads(archived=True, metadata_key="project", metadata_value="x"))
        assert [one.thread_id for one in found] == ["t"]
        assert not twin.wait(thread.archive(False)).archived
        assert twin.wait(thread.set_metadata(None)).metadata is None


def test_a_thread_is_deleted_unless_it_has_a_run_in_progress(twin):
    gate = Gate()

    async def waits(run):
        yield "so far"
        await gate.wait()

    with served(waits) as server:
        client = twin.client(server.url)
        thread = client.thread("t")
        twin.events(thread.run("x"), lambda event: event.type == "TEXT_MESSAGE_CONTENT")
        with pytest.raises(HTTPRejected) as caught:
            twin.wait(client.delete_thread("t"))
        assert caught.value.code == "thread_busy"
        gate.open()
        twin.result(client.thread("t").attach())
        twin.wait(client.delete_thread("t"))
        assert twin.events(client.threads()) == []
        with pytest.raises(HTTPRejected) as caught:
            twin.wait(client.delete_thread("t"))
        assert caught.value.status == 404


def test_a_response_that_is_no_list_of_threads_is_refused(twin):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": b'{"threads": 7}'})

    client = twin.over(lambda: ASGITransport(app))
    with pytest.raises(DecodeError, match="not a list of threads"):
        twin.events(client.threads())


def test_a_thread_larger_than_a_megabyte_is_refreshed(twin):
    async def talks(run):
        yield "x" * 3_000_000

    with served(talks) as server:
        client = twin.client(server.url)
        twin.result(client.thread("t").run("x"))
        other = client.thread("t")
        twin.wait(other.refresh())
        assert len(other.messages[-1].content) == 3_000_000
