"""One server for all tests of providers: starting and stopping one takes longer than most of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from model_server import Answer, Recorded, agent_for, stream
from serving import Server, check_valid, serving

from aguila import App

Json = dict[str, Any]


class Desk:
    """A thread of the server, with an agent of its own."""

    def __init__(self, server: Server, thread_id: str) -> None:
        self.server = server
        self.thread_id = thread_id

    def events(self, **members: Any) -> list[Json]:
        """All events of a run, which are a legal stream."""
        events = self.server.events(thread_id=self.thread_id, **members)
        check_valid(events)
        return events

    def said(self, text: str, **members: Any) -> list[Json]:
        """All events of a run in which the user says something."""
        return self.events(messages=[{"id": "m1", "role": "user", "content": text}], **members)


@pytest.fixture(scope="session")
def switchboard() -> Iterator[tuple[Server, dict[str, Any]]]:
    agents: dict[str, Any] = {}

    async def agent(run: Any) -> None:
        run.agent = agents[run.thread_id]  # nobody else will ask
        await run.agent(run)

    with serving(App(agent)) as server:
        yield server, agents


@pytest.fixture
def desk_for(switchboard: tuple[Server, dict[str, Any]]) -> Callable[[Any], Desk]:
    """A thread that an agent answers in."""
    server, agents = switchboard

    def open_desk(agent: Any) -> Desk:
        thread_id = f"thread-{len(agents)}"
        agents[thread_id] = agent
        return Desk(server, thread_id)

    return open_desk


@pytest.fixture
def modelled() -> Iterator[Callable[..., tuple[Any, Recorded]]]:
    """Starts a model server that answers with these turns; gives an agent of a provider in front of it."""
    with ExitStack() as stack:

        def start(provider: str, /, *answers: Json | Answer, **options: Any) -> tuple[Any, Recorded]:
            made = [stream(provider, **one) if isinstance(one, dict) else one for one in answers]
            recorded = stack.enter_context(Recorded(made))
            return agent_for(provider, recorded.url, **options), recorded

        yield start


@pytest.fixture
def answering(
    desk_for: Callable[[Any], Desk], modelled: Callable[..., tuple[Any, Recorded]]
) -> Callable[..., tuple[Desk, Recorded]]:
    """Starts a model server and an agent, and gives a thread that the agent answers in."""

    def start(provider: str, /, *answers: Json | Answer, **options: Any) -> tuple[Desk, Recorded]:
        agent, recorded = modelled(provider, *answers, **options)
        return desk_for(agent), recorded

    return start
