"""Layer: chat. The neutral chat model, and its mapping to and from AG-UI in both directions.

Below: ``aguila.stream``, ``aguila.codec``, ``aguila.protocol``. Above: agents and servers, clients, and the providers,
which map chat to the SDKs of models. No SDK is imported here.

=============================  ======================================================================================
AG-UI                          chat
=============================  ======================================================================================
text, part ``text``            ``TextContent``
part with ``data``             ``DataContent``: the bytes
part with ``url``              ``UriContent``, or ``DataContent`` for a ``data:`` URL
part with ``file``             ``HostedFileContent``; without a provider it is to be resolved
reasoning, encrypted value     ``ReasoningContent``: text and protected data, in an assistant's message
tool call, TOOL_CALL_*         ``FunctionCallContent``; in pieces while it is streamed, then whole
tool message, result           ``FunctionResultContent``: the exact text, or parts as contents
RUN_ERROR; usage               ``ErrorContent``; ``UsageContent``
interrupt on a call; others    ``ApprovalRequestContent``; ``InterruptRequestContent``. Answers: ``...ResponseContent``
any event                      ``raw_representation`` of an update, or ``event_content`` (verbatim on the way out)
=============================  ======================================================================================

What is lost is listed where it is lost: ``messages_in``, ``messages_out``, ``stream_out``. What has no field in chat
types is kept in ``additional_properties`` under the names in ``keys``.
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
from aguila.chat.interrupts import as_response_contents, as_resume_entries
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
    "as_response_contents",
    "as_resume_entries",
    "event_content",
    "function_schema",
    "provider_history",
    "read_arguments",
]
