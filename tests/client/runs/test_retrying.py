"""A resumed run that fails after its answer was used: send the answer again, or give it up (INT-8)."""

import pytest
from chats.chat_app import chat
from faults.failing_agent import Failing
from serving import serving

from aguila import App
from aguila.chat import ChatMessage, InterruptResponseContent
from aguila.client import GIVE_UP, ChatOptions, approve, deny
from aguila.errors import HTTPRejected, IllegalStep, RunFailed

pytestmark = pytest.mark.anyio


def served(agent):
    return serving(App(agent, allow_anonymous=True))


def failed(twin, thread):
    """Return the id of a question whose answer a failed run has used."""
    (question,) = twin.result(thread.run("Go", run_id="r1")).interrupts
    with pytest.raises(RunFailed):
        twin.result(thread.resume({question.id: approve()}, run_id="r2"))
    assert [interrupt.id for interrupt in thread.interrupts] == [question.id]
    return question.id


@pytest.mark.parametrize("protobuf", [False, True], ids=["sse", "protobuf"])
def test_the_same_answer_tries_again_and_the_conversation_is_as_if_nothing_had_failed(twin, protobuf):
    conversations = []
    for failures in (0, 1):
        agent = Failing(failures)
        with served(agent) as server:
            thread = twin.client(server.url, protobuf=protobuf).thread("thread")
            if failures:
                result = twin.result(thread.resume({failed(twin, thread): approve()}, run_id="r3"))
            else:
                (question,) = twin.result(thread.run("Go", run_id="r1")).interrupts
                result = twin.result(thread.resume({question.id: approve()}, run_id="r3"))
            assert (result.outcome, thread.interrupts, agent.paid) == ("success", [], [5])
            told = [(one.id, one.role, getattr(one, "content", None)) for one in thread.messages if one.role != "user"]
            conversations.append((told, thread.state))
            agent.failures = 0
            assert twin.result(thread.run("And now?")).outcome == "interrupt"
    assert conversations[0] == conversations[1]


def test_given_up_it_is_over_and_the_thread_goes_on(twin):
    agent = Failing(1)
    with served(agent) as server:
        thread = twin.client(server.url).thread()
        question = failed(twin, thread)
        result = twin.result(thread.resume({question: GIVE_UP}))
        assert (result.outcome, thread.interrupts, agent.calls) == ("cancelled", [], 2)
        (again,) = twin.result(thread.run("Once more")).interrupts
        assert again.id != question
        assert twin.result(thread.resume({again.id: approve()})).text == "Once more: that is done."


def test_neither_silence_nor_another_answer_is_taken_and_the_thread_stays_usable(twin):
    with served(Failing(1)) as server:
        thread = twin.client(server.url).thread()
        question = failed(twin, thread)
        with pytest.raises(IllegalStep, match="even if a run with the answer failed") as silent:
            twin.result(thread.run("please go on"))
        assert silent.value.rule == "INT-8"
        with pytest.raises(HTTPRejected) as other:
            twin.result(thread.resume({question: deny()}))
        assert (other.value.status, other.value.code) == (409, "interrupt_stale")
        assert twin.result(thread.resume({question: approve()}, "please go on")).text == "Go: that is done."
        assert [one.content for one in thread.messages if one.role == "user"] == ["Go", "please go on"]


def test_a_thread_that_was_refreshed_may_go_on_without_the_question(twin):
    with served(Failing(1)) as server:
        thread = twin.client(server.url).thread()
        failed(twin, thread)
        twin.wait(thread.refresh())
        assert thread.interrupts == []
        assert twin.result(thread.run("Again")).outcome == "interrupt"


@pytest.mark.parametrize("more", [[], ["please go on"]], ids=["as it was", "with more words"])
async def test_a_chat_client_tries_again_with_the_same_options(more):
    agent = Failing(1)

    async def turns(client, tap):
        options, conversation = ChatOptions(), [ChatMessage("user", "Go")]
        response = await client.get_response(conversation, options)
        conversation += response.messages
        conversation.append(ChatMessage("user", [response.requests[0].answer(True)]))
        with pytest.raises(RunFailed):
            await client.get_response(conversation, options)
        conversation += [ChatMessage("user", text) for text in more]
        response = await client.get_response(conversation, options)
        assert (response.outcome, response.text, agent.paid) == ("success", "Go: that is done.", [5])
        conversation += [*response.messages, ChatMessage("user", "And now?")]
        response = await client.get_response(conversation, options)
        assert response.outcome == "interrupt"

    await chat(agent, turns)


async def test_a_chat_client_gives_up_and_goes_on_with_the_same_options():
    agent = Failing(1)

    async def turns(client, tap):
        options, conversation = ChatOptions(), [ChatMessage("user", "Go")]
        response = await client.get_response(conversation, options)
        conversation += response.messages
        request = response.requests[0]
        conversation.append(ChatMessage("user", [request.answer(True)]))
        with pytest.raises(RunFailed):
            await client.get_response(conversation, options)
        conversation[-1] = ChatMessage("user", [InterruptResponseContent(request.interrupt_id, status="cancelled")])
        response = await client.get_response(conversation, options)
        assert (response.outcome, agent.calls) == ("cancelled", 2)
        conversation += [*response.messages, ChatMessage("user", "Again")]
        response = await client.get_response(conversation, options)
        assert response.outcome == "interrupt"

    await chat(agent, turns)
