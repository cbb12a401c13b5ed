"""Agents with OpenAI models, and with every server that is compatible with Chat Completions::

    from openai import AsyncOpenAI
    from aguila import App
    from aguila.providers import openai

    app = App(openai.agent(AsyncOpenAI(), model="gpt-5.4-mini", tools=[weather], instructions="Be brief."))

``api="responses"`` uses the Responses API instead of Chat Completions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial
from typing import Any, Literal

from aguila.chat import ChatUpdate
from aguila.chat.allowed_media import DEFAULT_MEDIA, AllowedMedia
from aguila.chat.tools import AnyTool
from aguila.codec.notices import Warn
from aguila.providers import openai_chat, openai_responses
from aguila.providers._agent.loop import MAX_ROUNDS, Agent, Instructions, Model, make_agent
from aguila.providers._agent.sdk_model import SDKModel, make_client
from aguila.providers._request.media import multimodal
from aguila.providers._request.prompt import Prompt, ProviderView, Rules, add_options, make_offloaded


def agent(
    client: Any = None,
    *,
    model: str,
    tools: Iterable[AnyTool] = (),
    instructions: Instructions = None,
    max_rounds: int = MAX_ROUNDS,
    api: Literal["chat", "responses"] = "chat",
    provider: str = "openai",
    ids: openai_chat.Ids = "any",
    options: Mapping[str, Any] | None = None,
    allowed_media: AllowedMedia = DEFAULT_MEDIA,
) -> Agent:
    """Make an agent with a model of OpenAI, or of the server that the client's ``base_url`` names.

    ``client`` is an ``AsyncOpenAI``; by default it is made from the environment, as the SDK does. ``tools`` are
    functions, or results of ``aguila.providers.tool``. The model gets the front end's tools too, and their calls are
    left to the client. ``instructions`` may be a function of the run. ``api="responses"`` keeps reasoning between
    turns. ``provider`` is the name in the usage, and identifies whose reasoning the thread keeps. ``options`` are added
    to every request, for example a temperature; tools among them are appended. ``ids="mistral"`` converts call ids to
    nine letters and digits, which Mistral's models require. References to media that ``allowed_media`` does not
    admit are left out with a notice: by default all but data, uploads, and public hosts with https.

    Raises ``MissingExtra`` if a client has to be made and the SDK is not installed, ``TypeError`` for a blocking
    client, ``ValueError`` for unknown ``ids``, and for ``ids`` with ``api="responses"``.
    """
    rules = openai_chat.rules_of(ids)
    if api != "chat" and ids != "any":
        raise ValueError("ids= is supported with api='chat' only")
    client = make_client(client, "openai.AsyncOpenAI", extra="openai", package="openai")
    if api == "chat":
        made: Model = _Chat(client, model, provider, options, rules)
    else:
        made = _Responses(client, model, provider, options)
    return make_agent(made, tools=tools, instructions=instructions, max_rounds=max_rounds, allowed_media=allowed_media)


class _Chat(SDKModel):
    multimodal = multimodal(inputs=("audio",), outputs=("image",))

    def __init__(
        self,
        client: Any,
        model: str,
        provider: str,
        options: Mapping[str, Any] | None,
        rules: Rules = openai_chat.RULES,
    ) -> None:
        super().__init__(client, model, provider, options)
        self._rules = rules

    async def answer(self, prompt: Prompt, warn: Warn) -> AsyncIterator[ChatUpdate]:
        view = await make_offloaded(prompt, ProviderView, self._rules, warn)
        make = partial(openai_chat.request, provider=self._provider)
        made = await make_offloaded(prompt, make, model=self._model, warn=warn, view=view)
        stream = await self._client.chat.completions.create(**add_options(made, self._options))
        async with stream:
            async for update in openai_chat.updates(stream, model=self._model, provider=self._provider, view=view):
                yield update


class _Responses(SDKModel):
    multimodal = multimodal(inputs=(), outputs=("image",))

    async def answer(self, prompt: Prompt, warn: Warn) -> AsyncIterator[ChatUpdate]:
        view = await make_offloaded(prompt, ProviderView, openai_responses.RULES, warn)
        made = await make_offloaded(prompt, openai_responses.request, model=self._model, warn=warn, view=view)
        stream = await self._client.responses.create(**add_options(made, self._options))
        async with stream:
            async for update in openai_responses.updates(stream, model=self._model, provider=self._provider, view=view):
                yield update
