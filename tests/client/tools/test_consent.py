"""Consent: a tool with effects is called only after the user has agreed (SEC-1)."""

import logging

import pytest
from builders import text_message_json, tool_call_json
from scripted_server import ScriptedServer, run_of

from aguila.client import tool


def conversation(*names):
    """Return a run that calls these tools, and a run that continues with the answers."""
    calls = [event for n, name in enumerate(names) for event in tool_call_json(f"c{n}", name, {"amount": n})]
    return ScriptedServer(run_of(*calls), run_of(*text_message_json("m", "Done")))


class Payments:
    def __init__(self, **options):
        self.made = []

        @tool(**options)
        def pay(amount: int) -> str:
            """Pay."""
            self.made.append(amount)
            return "paid"

        self.pay = pay


def answers_of(server):
    return [message for message in server.requests[-1].json["messages"] if message["role"] == "tool"]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("is_allowed", [True, False])
def test_the_client_is_asked_with_name_and_arguments(twin, is_async, is_allowed):
    asked = []
    payments = Payments()

    def confirm(name, arguments):
        asked.append((name, arguments, list(payments.made)))
        return is_allowed

    async def confirm_later(name, arguments):
        return confirm(name, arguments)

    with conversation("pay", "pay") as server:
        client = twin.client(server.url, tools=[payments.pay], confirm=confirm_later if is_async else confirm)
        assert twin.result(client.thread().run("Pay")).text == "Done"
        # One by one, and before anything is done.
        assert asked == [("pay", {"amount": 0}, []), ("pay", {"amount": 1}, [])]
        assert sorted(payments.made) == ([0, 1] if is_allowed else [])
        for answer in answers_of(server):
            assert answer["content"] == ("paid" if is_allowed else "not executed: the user declined this call")
            assert ("error" in answer) is not is_allowed


def test_what_is_asked_about_cannot_change_what_is_done(twin):
    payments = Payments()
    with conversation("pay") as server:
        client = twin.client(server.url, tools=[payments.pay], confirm=lambda _, arguments: arguments.clear() or True)
        twin.result(client.thread().run("Pay"))
    assert payments.made == [0]


def test_a_tool_has_its_own_question(twin):
    own, general = [], []
    payments = Payments(confirm=lambda *what: own.append(what) or False)
    with conversation("pay") as server:
        client = twin.client(server.url, tools=[payments.pay], confirm=lambda *what: general.append(what) or True)
        twin.result(client.thread().run("Pay"))
    assert (len(own), general, payments.made) == (1, [], [])


def test_a_harmless_tool_needs_no_question(twin):
    payments = Payments(confirm=False)
    with conversation("pay") as server:
        twin.result(twin.client(server.url, tools=[payments.pay], confirm=lambda *_: False).thread().run("Pay"))
    assert payments.made == [0]


def test_a_tool_that_needs_consent_is_not_called_by_a_client_that_cannot_ask(twin):
    payments = Payments(confirm=True)
    with conversation("pay") as server:
        twin.result(twin.client(server.url, tools=[payments.pay]).thread().run("Pay"))
        assert "consent" in answers_of(server)[0]["error"]
    assert payments.made == []


def test_a_question_that_fails_is_no_consent(twin, caplog):
    def confirm(name, arguments):
        raise RuntimeError("no terminal")

    payments = Payments()
    with conversation("pay") as server, caplog.at_level(logging.WARNING):
        twin.result(twin.client(server.url, tools=[payments.pay], confirm=confirm).thread().run("Pay"))
        assert answers_of(server)[0]["error"] == "not executed: the user could not be asked"
    assert payments.made == []
    assert "no terminal" in caplog.text
