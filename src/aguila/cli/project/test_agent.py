"""Tests of the agent, without a server. The fixtures come with Aguila."""

from aguila.testing import ClientMaker, StreamAssertion

from agent import agent


def test_it_says_what_it_can_do(
    agui_client: ClientMaker, assert_stream: StreamAssertion
) -> None:
    events = list(agui_client(agent).thread().run("Hello"))
    # Also checks every event against the protocol.
    assert_stream(events, text="Ask me to roll the dice.", outcome="success")


def test_it_asks_before_it_rolls(agui_client: ClientMaker) -> None:
    thread = agui_client(agent).thread()
    assert thread.run("Roll the dice").result().outcome == "interrupt"
    (question,) = thread.interrupts
    thread.resume({question.id: {"approved": True}}).result()
    assert len(thread.state["rolled"]) == 2


def test_it_takes_no_for_an_answer(agui_client: ClientMaker) -> None:
    thread = agui_client(agent).thread()
    thread.run("Roll the dice").result()
    (question,) = thread.interrupts
    answer = thread.resume({question.id: {"approved": False}}).result()
    assert answer.text == "Then not."
