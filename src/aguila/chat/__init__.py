"""Layer: chat. The neutral chat model, and its mapping to and from AG-UI in both directions.

Below: ``aguila.stream``, ``aguila.codec``, ``aguila.protocol``. Above: agents and servers, clients, and the providers,
which map chat to the SDKs of models. No SDK is imported here.
"""

from aguila.chat import event_content
from aguila.chat.content import (
    ApprovalRequestContent,
    ApprovalResponseContent,
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
from aguila.chat.functions import function_schema, read_arguments
from aguila.chat.hooks import Hooks
from aguila.chat.interrupts import as_resume_entries
from aguila.chat.message import ChatMessage, ChatUpdate
from aguila.chat.messages_in import as_chat_messages
from aguila.chat.messages_out import as_agui_messages
from aguila.chat.pairing import ProviderHistory, Repair, provider_history
from aguila.chat.stream_in import as_chat_updates
from aguila.chat.stream_out import as_event_stream
from aguila.chat.updates_in import UpdateReader
from aguila.chat.updates_out import UpdateWriter

__all__ = [
    "ApprovalRequestContent",
    "ApprovalResponseContent",
    "ChatMessage",
    "ChatUpdate",
    "Content",
    "DataContent",
    "ErrorContent",
    "FunctionCallContent",
    "FunctionResultContent",
    "Hooks",
    "HostedFileContent",
    "InterruptRequestContent",
    "InterruptResponseContent",
    "ProviderHistory",
    "ReasoningContent",
    "Repair",
    "TextContent",
    "UpdateReader",
    "UpdateWriter",
    "UriContent",
    "UsageContent",
    "as_agui_messages",
    "as_chat_messages",
    "as_chat_updates",
    "as_event_stream",
    "as_resume_entries",
    "event_content",
    "function_schema",
    "provider_history",
    "read_arguments",
]
