"""Use a pydantic-ai agent as an agent: ``App(pydantic_ai.agent(agent))``.

Its own AG-UI adapter is used, which loses nothing: install ``pydantic-ai-slim[ag-ui]``. Added here are durability, the
state of ``deps`` after each tool, results for calls that never got one, and masked errors. Tools that need approval and
deferred tools become interrupts and front-end calls; the agent's ``output_type`` must include ``DeferredToolRequests``.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from typing import Any

from aguila.agent.run import Run
from aguila.chat import ChatMessage, HostedFileContent, as_agui_messages, as_chat_messages
from aguila.chat.property_keys import METADATA, PROVIDER
from aguila.codec.official import to_official
from aguila.frameworks.external.agent_input import official_input
from aguila.frameworks.external.packages import load
from aguila.frameworks.relay.events import Errors
from aguila.frameworks.relay.iterator import from_events
from aguila.protocol import Event, Message
from aguila.stream.json_values import copy_json

__all__ = ["agent", "from_model_messages", "to_model_messages"]

_PACKAGE = "'pydantic-ai-slim[ag-ui]'"
_STORED_FILE = "pydantic_ai_uploaded_file"


def agent(
    agent: Any, *, deps: Any = None, errors: Errors = "mask", **options: Any
) -> Callable[[Run], AsyncGenerator[Event, None]]:
    """Make an agent of a pydantic-ai ``Agent``.

    ``deps`` are its dependencies, or a function of the run that returns them; each run gets a copy. If they have a
    ``state``, as ``StateDeps`` does, clients share it. ``options`` are arguments of ``AGUIAdapter.run_stream``, such as
    ``model``, ``model_settings`` and ``usage_limits``.

    Raise TypeError for an object that is not an agent.
    """
    if not hasattr(agent, "run_stream_events"):
        raise TypeError(f"pydantic_ai.agent() takes a pydantic-ai Agent, not {type(agent).__name__}")
    adapter_class: Any = load("pydantic_ai.ui.ag_ui", _PACKAGE).AGUIAdapter

    async def events(run: Run) -> AsyncIterator[Any]:
        own = deps(run) if callable(deps) and not hasattr(deps, "state") else copy.copy(deps)
        adapter = adapter_class(agent=agent, run_input=await official_input(run))
        stream = adapter.run_stream(deps=own, **options)
        before = _state(own)
        try:
            async for event in stream:
                yield event
                if event.type == "TOOL_CALL_RESULT" and (state := _state(own)) != before:
                    run.state = before = state
        finally:
            await stream.aclose()

    return from_events(events, errors=errors)


def _state(deps: Any) -> Any:
    """Return the shared state of dependencies as JSON; None if they have none."""
    state = getattr(deps, "state", None)
    dump = getattr(state, "model_dump", None)
    return copy_json(state) if dump is None else dump(mode="json")


def to_model_messages(messages: Iterable[ChatMessage]) -> list[Any]:
    """Convert chat messages to pydantic-ai's ModelMessages, as its adapter does.

    Lost: names of messages and files, metadata, the spelling of results that are JSON, and encrypted values that
    pydantic-ai has not written.
    """
    adapter: Any = load("pydantic_ai.ui.ag_ui", _PACKAGE).AGUIAdapter
    return adapter.load_messages([to_official(message) for message in as_agui_messages(messages)])


def from_model_messages(messages: Iterable[Any]) -> list[ChatMessage]:
    """Convert pydantic-ai's ModelMessages to chat messages, as its adapter does.

    A file that a provider stores becomes a message of its own. Lost: usage, timestamps, instructions, and files that a
    model made, with a notice.
    """
    adapter: Any = load("pydantic_ai.ui.ag_ui", _PACKAGE).AGUIAdapter
    dumped = adapter.dump_messages(list(messages), preserve_file_data=True)
    return as_chat_messages([_stored_file(message) or message for message in dumped])


def _stored_file(message: Any) -> Message | None:
    """Return the user's message for a file that a provider stores. pydantic-ai's adapter makes an activity of it."""
    if getattr(message, "activity_type", None) != _STORED_FILE:
        return None
    file: dict[str, Any] = message.content
    properties: dict[str, Any] = {PROVIDER: file["provider_name"]}
    if "vendor_metadata" in file:
        properties[METADATA] = {"vendor_metadata": file["vendor_metadata"]}
    content = HostedFileContent(file["file_id"], file.get("media_type"), additional_properties=properties)
    (made,) = as_agui_messages([ChatMessage("user", [content], message.id)])
    return made
