"""Random chat messages, converted to those of a framework and back: ``message_round_trips.py FRAMEWORK COUNT``.

Runs in the environment of the framework. Prints the first history that does not return, and fails.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

from aguila.chat import (
    ChatMessage,
    Content,
    DataContent,
    FunctionCallContent,
    FunctionResultContent,
    HostedFileContent,
    ReasoningContent,
    TextContent,
    UriContent,
)
from aguila.chat.property_keys import FILENAME

TEXTS = ("", "Hello", "Ünïcödé \U0001f600", "two\nlines", '{"a": 1}')
TYPES = ("image/png", "audio/wav", "video/mp4", "application/pdf", "text/plain")


class Chat:
    """Makes random histories that a model could have had. ``kinds`` are the media types that come back."""

    def __init__(self, seed: int, kinds: tuple[str, ...], *, urls: bool, files: bool, tool_files: bool) -> None:
        self._random = random.Random(seed)
        self._kinds = kinds
        self._urls = urls
        self._files = files
        self._tool_files = tool_files
        self._number = 0

    def _id(self, kind: str) -> str:
        self._number += 1
        return f"{kind}-{self._number}"

    def text(self, *, is_empty: bool = True) -> TextContent:
        return TextContent(self._random.choice(TEXTS if is_empty else TEXTS[1:]))

    def media(self) -> Content:
        media_type = self._random.choice(self._kinds)
        forms = ["data", *(["url"] if self._urls else []), *(["file"] if self._files else [])]
        match self._random.choice(forms):
            case "url":
                return UriContent(f"https://example.com/{self._id('file')}", media_type)
            case "file":
                return HostedFileContent(self._id("file"), media_type)
            case _:
                name = {FILENAME: "a name.pdf"} if media_type == "application/pdf" else {}
                # A text is one: what is not UTF-8 is left out, because no model could read it.
                is_text = media_type.startswith("text/")
                data = b"eagles" if is_text else self._random.randbytes(self._random.randint(1, 9))
                return DataContent(data, media_type, **_properties(name))

    def user(self) -> ChatMessage:
        if self._random.random() < 0.5:
            return ChatMessage("user", [self.text(is_empty=False)], message_id=self._id("user"))
        contents = [self._random.choice((self.text(is_empty=False), self.media())) for _ in range(3)]
        return ChatMessage("user", contents, message_id=self._id("user"))

    def arguments(self) -> str:
        return json.dumps({"a": self._random.choice((1, 2.5, None, "x", [], {"b": True}))})

    def history(self) -> list[ChatMessage]:
        messages: list[ChatMessage] = []
        if self._random.random() < 0.3:
            messages.append(ChatMessage("system", "Be kind.", message_id=self._id("system")))
        for _ in range(self._random.randint(1, 4)):
            messages.append(self.user())
            for _ in range(self._random.randint(0, 2)):
                messages += self.calls()
            messages.append(self.answer([]))
        return messages

    def calls(self) -> list[ChatMessage]:
        calls: list[Content] = [
            FunctionCallContent(self._id("call"), self._random.choice(("add", "look_up")), self.arguments())
            for _ in range(self._random.randint(1, 3))
        ]
        results = [
            ChatMessage("tool", [FunctionResultContent(call.call_id, self.result())], message_id=self._id("tool"))
            for call in calls
            if isinstance(call, FunctionCallContent)
        ]
        return [self.answer(calls), *results]

    def result(self) -> Any:
        if self._tool_files and self._random.random() < 0.3:
            return [self.text(is_empty=False), self.media()]
        return self._random.choice(TEXTS)

    def answer(self, calls: list[Content]) -> ChatMessage:
        contents: list[Content] = []
        if self._random.random() < 0.3:
            item = {"type": "reasoning", "id": self._id("rs"), "summary": [{"type": "summary_text", "text": "Hm."}]}
            contents.append(ReasoningContent("Hm.", json.dumps({**item, "encrypted_content": "x"})))
        if not calls or self._random.random() < 0.3:
            contents.append(self.text(is_empty=False))
        return ChatMessage("assistant", [*contents, *calls], message_id=self._id("answer"))


def _properties(found: dict[str, Any]) -> dict[str, Any]:
    return {"additional_properties": found} if found else {}


def essence(messages: list[ChatMessage], kept: frozenset[str]) -> list[Any]:
    """Return the values that must come back, as a flat list: the grouping into messages does not matter."""
    return [part for message in messages for content in message.contents for part in _parts(message, content, kept)]


def _parts(message: ChatMessage, content: Content, kept: frozenset[str]) -> list[Any]:
    role = message.role
    media_type = getattr(content, "media_type", None) if "types" in kept else None
    match content:
        case TextContent():
            return [] if content.text == "" else [(role, "text", content.text)]
        case ReasoningContent():
            return [(role, "reasoning", content.text, _json(content.protected_data) if "reasoning" in kept else None)]
        case FunctionCallContent():
            return [(role, "call", content.call_id, content.name, content.parsed_arguments)]
        case FunctionResultContent():
            result = content.result
            if isinstance(result, str):
                return [(role, "result", content.call_id, result if "results" in kept else content.parsed_result)]
            inner = [part for one in result for part in _parts(message, one, kept)]
            return [(role, "result", content.call_id, *inner)]
        case DataContent():
            name = content.additional_properties.get(FILENAME) if "names" in kept else None
            return [(role, "data", content.data, content.media_type, name)]
        case UriContent():
            return [(role, "url", content.uri, media_type)]
        case HostedFileContent():
            return [(role, "file", content.file_id, media_type)]
    raise TypeError(f"unexpected {type(content).__name__}")


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def main(framework: str, count: int) -> None:
    if framework == "langgraph":
        from aguila.frameworks.langgraph import from_langchain, to_langchain

        there, back, kept = to_langchain, from_langchain, frozenset({"types", "names", "reasoning", "results"})
        options: dict[str, Any] = {"kinds": TYPES, "urls": True, "files": True, "tool_files": True}
    elif framework == "openai_agents":
        from aguila.frameworks.openai_agents import from_items, to_items

        there, back, kept = to_items, from_items, frozenset({"names", "reasoning", "results"})
        kinds = ("image/png", "audio/wav", "application/pdf")
        options = {"kinds": kinds, "urls": False, "files": False, "tool_files": True}
    else:
        from aguila.frameworks.pydantic_ai import from_model_messages, to_model_messages

        there, back, kept = to_model_messages, from_model_messages, frozenset({"types"})
        options = {"kinds": TYPES, "urls": True, "files": False, "tool_files": False}
    for seed in range(count):
        chat = Chat(seed, **options).history()
        returned = back(there(chat))
        expected, found = essence(chat, kept), essence(returned, kept)
        if expected != found:
            sys.exit(f"seed {seed}:\n{expected}\n{found}\n{there(chat)}")
        if framework == "langgraph":
            exact = [(one.role, one.message_id) for one in chat]
            if exact != [(one.role, one.message_id) for one in returned]:
                sys.exit(f"seed {seed}: the ids are {returned}")
    print(f"{count} histories")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
