"""Random messages of a framework, converted to chat messages and back: ``native_round_trips.py FRAMEWORK COUNT``.

Runs in the environment of the framework. Prints the first history that does not return, and fails. The losses that
docs/frameworks.md lists are either not made here, or taken from the original before it is compared.
"""

from __future__ import annotations

import base64
import json
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aguila.chat import as_agui_messages
from aguila.frameworks.langgraph.messages import without_files

TEXTS = ("Hello", "Ünïcödé \U0001f600", "two\nlines", '{"a": 1}', "12")


class Maker:
    """Makes random values that the histories of all frameworks need."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._number = 0

    def id(self, kind: str) -> str:
        self._number += 1
        return f"{kind}-{self._number}"

    def chance(self, of: float = 0.5) -> bool:
        return self.random.random() < of

    def one(self, *values: Any) -> Any:
        return self.random.choice(values)

    def many(self, make: Callable[[], Any], low: int, high: int) -> list[Any]:
        return [make() for _ in range(self.random.randint(low, high))]

    def maybe(self, **members: Any) -> dict[str, Any]:
        """Return some of the members."""
        return {name: value for name, value in members.items() if self.chance()}

    def text(self) -> str:
        return self.one(*TEXTS)

    def data(self) -> bytes:
        return self.random.randbytes(self.random.randint(1, 9))

    def base64(self) -> str:
        return base64.b64encode(self.data()).decode()

    def arguments(self) -> dict[str, Any]:
        return {} if self.chance(0.2) else {"a": self.one(1, 2.5, None, "ü", [], {"b": True})}


class LangChain(Maker):
    """LangChain messages."""

    def media(self) -> dict[str, Any]:
        kind, media_type = self.one(
            ("image", "image/png"), ("audio", "audio/wav"), ("video", "video/mp4"), ("file", "application/pdf"),
            ("file", "image/png"), ("file", "text/plain"),
        )  # fmt: skip
        block: dict[str, Any] = {"type": kind, **self.maybe(id=self.id("block"))}
        match self.one("base64", "url", "file_id"):
            case "base64":
                block |= {"base64": self.base64(), "mime_type": media_type}
            case "url":
                block |= {"url": f"https://example.com/{self.id('file')}", **self.maybe(mime_type=media_type)}
            case _:
                block |= {"file_id": self.id("file"), **self.maybe(mime_type=media_type)}
        if self.chance(0.3):
            block["extras"] = self.one({"filename": "a name.pdf"}, {"filename": "a.pdf", "detail": "low"}, {"x": 1})
        return block

    def text_block(self) -> dict[str, Any]:
        block: dict[str, Any] = {"type": "text", "text": self.text()}
        if self.chance(0.3):
            citation = {"type": "citation", "url": "https://example.com", "cited_text": "x"}
            block |= self.one({"annotations": [citation]}, {"id": self.id("block")}, {"extras": {"cached": True}})
        return block

    def blocks(self) -> Any:
        if self.chance():
            return self.text()
        found = self.many(lambda: self.one(self.text_block, self.media)(), 1, 3)
        is_plain = len(found) == 1 and set(found[0]) == {"type", "text"}
        return found[0]["text"] if is_plain else found

    def reasoning(self) -> dict[str, Any]:
        block = {"type": "reasoning", "reasoning": self.one("", "Hm.", "First.\nThen.")}
        extras = self.one({}, {"signature": self.base64()}, {"encrypted_content": self.base64(), "status": None})
        return {**block, **self.maybe(id=self.id("rs")), **({"extras": extras} if extras else {})}

    def common(self) -> dict[str, Any]:
        more = {"additional_kwargs": {"own": [1]}, "response_metadata": {"model_name": "m", "finish_reason": "stop"}}
        return self.maybe(id=self.id("message"), name="Ada", **more)

    def answer(self, calls: list[dict[str, Any]], invalid: list[dict[str, Any]]) -> Any:
        from langchain_core.messages import AIMessage

        common = self.common()
        content: Any = self.text() if self.chance() else ""
        if self.chance():
            content = [self.reasoning(), *self.many(self.text_block, 0 if calls else 1, 2)]
            if self.chance(0.3):
                content.append(self.media())
            if not invalid and self.chance(0.3):  # LangChain's standard form, with the calls among the texts
                content += calls
                self.random.shuffle(content)
                metadata = {"output_version": "v1", **self.maybe(model_provider="openai")}
                common["response_metadata"] = {**common.get("response_metadata", {}), **metadata}
                calls = [one for one in content if one["type"] == "tool_call"]
        usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
        more = self.maybe(usage_metadata={**usage, "output_token_details": {"reasoning": 1}})
        return AIMessage(content=content, tool_calls=calls, invalid_tool_calls=invalid, **common, **more)

    def claude(self, calls: list[dict[str, Any]]) -> Any:
        """Return an answer in the form of langchain-anthropic, which becomes LangChain's standard form."""
        from langchain_core.messages import AIMessage

        thought = {"type": "thinking", "thinking": "Hm.", "signature": self.base64()}
        used = [{"type": "tool_use", "id": one["id"], "name": one["name"], "input": one["args"]} for one in calls]
        content = [thought, {"type": "text", "text": self.text()}, *used]
        return AIMessage(
            content, tool_calls=calls, response_metadata={"model_provider": "anthropic"}, **self.maybe(id="a")
        )

    def turn(self) -> list[Any]:
        from langchain_core.messages import ToolMessage

        calls = [
            {"type": "tool_call", "id": self.id("call"), "name": self.one("add", "look_up"), "args": self.arguments()}
            for _ in range(self.random.randint(1, 3))
        ]
        invalid: list[dict[str, Any]] = []
        if self.chance(0.2):
            error = self.one(None, "Not JSON")
            broken = {"id": self.id("call"), "name": "add", "args": self.one('{"a": ', "[1]", "{}"), "error": error}
            invalid.append({"type": "invalid_tool_call", **broken})
        answer = self.claude(calls) if self.chance(0.2) else self.answer(calls, invalid)
        results = [
            ToolMessage(
                content=self.blocks(),
                tool_call_id=call["id"],
                status=self.one("success", "error"),
                **{**self.common(), **self.one({"name": call["name"]}, {})},
                **self.maybe(artifact={"rows": [1, 2]}),
            )
            for call in answer.tool_calls
        ]
        return [answer, *results]

    def history(self) -> list[Any]:
        from langchain_core.messages import HumanMessage, SystemMessage

        found: list[Any] = []
        if self.chance():
            texts = self.text() if self.chance() else self.many(self.text_block, 2, 3)
            found.append(SystemMessage(content=texts, **self.common()))
        if self.chance(0.3):
            common = self.common()
            common["additional_kwargs"] = {**common.get("additional_kwargs", {}), "__openai_role__": "developer"}
            found.append(SystemMessage(content=self.text(), **common))
        for _ in range(self.random.randint(1, 4)):
            found.append(HumanMessage(content=self.blocks(), **self.common()))
            for _ in range(self.random.randint(0, 2)):
                found += self.turn()
            found.append(self.answer([], []))
        return [one for one in found if not self._has_reasoning_only(one)]

    @staticmethod
    def _has_reasoning_only(message: Any) -> bool:
        """Tell whether an answer only has reasoning, which becomes a part of the next answer."""
        content = message.content
        is_reasoning = isinstance(content, list) and all(one["type"] == "reasoning" for one in content)
        return message.type == "ai" and is_reasoning and not message.tool_calls and not message.invalid_tool_calls


