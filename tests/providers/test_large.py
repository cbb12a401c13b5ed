"""Large files to and from a model: encoded once per request, and not on the event loop."""

from __future__ import annotations

import base64
import importlib
import random
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from builders import ignore
from google.genai import types
from serving import serving

from aguila import App
from aguila.chat import (
    ChatMessage,
    DataContent,
    FunctionCallContent,
    FunctionResultContent,
    ReasoningContent,
    TextContent,
    UriContent,
    media,
)
from aguila.offload import is_large
from aguila.protocol import DataSource, ImagePart, TextPart
from aguila.providers import anthropic, gemini, openai_chat, openai_responses, tool
from aguila.providers._agent.loop import make_agent
from aguila.providers._agent.turn_record import Turn
from aguila.providers._request import media as request_media
from aguila.providers._request.prompt import Prompt, ProviderView, make_offloaded
from aguila.server import Limits

pytestmark = pytest.mark.anyio

IMAGE = random.Random(1).randbytes(3_000_000)
TEXT = base64.b64encode(IMAGE).decode()
PROVIDERS = [openai_chat, openai_responses, anthropic, gemini]


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda module: module.__name__.rpartition(".")[2])
async def test_a_large_image_is_encoded_in_a_thread_and_sent_whole(
    provider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def watched(data: bytes, *rest: Any) -> str:
        threads.append(threading.get_ident())
        return media.encode_base64(data, *rest)

    monkeypatch.setattr(request_media, "encode_base64", watched)
    prompt = Prompt(messages=[ChatMessage("user", [TextContent("What is it?"), DataContent(IMAGE, "image/png")])])
    view = ProviderView(prompt, provider.RULES, ignore)
    made = await make_offloaded(prompt, provider.request, model="m", warn=ignore, view=view)
    if provider is gemini:  # which takes bytes as they are
        assert threads == []
        assert IMAGE in [part["inline_data"]["data"] for part in made["contents"][0]["parts"] if "inline_data" in part]
    else:
        assert len(threads) == 1
        assert threading.get_ident() not in threads
        assert TEXT in str(made)


@pytest.mark.parametrize("size", [0, 1, 2, 3, (1 << 20) + 1, 1_500_001, 3_000_000])
def test_base64_in_slices_is_that_of_the_whole(size: int) -> None:
    assert media.encode_base64(IMAGE[:size], "data:,") == "data:," + base64.b64encode(IMAGE[:size]).decode()


@pytest.mark.parametrize(
    "make",
    [
        lambda data, text: DataContent(data, "image/png"),
        lambda data, text: UriContent(f"data:image/png;base64,{text}"),
        lambda data, text: TextContent(text),
        lambda data, text: ReasoningContent(text),
        lambda data, text: FunctionCallContent("c", "paint", text),
        lambda data, text: FunctionResultContent("c", text),
        lambda data, text: FunctionResultContent("c", [DataContent(data, "image/png")]),
        lambda data, text: FunctionResultContent("c", [TextPart(text="a"), picture(text)]),
        lambda data, text: FunctionResultContent("c", {"rows": [{"picture": text}]}),
    ],
)
async def test_large_contents_are_converted_in_a_thread(make: Any) -> None:
    def thread_of(prompt: Prompt) -> int:
        return threading.get_ident()

    for data, is_apart in ((b"x", False), (IMAGE, True)):
        content = make(data, base64.b64encode(data).decode())
        assert is_large(content) is is_apart
        prompt = Prompt(messages=[ChatMessage("user", "Look"), ChatMessage("assistant", [content])])
        assert (await make_offloaded(prompt, thread_of) != threading.get_ident()) is is_apart


def picture(text: str) -> ImagePart:
    return ImagePart(source=DataSource(value=text, mime_type="image/png"))


# Through an agent: results of a tool, and files of a model


@tool
async def shoot() -> DataContent:
    """Take a picture."""
    return DataContent(IMAGE, "image/png")


@tool(needs_approval=True)
async def publish() -> list[Any]:
    """Publish it."""
    return [TextContent("there it is"), DataContent(IMAGE, "image/png")]


def of_gemini(*parts: Any, finish: str = "STOP") -> list[Any]:
    candidate = types.Candidate(content=types.Content(role="model", parts=list(parts)), finish_reason=finish)
    return [types.GenerateContentResponse(candidates=[candidate])]


def call_of_gemini(name: str) -> Any:
    return types.Part(function_call=types.FunctionCall(id=name, name=name, args={}))


class Item:
    """A picture as the Responses API has it."""

    type = "image_generation_call"
    id = "ig"

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return {"type": self.type, "id": self.id, "status": "completed", "result": TEXT}


def of_responses(*items: Any) -> list[Any]:
    done = [
        SimpleNamespace(type="response.output_item.done", output_index=at, item=item) for at, item in enumerate(items)
    ]
    return [*done, SimpleNamespace(type="response.completed", response=SimpleNamespace(usage=None))]


def call_of_responses(name: str) -> Any:
    return SimpleNamespace(type="function_call", call_id=name, id=name, name=name, arguments="{}", status="completed")


def of_chat(delta: dict[str, Any], finish: str) -> list[Any]:
    choice = SimpleNamespace(index=0, delta=SimpleNamespace(**delta), finish_reason=finish)
    return [SimpleNamespace(choices=[choice], usage=None)]


def call_of_chat(name: str) -> list[Any]:
    function = SimpleNamespace(name=name, arguments="{}")
    call = SimpleNamespace(index=0, id=name, function=function)
    return of_chat({"content": None, "tool_calls": [call]}, "tool_calls")


def image_of_chat() -> list[Any]:
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{TEXT}"}}
    return of_chat({"content": "so", "images": [image]}, "stop")


ANSWERS = {
    gemini: [
        of_gemini(call_of_gemini("shoot")),
        of_gemini(types.Part(inline_data=types.Blob(data=IMAGE, mime_type="image/png")), call_of_gemini("publish")),
        of_gemini(types.Part(text="done")),
    ],
    openai_responses: [
        of_responses(call_of_responses("shoot")),
        of_responses(Item(), call_of_responses("publish")),
        of_responses(Item()),
    ],
    openai_chat: [call_of_chat("shoot"), call_of_chat("publish"), image_of_chat()],
}


class Scripted:
    """A model with the calls and the answers of an SDK."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._answers = list(ANSWERS[provider])
        self.asked: list[Any] = []

    async def answer(self, prompt: Prompt, warn: Any) -> Any:
        view = await make_offloaded(prompt, ProviderView, self._provider.RULES, warn)
        self.asked.append(await make_offloaded(prompt, self._provider.request, model="m", warn=warn, view=view))

        async def stream() -> Any:
            for event in self._answers.pop(0):
                yield event

        async for update in self._provider.updates(stream(), model="m", view=view):
            yield update


@pytest.mark.parametrize("provider", ANSWERS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_pictures_of_tools_and_models_are_never_worked_on_by_the_event_loop(
    provider: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, set[int]] = {}
    loop: set[int] = set()

    def watch(place: str) -> None:
        module, _, name = place.rpartition(".")
        owner = importlib.import_module(module)
        real: Callable[..., Any] = getattr(owner, name)

        def watched(*args: Any, **options: Any) -> Any:
            result = real(*args, **options)
            # The texts of a result are shared, and not copied; files of a turn become text, or bytes.
            is_work = module != "msgspec" or any(isinstance(one, Turn) for one in (*args, result))
            if is_work and any(is_big(one) for one in (*args, result)):
                seen.setdefault(place, set()).add(threading.get_ident())
            return result

        monkeypatch.setattr(owner, name, watched)

    places = [
        "aguila.chat.tools.function_tool.make_result_content",  # a result becomes parts
        "aguila.agent.questions.encode",  # and is recorded
        "aguila.agent.questions.parse_json",  # and read again
        "aguila.chat.media.encode_base64",
    ]
    if provider is not gemini:  # which takes and gives bytes; the others, text
        places += ["aguila.providers._request.media.encode_base64"] if provider is openai_responses else []
        places.append("aguila.chat.media.decode_base64")
    if provider is openai_responses:
        places.append("aguila.providers._response.openai_responses.decode_base64")
    if provider is not openai_chat:  # whose picture is in the last answer here, with nothing to be asked after it
        places += ["msgspec.to_builtins", "msgspec.convert"]  # a picture in a turn that is put on record
    places.append("aguila.providers._agent.turn_record.encode_base64")  # a picture that the model made is shown
    for place in places:
        watch(place)
    model = Scripted(provider)
    made = make_agent(model, tools=[shoot, publish], instructions=None, max_rounds=5)

    async def agent(run: Any) -> None:
        loop.add(threading.get_ident())
        await made(run)

    with serving(App(agent, limits=Limits(body=1 << 30, event=1 << 30))) as server:
        asked = server.events(run_id="r1", messages=[{"id": "m", "role": "user", "content": "Go"}])
        (question,) = asked[-1]["outcome"]["interrupts"]
        answer = {"interruptId": question["id"], "status": "resolved", "payload": {"approved": True}}
        found = server.events(run_id="r2", resume=[answer])
    assert found[-1]["type"] == "RUN_FINISHED", found[-1]
    told = str([event for event in [*asked, *found] if event["type"] in ("TOOL_CALL_RESULT", "ACTIVITY_SNAPSHOT")])
    assert told.count(TEXT) == (4 if provider is openai_responses else 3)
    assert len(model.asked) == 3
    assert sorted(seen) == sorted(places)
    assert all(threads.isdisjoint(loop) for threads in seen.values()), (seen, loop)


def is_big(value: Any) -> bool:
    if isinstance(value, (str, bytes)):
        return len(value) > 1 << 20
    if isinstance(value, dict):
        return any(map(is_big, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(is_big, value))
    if isinstance(value, msgspec.Struct):
        return any(is_big(getattr(value, name)) for name in value.__struct_fields__)
    return False
