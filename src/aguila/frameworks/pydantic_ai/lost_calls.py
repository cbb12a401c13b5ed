"""Answer the calls of earlier runs whose process died: the model must not take them for calls that were never made."""

from __future__ import annotations

from aguila.agent.run import Run
from aguila.chat import ChatUpdate, FunctionResultContent
from aguila.chat.own_metadata import add_own_metadata
from aguila.protocol import AssistantMessage, ToolCall, ToolMessage


def describe_unknown_outcome(name: str) -> str:
    """Return the result of a call that the process died in."""
    return (
        f"it is unknown whether {name!r} was executed: the server stopped in the middle; check before calling it again"
    )


async def answer_lost_calls(run: Run) -> None:
    """Send a result for each lost call of the agent's own tools, and add it to the messages of the run."""
    offered = {tool.name for tool in run.tools}
    answered = {message.tool_call_id for message in run.messages if isinstance(message, ToolMessage)}
    calls = [
        call
        for message in run.messages
        if isinstance(message, AssistantMessage) and message.subagent_run_id is None
        for call in message.tool_calls or ()
        if isinstance(call, ToolCall) and call.id not in answered and call.function.name not in offered
    ]
    lost = await run.lost_calls() if calls else frozenset[str]()
    answered = {message.tool_call_id for message in run.messages if isinstance(message, ToolMessage)}  # by others
    chat = run.chat()
    for call in calls:
        if call.id in lost and call.id not in answered:
            text, message_id = describe_unknown_outcome(call.function.name), run.new_id("tool")
            own = add_own_metadata(None, error=text)
            run.messages.append(ToolMessage(id=message_id, tool_call_id=call.id, content=text, metadata=own))
            result = FunctionResultContent(call.id, text, text)
            await chat.send(ChatUpdate("tool", [result], message_id=message_id))