class OpenAI(Maker):
    """Items of the Responses API."""

    def part(self) -> dict[str, Any]:
        url = f"https://example.com/{self.id('file')}"
        detail = self.one("auto", "low", "high")
        image = f"data:image/png;base64,{self.base64()}"
        document = f"data:{self.one('application/pdf', 'image/png', 'text/plain')};base64,{self.base64()}"
        audio = {"data": self.base64(), "format": self.one("mp3", "wav")}
        return self.one(
            {"type": "input_text", "text": self.text()},
            {"type": "input_image", "detail": detail, "image_url": self.one(url, image)},
            {"type": "input_image", "detail": detail, "file_id": self.id("file")},
            {"type": "input_file", "file_id": self.id("file")},
            {"type": "input_file", "file_url": url, **self.maybe(filename="a.pdf")},
            {"type": "input_file", "filename": "a name.pdf", "file_data": document},
            {"type": "input_audio", "input_audio": audio},
        )

    def content(self) -> Any:
        parts = self.many(self.part, 1, 3)
        return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "input_text" else parts

    def message(self, role: str) -> dict[str, Any]:
        typed = {} if self.chance() else {"type": "message", **self.maybe(id=self.id("msg"), status="completed")}
        texts = [{"type": "input_text", "text": self.text()} for _ in range(2)]
        content = self.content() if role == "user" else texts
        return {**typed, "role": role, "content": self.text() if self.chance() else content}

    def reasoning(self) -> dict[str, Any]:
        summary = [{"type": "summary_text", "text": text} for text in self.many(self.text, 0, 2)]
        content = [{"type": "reasoning_text", "text": "Hm."}]
        more = self.maybe(encrypted_content=self.base64(), status="completed", content=content)
        return {"type": "reasoning", "id": self.id("rs"), "summary": summary, **more}

    def answer(self) -> dict[str, Any]:
        if self.chance(0.3):
            return {**self.maybe(type="message", id=self.id("msg")), "role": "assistant", "content": self.text()}
        citation = {"type": "url_citation", "start_index": 0, "end_index": 1, "title": "x", "url": "https://x.com"}
        texts = [
            {"type": "output_text", "text": self.text(), "annotations": self.one([], [citation]), "logprobs": []}
            for _ in range(self.random.randint(1, 3))
        ]
        refusals = [{"type": "refusal", "refusal": "I cannot do that."}] if self.chance(0.2) else []
        status = self.one("completed", "incomplete")
        more = {"id": self.id("msg"), "status": status, **self.maybe(phase="commentary")}
        return {"type": "message", "role": "assistant", "content": [*texts, *refusals], **more}

    def turn(self) -> list[dict[str, Any]]:
        ids = [self.id("call") for _ in range(self.random.randint(1, 3))]
        calls = [
            {
                "type": "function_call",
                "call_id": each,
                "name": self.one("add", "look_up"),
                "arguments": self.one(json.dumps(self.arguments()), '{"a":1}', "{}", '{"a": '),
                **self.maybe(id=self.id("fc"), status="completed"),
            }
            for each in ids
        ]
        results = [
            {
                "type": "function_call_output",
                "call_id": each,
                "output": self.one(self.text(), "", self.content()),
                **self.maybe(id=self.id("fco"), status=self.one("completed", "incomplete")),
            }
            for each in ids
        ]
        before = [*self.many(self.reasoning, 0, 2), *self.many(self.answer, 0, 2)]
        return [*before, *calls, *results]

    def history(self) -> list[Any]:
        found = [self.message(role) for role in ("system", "developer") if self.chance()]
        for _ in range(self.random.randint(1, 4)):
            found += self.many(lambda: self.message("user"), 1, 2)
            for _ in range(self.random.randint(0, 2)):
                found += self.turn()
            found += [*self.many(self.reasoning, 0, 1), *self.many(self.answer, 1, 2)]
        return found


