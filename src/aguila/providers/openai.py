"""Layer: providers. OpenAI, and every server that speaks its Chat Completions.

Below: ``openai_chat`` and ``openai_responses`` (requests and answers), ``_loop``. Above: applications:

    from openai import AsyncOpenAI
    from aguila import App
    from aguila.providers import openai

    app = App(openai.agent(AsyncOpenAI(), model="gpt-5.4-mini", tools=[weather], instructions="Be brief."))
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial
from typing import Any, Literal

from aguila.chat import ChatUpdate
from aguila.chat.tools import AnyTool
from aguila.codec.notice import Warn
from aguila.errors import MissingExtra
from aguila.providers import openai_chat, openai_responses
from aguila.providers._loop import MAX_ROUNDS, Agent, Instructions, Model, SDKModel, make_agent
from aguila.providers._prompt import Prompt, Rules, View, made_of, with_options


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
) -> Agent:
    """An agent that is a model of OpenAI, or of any server that a client's ``base_url`` names.

    ``client`` is an ``AsyncOpenAI``; without one it is made from the environment, as the SDK does. ``tools`` are
    functions, or what ``aguila.providers.tool`` makes of them; the front end's tools are the model's as well, and left
    to the client. ``instructions`` may be a function of the run. ``api="responses"`` keeps thoughts from turn to turn.
    ``provider`` names who is paid in the usage, and whose thoughts the thread keeps. ``options`` are passed on with
    every request, such as a temperature; tools among them are added. ``ids="mistral"`` gives the calls of a thread ids
    that Mistral's models take, whoever made them: nine letters and digits.

    Raises ``MissingExtra`` if a client is to be made and the SDK is not installed, ``TypeError`` for one that blocks,
    ``ValueError`` for ``ids`` that are not known, or with ``api="responses"``.
    """
    rules = openai_chat.rules_of(ids)
    if api == "chat":
        made: Model = _Chat(_client(client), model, provider, dict(options or {}), rules)
    elif ids == "any":
        made = _Responses(_client(client), model, provider, dict(options or {}))
    else:
        raise ValueError("ids are a matter of Chat Completions")
    return make_agent(made, tools=tools, instructions=instructions, max_rounds=max_rounds)


def _client(client: Any) -> Any:
    if client is not None:
        if not inspect.iscoroutinefunction(getattr(client, "close", None)):
            raise TypeError("an agent needs the client that does not block: AsyncOpenAI")
        return client
    try:
        from openai import AsyncOpenAI
    except ImportError as error:
        raise MissingExtra("openai", "openai") from error
    return AsyncOpenAI()


class _Chat(SDKModel):
    def __init__(
        self, client: Any, model: str, provider: str, options: dict[str, Any], rules: Rules = openai_chat.RULES
    ) -> None:
        super().__init__(client, model, provider, options)
        self._rules = rules

    async def answer(self, prompt: Prompt, warn: Warn) -> AsyncIterator[ChatUpdate]:
        view = await made_of(prompt, View, self._rules, warn)
        make = partial(openai_chat.request, provider=self._provider)
        made = await made_of(prompt, make, model=self._model, warn=warn, view=view)
        stream = await self._client.chat.completions.create(**with_options(made, self._options))
        async with stream:
            async for update in openai_chat.updates(stream, model=self._model, provider=self._provider, view=view):
                yield update


class _Responses(SDKModel):
    async def answer(self, prompt: Prompt, warn: Warn) -> AsyncIterator[ChatUpdate]:
        view = await made_of(prompt, View, openai_responses.RULES, warn)
        made = await made_of(prompt, openai_responses.request, model=self._model, warn=warn, view=view)
        stream = await self._client.responses.create(**with_options(made, self._options))
        async with stream:
            async for update in openai_responses.updates(stream, model=self._model, provider=self._provider, view=view):
                yield update
