"""One server for all tests of providers: starting one takes longer than most of these tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from models.model_server import Answer, Recorded, agent_for, stream
from serving import Server, check_valid, serving

from aguila import App
from aguila.chat import AllowedMedia
from aguila.server import Trust

Json = dict[str, Any]


class ServedThread:
    """A thread of the shared server, with an agent of its own."""

    def __init__(self, server: Server, thread_id: str) -> None:
        self.server = server
        self.thread_id = thread_id

    def events(self, **members: Any) -> list[Json]:
        """Start a run and return its events, verified."""
        events = self.server.events(thread_id=self.thread_id, **members)
        check_valid(events)
        return events

    def send(self, text: str, **members: Any) -> list[Json]:
        """Start a run with a user message and return its events."""
        return self.events(messages=[{"id": "m1", "role": "user", "content": text}], **members)


@pytest.fixture(scope="session")
def shared_server() -> Iterator[tuple[Server, dict[str, Any]]]:
    agents: dict[str, Any] = {}

    async def agent(run: Any) -> None:
        run.agent = agents[run.thread_id]
        await run.agent(run)

    # What a provider does not have is skipped by its agent: the app passes it on.
    with serving(App(agent, trust=Trust(media=AllowedMedia(providers=["elsewhere"])))) as server:
        yield server, agents


@pytest.fixture
def thread_for(shared_server: tuple[Server, dict[str, Any]]) -> Callable[[Any], ServedThread]:
    """Open a thread for an agent."""
    server, agents = shared_server

    def open_thread(agent: Any) -> ServedThread:
        thread_id = f"thread-{len(agents)}"
        agents[thread_id] = agent
        return ServedThread(server, thread_id)

    return open_thread


@pytest.fixture
def modelled() -> Iterator[Callable[..., tuple[Any, Recorded]]]:
    """Start a model server with these answers; return an agent that uses it."""
    with ExitStack() as stack:

        def start(provider: str, /, *answers: Json | Answer, **options: Any) -> tuple[Any, Recorded]:
            made = [stream(provider, **one) if isinstance(one, dict) else one for one in answers]
            recorded = stack.enter_context(Recorded(made))
            return agent_for(provider, recorded.url, **options), recorded

        yield start


@pytest.fixture
def answering(
    thread_for: Callable[[Any], ServedThread], modelled: Callable[..., tuple[Any, Recorded]]
) -> Callable[..., tuple[ServedThread, Recorded]]:
    """Start a model server and an agent; return a thread with that agent."""

    def start(provider: str, /, *answers: Json | Answer, **options: Any) -> tuple[ServedThread, Recorded]:
        agent, recorded = modelled(provider, *answers, **options)
        return thread_for(agent), recorded

    return start