class PydanticAI(Maker):
    """pydantic-ai's ModelMessages."""

    def item(self) -> Any:
        from pydantic_ai.messages import AudioUrl, BinaryContent, DocumentUrl, ImageUrl, VideoUrl

        kind, media_type = self.one(
            (ImageUrl, "image/png"), (AudioUrl, "audio/wav"), (VideoUrl, "video/mp4"), (DocumentUrl, "application/pdf")
        )
        more = self.maybe(vendor_metadata={"detail": "low"})
        if self.chance():
            return BinaryContent(self.data(), media_type=self.one(media_type, "text/plain"), **more)
        return kind(url=f"https://example.com/{self.id('file')}", media_type=media_type, force_download=self.chance())

    def prompt(self) -> Any:
        from pydantic_ai.messages import UploadedFile, UserPromptPart

        if self.chance(0.1):
            more = self.maybe(vendor_metadata={"detail": "low"})
            file = UploadedFile(self.id("file"), provider_name="openai", media_type="application/pdf", **more)
            return UserPromptPart([file])
        if self.chance():
            return UserPromptPart(self.text())
        return UserPromptPart([self.item(), *self.many(lambda: self.one(self.text, self.item)(), 0, 2)])

    def thinking(self) -> Any:
        from pydantic_ai.messages import ThinkingPart

        more = self.maybe(id=self.id("rs"), signature=self.base64())
        provider = {"provider_name": "openai", **self.maybe(provider_details={"raw_content": ["Hm."]})} if more else {}
        return ThinkingPart(self.one("", "Hm.") if more else "Hm.", **more, **provider)

    def history(self) -> list[Any]:
        from pydantic_ai.messages import ModelRequest, ModelResponse, SystemPromptPart, TextPart

        system = [SystemPromptPart(self.text())] if self.chance() else []
        parts: list[Any] = [*system, *self.many(self.prompt, 1, 2)]
        found: list[Any] = []
        for _ in range(self.random.randint(1, 4)):
            found.append(ModelRequest(parts))
            for _ in range(self.random.randint(0, 2)):
                calls, results = self.calls()
                before = [*self.many(self.thinking, 0, 2), *([TextPart(self.text())] if self.chance() else [])]
                found += [ModelResponse([*before, *calls]), ModelRequest(results)]
            found.append(ModelResponse([*self.many(self.thinking, 0, 1), TextPart(self.text())]))
            parts = self.many(self.prompt, 1, 2)
        return found

    def calls(self) -> tuple[list[Any], list[Any]]:
        from pydantic_ai.messages import (
            NativeToolCallPart,
            NativeToolReturnPart,
            RetryInfo,
            TextPart,
            ToolCallPart,
            ToolReturnPart,
        )

        calls: list[Any] = []
        results: list[Any] = []
        for _ in range(self.random.randint(1, 3)):
            arguments = self.one(self.arguments(), json.dumps(self.arguments()))
            calls.append(ToolCallPart(self.one("add", "look_up"), arguments, self.id("call")))
            content = self.one("Hello", "", "12", "two\nlines", {"a": [1, None]}, ["a", {"b": 2.5}], self.item())
            outcome = self.one("success", "success", "failed", "denied", "interrupted")
            results.append(ToolReturnPart(calls[-1].tool_name, content, calls[-1].tool_call_id, outcome=outcome))
        if self.chance(0.2):
            retry = RetryInfo(self.one("model_retry", "validation_error"), attempt=1, max_retries=2)
            results[-1] = replace(results[-1], content="Try again.", outcome="retried", retry=retry)
        if self.chance(0.2):
            call = NativeToolCallPart("web_search", {"query": "x"}, self.id("call"), provider_name="openai")
            done = NativeToolReturnPart("web_search", {"found": 1}, call.tool_call_id, provider_name="openai")
            calls = [call, done, TextPart("Found."), *calls]
        return calls, results


