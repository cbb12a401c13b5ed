"""Large files on their way to a model: encoded once for each request, and not by the event loop."""

from __future__ import annotations

import base64
import random
import threading
from typing import Any

import pytest

from aguila.chat import ChatMessage, DataContent, FunctionCallContent, FunctionResultContent, TextContent, media
from aguila.providers import _media, anthropic, gemini, openai_chat, openai_responses
from aguila.providers._prompt import Prompt, View, request_of

pytestmark = pytest.mark.anyio

IMAGE = random.Random(1).randbytes(3_000_000)
TEXT = base64.b64encode(IMAGE).decode()
PROVIDERS = [openai_chat, openai_responses, anthropic, gemini]


def ignore(notice: Any) -> None:
    pass


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda module: module.__name__.rpartition(".")[2])
async def test_a_large_image_is_in_the_request_whole_and_was_encoded_apart(
    provider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def watched(data: bytes, *rest: Any) -> str:
        threads.append(threading.get_ident())
        return media.as_base64(data, *rest)

    monkeypatch.setattr(_media, "as_base64", watched)
    prompt = Prompt(messages=[ChatMessage("user", [TextContent("What is it?"), DataContent(IMAGE, "image/png")])])
    made = await request_of(provider.request, prompt, model="m", warn=ignore, view=View(prompt, provider.RULES, ignore))
    if provider is gemini:  # which takes bytes as they are
        assert threads == []
        assert IMAGE in [part["inline_data"]["data"] for part in made["contents"][0]["parts"] if "inline_data" in part]
    else:
        assert len(threads) == 1
        assert threading.get_ident() not in threads
        assert TEXT in str(made)


@pytest.mark.parametrize("size", [0, 1, 2, 3, (1 << 20) + 1, 1_500_001, 3_000_000])
def test_base64_in_slices_is_that_of_the_whole(size: int) -> None:
    assert media.as_base64(IMAGE[:size], "data:,") == "data:," + base64.b64encode(IMAGE[:size]).decode()


async def test_a_large_file_in_a_result_counts_and_small_ones_do_not() -> None:
    seen: list[int] = []

    def request(prompt: Prompt, **_: Any) -> dict[str, Any]:
        seen.append(threading.get_ident())
        return {}

    def prompt_with(data: bytes) -> Prompt:
        result = FunctionResultContent("c", [DataContent(data, "image/png")])
        return Prompt(
            messages=[
                ChatMessage("assistant", [FunctionCallContent("c", "paint", "{}")]),
                ChatMessage("tool", [result]),
            ]
        )

    for data in (b"x", IMAGE):
        prompt = prompt_with(data)
        await request_of(request, prompt, model="m", warn=ignore, view=View(prompt, openai_chat.RULES, ignore))
    assert seen[0] == threading.get_ident() != seen[1]
