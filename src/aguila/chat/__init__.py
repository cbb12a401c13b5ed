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
from aguila.chat.message import ChatMessage, ChatUpdate
from aguila.chat.messages_in import as_chat_messages
from aguila.chat.messages_out import as_agui_messages
from aguila.chat.pairing import ProviderHistory, Repair, provider_history

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
    "HostedFileContent",
    "InterruptRequestContent",
    "InterruptResponseContent",
    "ProviderHistory",
    "ReasoningContent",
    "Repair",
    "TextContent",
    "UriContent",
    "UsageContent",
    "as_agui_messages",
    "as_chat_messages",
    "event_content",
    "provider_history",
]
