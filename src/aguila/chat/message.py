"""Layer: chat. A message of a conversation, and an update of one that is being streamed.

Below: ``content``. Above: the mappings, the providers, ``ChatClient``. Immutable values, like the contents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from aguila.chat.content import Content, FunctionCallContent, FunctionResultContent, Properties, TextContent, Value


class _Holder(Value, frozen=True, eq=False):
    """What messages and updates have in common."""

    role: str
    contents: list[Content]
    message_id: str | None = None
    author_name: str | None = None
    additional_properties: Properties = {}  # noqa: RUF012 - msgspec makes a new one each time
    raw_representation: Any = None

    def __post_init__(self) -> None:
        contents: object = self.contents
        if isinstance(contents, str):
            msgspec.structs.force_setattr(self, "contents", [TextContent(contents)])

    @property
    def text(self) -> str:
        """All text in it, joined."""
        return "".join([content.text for content in self.contents if isinstance(content, TextContent)])


class ChatMessage(_Holder, frozen=True, eq=False):
    """A message: who speaks (``system``, ``developer``, ``user``, ``assistant`` or ``tool``) and what it holds.

    A string as ``contents`` is one text. An assistant's calls and reasoning are contents; results are contents of tool
    messages.
    """

    contents: list[Content] = []  # noqa: RUF012

    if TYPE_CHECKING:  # msgspec makes the constructor; this says that a string is accepted, too

        def __init__(
            self,
            role: str,
            contents: str | list[Content] = ...,
            message_id: str | None = None,
            author_name: str | None = None,
            additional_properties: Properties = ...,
            raw_representation: Any = None,
        ) -> None: ...

    @property
    def calls(self) -> list[FunctionCallContent]:
        """The calls it makes."""
        return [content for content in self.contents if isinstance(content, FunctionCallContent)]

    @property
    def results(self) -> list[FunctionResultContent]:
        """The results it brings."""
        return [content for content in self.contents if isinstance(content, FunctionResultContent)]


class ChatUpdate(_Holder, frozen=True, eq=False):
    """A piece of a streamed answer: contents that add to the message ``message_id``, or none and only an event."""

    role: str = "assistant"
    contents: list[Content] = []  # noqa: RUF012

    if TYPE_CHECKING:  # msgspec makes the constructor; this says that a string is accepted, too

        def __init__(
            self,
            role: str = "assistant",
            contents: str | list[Content] = ...,
            message_id: str | None = None,
            author_name: str | None = None,
            additional_properties: Properties = ...,
            raw_representation: Any = None,
        ) -> None: ...
