"""What docs/chat.md says about chat is run, agent and client together."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from aguila import App, AsyncClient, ChatClient
from aguila.client.transports.asgi import ASGITransport

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def names_of(document: str, wanted: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    block = next(one for one in BLOCK.findall((ROOT / document).read_text()) if wanted in one)
    exec(compile(block, document, "exec"), names)
    return names


def over(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every chat client talk to this app."""
    original = ChatClient.__init__

    def init(self: Any, url: str) -> None:
        original(self, AsyncClient(url, transport=ASGITransport(app)))

    async def close(self: Any) -> None:
        await self.client.close()

    monkeypatch.setattr(ChatClient, "__init__", init)
    monkeypatch.setattr(ChatClient, "close", close)


async def test_the_agent_of_the_document_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    names = names_of("docs/chat.md", "look_up")
    over(App(names["agent"]), monkeypatch)

    async with ChatClient("http://agent.test") as client:
        assert (await client.get_response("Hello")).text == "Two, after 1 messages."


async def test_the_client_of_the_document_answers_a_question(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def agent(run: Any) -> Any:
        yield "Yes." if await run.ask("Sure?") else "No."

    over(App(agent), monkeypatch)
    await names_of("docs/chat.md", "get_weather")["talk"]("http://agent.test")
    assert capsys.readouterr().out == "Yes."
