"""Provider-neutral chat messages, and their mapping to and from AG-UI.

=============================  ======================================================================================
AG-UI                          chat
=============================  ======================================================================================
text, part ``text``            ``TextContent``
part with ``data``             ``DataContent``: the bytes
part with ``url``              ``UriContent``, or ``DataContent`` for a ``data:`` URL
part with ``file``             ``HostedFileContent``; without a provider it has to be resolved
reasoning, encrypted value     ``ReasoningContent``: text and protected data, in an assistant message
tool call, TOOL_CALL_*         ``FunctionCallContent``; in pieces while it streams, then complete
tool message, result           ``FunctionResultContent``: the exact text, or parts as contents
RUN_ERROR; usage               ``ErrorContent``; ``UsageContent``
interrupt on a call; others    ``ApprovalRequestContent``; ``InterruptRequestContent``. Answers: ``...ResponseContent``
any event                      ``raw_representation`` of an update, or ``event_content`` (sent unchanged)
=============================  ======================================================================================

Each mapping lists its losses: ``to_chat.messages``, ``from_chat.messages``, ``from_chat.stream``. Data without a field
in chat types is kept in ``additional_properties`` under the names in ``property_keys``.
"""

from aguila.chat import event_content
from aguila.chat.allowed_media import AllowedMedia
from aguila.chat.from_chat.messages import as_agui_messages
from aguila.chat.from_chat.stream import as_event_stream
from aguila.chat.from_chat.updates import UpdateWriter
from aguila.chat.history_repair import ProviderHistory, Repair, provider_history
from aguila.chat.hooks import Hooks
from aguila.chat.interrupts import as_response_contents, as_resume_entries
from aguila.chat.openai_messages import as_openai_messages
from aguila.chat.to_chat.messages import as_chat_messages
from aguila.chat.to_chat.stream import as_chat_updates
from aguila.chat.to_chat.updates import UpdateReader
from aguila.chat.tools import FunctionTool, ToolError, function_schema, read_arguments, tool
from aguila.chat.types import (
    ApprovalRequestContent,
    ApprovalResponseContent,
    ChatMessage,
    ChatUpdate,
    Content,
    DataContent,
    ErrorContent,
    FunctionCallContent,
    FunctionResultContent,
    HostedFileContent,
    InterruptRequestContent,
    InterruptResponseContent,
    ReasoningContent,
    TextContent,
    UriContent,
    UsageContent,
)

__all__ = [
    "AllowedMedia",
    "ApprovalRequestContent",
    "ApprovalResponseContent",
    "ChatMessage",
    "ChatUpdate",
    "Content",
    "DataContent",
    "ErrorContent",
    "FunctionCallContent",
    "FunctionResultContent",
    "FunctionTool",
    "Hooks",
    "HostedFileContent",
    "InterruptRequestContent",
    "InterruptResponseContent",
    "ProviderHistory",
    "ReasoningContent",
    "Repair",
    "TextContent",
    "ToolError",
    "UpdateReader",
    "UpdateWriter",
    "UriContent",
    "UsageContent",
    "as_agui_messages",
    "as_chat_messages",
    "as_chat_updates",
    "as_event_stream",
    "as_openai_messages",
    "as_response_contents",
    "as_resume_entries",
    "event_content",
    "function_schema",
    "provider_history",
    "read_arguments",
    "tool",
]
