"""Make the input and the history that frameworks get."""

from __future__ import annotations

from typing import Any

from aguila.agent.run import Run, read_state
from aguila.chat import ChatMessage, as_agui_messages, provider_history
from aguila.chat.property_keys import SUBAGENT_RUN_ID
from aguila.codec.official import to_official
from aguila.frameworks.external.suspended import answers_of
from aguila.protocol import PROTOCOL_VERSION, Message, RunAgentInput, replace


async def adapter_input(run: Run) -> RunAgentInput:
    """Return the input of a run as the agent sees it: with the bytes of uploads, and a result for every call.

    Calls are left without a result if the run has answers: a question may have been about these calls.
    """
    messages = await run.chat_messages()
    if not run.resume:
        messages = provider_history(messages, unanswered="close").messages
    given = input_of(run, run.thread_id, as_agui_messages(messages))
    return replace(given, resume=await answers_of(run)) if run.resume else given


def input_of(run: Run, thread_id: str, messages: list[Message]) -> RunAgentInput:
    """Return the input of a run with these messages, and with the changes of a calling agent."""
    return RunAgentInput(
        thread_id=thread_id,
        run_id=run.run_id,
        protocol_version=PROTOCOL_VERSION,
        parent_run_id=run.parent_run_id,
        messages=messages,
        # Older parsers require these, and empty means the same as absent (IN-9, IN-11).
        state=read_state(run),
        tools=run.tools,
        context=run.context,
        forwarded_props={} if run.forwarded_props is None else run.forwarded_props,
        resume=run.resume if run.resume else None,
    )


async def official_input(run: Run) -> Any:
    """Return ``adapter_input`` as a ``RunAgentInput`` of ``ag_ui.core``."""
    return to_official(await adapter_input(run))


async def handoff_history(run: Run) -> list[ChatMessage]:
    """Return the history of a run. Messages of subagents are part of it: after a handoff they are the answer."""
    messages = [_without_owner(message) for message in await run.chat_messages()]
    return provider_history(messages, unanswered="close").messages


def _without_owner(message: ChatMessage) -> ChatMessage:
    if SUBAGENT_RUN_ID not in message.additional_properties:
        return message
    kept = {name: value for name, value in message.additional_properties.items() if name != SUBAGENT_RUN_ID}
    return replace(message, additional_properties=kept)
