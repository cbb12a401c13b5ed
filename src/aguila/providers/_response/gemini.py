"""Read the stream of Gemini's generate_content."""

from __future__ import annotations

import base64
from typing import Any

from aguila.chat import (
    ChatUpdate,
    Content,
    DataContent,
    FunctionCallContent,
    ReasoningContent,
    TextContent,
)
from aguila.chat.property_keys import CONTENT_ID, ENCRYPTED_VALUE, ENCRYPTED_VALUE_TYPE
from aguila.codec.json.encoder import encode
from aguila.protocol import TokenUsage
from aguila.providers._encrypted_values import Place, pack, pack_place
from aguila.providers._request.prompt import (
    ProviderView,
)
from aguila.providers._response.grounding import read_citation_metadata, read_grounding
from aguila.providers._response.reader import Reader, known_finish, make_updates
from aguila.providers._response.usage import add_counts, count, token_usage

SIGNATURE = "google.thought_signature"
"""Kind of the opaque value that is the signature of a call, text or reasoning."""
PART = "google.part"
"""Kind of the opaque value that is a complete part of one of the provider's own tools."""
_FINISH = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",  # the limit of one request; the SDK continues by default
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "LANGUAGE": "refusal",
    "MALFORMED_FUNCTION_CALL": "malformed_call",
    "MALFORMED_RESPONSE": "malformed_call",
    "UNEXPECTED_TOOL_CALL": "malformed_call",
    "TOO_MANY_TOOL_CALLS": "length",
    "OTHER": "other",
    "IMAGE_OTHER": "other",
    "NO_IMAGE": "other",
}
OWN_PARTS = ("executable_code", "code_execution_result", "tool_call", "tool_response")


class _Reader(Reader):
    def __init__(self, model: str, provider: str, view: ProviderView | None) -> None:
        super().__init__(model, provider, view)
        self._calls: set[str] = set()  # ids
        self._thoughts = 0
        self._texts: list[str] = []
        self._grounding: Any = None

    def read(self, response: Any) -> ChatUpdate | None:
        """Convert a response to an update, or None."""
        if getattr(response, "usage_metadata", None) is not None:
            self.usage = self._usage(response.usage_metadata)  # cumulative: the last one counts
        feedback = getattr(response, "prompt_feedback", None)
        if getattr(feedback, "block_reason", None) is not None:
            self.finish = "content_filter"
        contents: list[Content] = []
        for candidate in (getattr(response, "candidates", None) or ())[:1]:
            for part in getattr(getattr(candidate, "content", None), "parts", None) or ():
                contents += self._contents(part)
            repeated = getattr(candidate, "citation_metadata", None)
            if repeated is not None:
                contents += self._cite(*read_citation_metadata(repeated, "".join(self._texts), self._provider))
            self._grounding = getattr(candidate, "grounding_metadata", None) or self._grounding
            reason = getattr(candidate, "finish_reason", None)
            if reason is not None:
                contents += self._grounded()
                self.finish = known_finish(_FINISH, str(getattr(reason, "value", reason)))
        given = getattr(response, "response_id", None)
        return ChatUpdate(contents=contents, message_id=given, raw_representation=response) if contents else None

    def _contents(self, part: Any) -> list[Content]:
        signature = getattr(part, "thought_signature", None)
        members: dict[str, str] = {}
        if isinstance(signature, bytes) and signature != b"":
            members["signature"] = base64.b64encode(signature).decode("ascii")
        signed = {ENCRYPTED_VALUE: pack(SIGNATURE, **members), ENCRYPTED_VALUE_TYPE: SIGNATURE} if members else {}
        text = getattr(part, "text", None)
        if getattr(part, "function_call", None) is not None:
            return [self._call(part.function_call, signed)]
        if getattr(part, "thought", None) is True:
            return self._thought(text if isinstance(text, str) else "", members)
        if getattr(part, "inline_data", None) is not None:
            blob = part.inline_data
            return [DataContent(blob.data or b"", blob.mime_type, additional_properties=signed)]
        for name in OWN_PARTS:
            if getattr(part, name, None) is not None:
                self._warn_dropped(name, "its part is kept for the model and not shown")
                whole = {name: getattr(part, name).model_dump(mode="json", exclude_none=True)}
                artefact = pack(PART, part=encode(whole).decode(), **members)
                self._thoughts += 1
                return [ReasoningContent("", artefact, additional_properties=self._of(PART))]
        if isinstance(text, str):
            self._texts.append(text)
        if isinstance(text, str) or members:
            return [self._signed_text(text if isinstance(text, str) else "", signed)]
        for name in getattr(part, "model_fields_set", ()):
            self._warn_dropped(name, "it is dropped")
        return []

    def _grounded(self) -> list[Content]:
        """Return the citations of the whole answer, which come with the last response."""
        found, self._grounding = self._grounding, None
        return [] if found is None else self._cite(*read_grounding(found, "".join(self._texts), self._provider))

    def _signed_text(self, text: str, signed: dict[str, Any]) -> TextContent:
        if signed:  # a signature belongs to exactly this piece of text, and is sent back with it
            place = Place(self._said, len(text), is_after_calls=text == "" and len(self._calls) > 0)
            signed = {**signed, ENCRYPTED_VALUE: pack_place(signed[ENCRYPTED_VALUE], place)}
        return self._text(text, **signed)

    def _thought(self, text: str, members: dict[str, str]) -> list[Content]:
        if not members:
            return [ReasoningContent(text, additional_properties=self._of())]
        artefact = pack(SIGNATURE, thought=str(len(text)), **members)
        signed = ReasoningContent(text, artefact, additional_properties=self._of(SIGNATURE))
        self._thoughts += 1  # a signed part is not joined with later ones
        return [signed]

    def _of(self, kind: str | None = None) -> dict[str, Any]:
        """Return the properties of reasoning: its number, and the kind of its opaque value."""
        properties: dict[str, Any] = {CONTENT_ID: f"thought-{self._thoughts}"}
        return properties if kind is None else {**properties, ENCRYPTED_VALUE_TYPE: kind}

    def _call(self, call: Any, properties: dict[str, Any]) -> FunctionCallContent:
        given = getattr(call, "id", None)
        call_id = given if isinstance(given, str) else ""
        number = len(self._calls) + 1
        while call_id == "" or call_id in self._calls:  # calls come complete: the same id again is another call
            call_id = f"{given or 'call'}_{number}"
            number += 1
        self._calls.add(call_id)
        name = call.name or ""
        return FunctionCallContent(
            call_id,
            self._own_name(name),
            encode(call.args or {}).decode(),
            additional_properties=properties,
        )

    def _usage(self, usage: Any) -> TokenUsage:
        thoughts = count(usage, "thoughts_token_count")
        # The prompt includes cached tokens; tool results and reasoning are counted separately (USE-3).
        prompt = count(usage, "prompt_token_count")
        return token_usage(
            self._provider,
            self._model,
            input_tokens=None if prompt is None else add_counts(prompt, count(usage, "tool_use_prompt_token_count")),
            output_tokens=add_counts(count(usage, "candidates_token_count"), thoughts),
            reasoning=thoughts,
            cached=count(usage, "cached_content_token_count"),
        )


updates = make_updates(_Reader, "google")