def plain_langchain(messages: list[Any]) -> Any:
    """Return LangChain messages with standard blocks for those of a provider."""
    found: list[Any] = []
    for message in messages:
        dump = message.model_dump()
        if message.response_metadata.get("model_provider") == "anthropic":
            dump["content"] = message.content_blocks
            dump["response_metadata"] = {"model_provider": "anthropic"}
        found.append((type(message), dump))
    return found


def plain_model_messages(messages: list[Any]) -> Any:
    """Return ModelMessages without what is lost: times, ids of messages, and the form of arguments."""
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    found = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    for message in found:
        message.pop("timestamp", None)
        message.pop("metadata", None)
        for part in message["parts"]:
            part.pop("timestamp", None)
            if isinstance(arguments := part.get("args"), str):
                part["args"] = json.loads(arguments)
    return found


def main(framework: str, count: int) -> None:
    if framework == "langgraph":
        from aguila.frameworks.langgraph import from_langchain as there
        from aguila.frameworks.langgraph import to_langchain as back

        maker, plain = LangChain, plain_langchain
    elif framework == "openai_agents":
        from aguila.frameworks.openai_agents import from_items as there
        from aguila.frameworks.openai_agents import to_items as back

        maker, plain = OpenAI, lambda items: items
    else:
        from aguila.frameworks.pydantic_ai import from_model_messages as there
        from aguila.frameworks.pydantic_ai import to_model_messages as back

        maker, plain = PydanticAI, plain_model_messages
    for seed in range(count):
        history = maker(seed).history()
        chat = there(history)
        expected, found = plain(history), plain(back(chat))
        if expected != found:
            pairs = zip(expected, found, strict=False)
            different = next((pair for pair in pairs if pair[0] != pair[1]), (len(expected), len(found)))
            sys.exit(f"seed {seed} of {framework}:\n{different[0]}\nreturned as\n{different[1]}")
        as_agui_messages(without_files(message, lambda notice: None) for message in chat)
    print(f"{count} native histories")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
