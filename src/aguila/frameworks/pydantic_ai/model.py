"""The model of an agent, whose answers are sent through the run while they arrive, and recorded.

A replay gets the recorded answer, with the ids that it was sent with: no model is asked twice for what is recorded.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, TypeAdapter
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext
from pydantic_ai.usage import RequestUsage

from aguila.chat import FunctionCallContent
from aguila.codec.notices import Notice, log_notice
from aguila.errors import RunFailed
from aguila.frameworks.pydantic_ai.answer import AnswerWriter
from aguila.frameworks.pydantic_ai.errors import FinishProblem, make_failure, tool_lost, truncated, unavailable
from aguila.frameworks.pydantic_ai.media import readable_messages, without_files
from aguila.frameworks.pydantic_ai.names import replace_surrogates
from aguila.frameworks.pydantic_ai.turn import Call, File, Text, Turn, replay_turn
from aguila.protocol import TokenUsage

if TYPE_CHECKING:
    from aguila.frameworks.pydantic_ai.capability import RunCapability

_SILENT = ("function", "test")
"""Models of pydantic-ai for tests, which give no finish reason and no usage of a vendor."""

_STOPS = {"eos": "stop", "eos_token": "stop", "stop_sequence": "stop", "model_length": "length"}
"""Finish reasons of servers that are compatible with OpenAI's, which pydantic-ai does not map."""


_responses: TypeAdapter[list[ModelResponse]] = TypeAdapter(
    list[ModelResponse], config=ConfigDict(defer_build=True, ser_json_bytes="base64", val_json_bytes="base64")
)


class AnswerEnded(Exception):
    """The run ends with this answer: it was refused, is empty, or a hook turned it into a question."""


class RecordedModel(WrapperModel):
    """A model whose answers are sent and recorded by the capability of a run."""

    def __init__(self, wrapped: Model, capability: RunCapability) -> None:
        super().__init__(wrapped)
        self._capability = capability

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Return the model's answer, or the recorded one."""
        one = self._capability
        one.round += 1
        one.check_questions()
        new: list[tuple[Turn, ModelResponse]] = []

        async def ask() -> tuple[Turn, ModelResponse]:
            sent = await one.add_messages(messages)
            readable = readable_messages(one.with_added(messages), self.wrapped, one.allowed_media, log_notice)
            turn, response = await self._read_answer(readable, model_settings, model_request_parameters)
            turn.added_messages = sent
            return turn, response

        async def effect() -> Any:
            new.append(await ask())
            turn, response = new[0]
            (dumped,) = _responses.dump_python([response], mode="json")
            unknown = sorted(self._unknown_tools(turn, model_request_parameters))
            return {"turn": await turn.to_record(), "response": dumped, "unknown": unknown}

        # A resumed run may have records of tools that the agent has lost.
        if not one.is_recorded(model_request_parameters) and one.run.resume_input is None:
            new.append(await ask())
        else:
            record = await one.run.once(f"{one.key} round {one.round}", effect, uses_run=True, idempotent=True)
            if not new:
                turn = await Turn.from_record(record["turn"])
                lost = self._unknown_tools(turn, model_request_parameters).difference(record.get("unknown", ()))
                if lost:
                    raise tool_lost(min(lost))
                await one.add_messages(messages, turn.added_messages)
                (response,) = _responses.validate_python([record["response"]])
                one.begin_turn(turn)
                with one.run.muted():
                    await replay_turn(one.run, one.chat, turn)
                new.append((turn, response))
        turn, response = new[0]
        await self._check_end(turn, response, is_text=model_request_parameters.output_mode == "text")
        return response

    def _unknown_tools(self, turn: Turn, parameters: ModelRequestParameters) -> set[str]:
        """Return the names of called tools that the agent does not have."""
        known = {self._capability.names.own(tool.name) for tool in parameters.function_tools}
        return {call.name for call in turn.calls} - known

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Return the complete answer as a stream: it was sent already."""
        response = await self.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(response, model_request_parameters=model_request_parameters, replay_events=True)

    async def _read_answer(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> tuple[Turn, ModelResponse]:
        one = self._capability
        one.begin_turn()
        writer = AnswerWriter(
            one.run,
            one.chat,
            own_name=one.names.own,
            holds=one.must_hold(parameters),
            hidden={tool.name for tool in parameters.output_tools},
            hides_text=parameters.output_mode in ("native", "prompted"),
        )
        stream = await self._read_stream(messages, settings, parameters, writer)
        response = stream.get()
        refusal: Any = (response.provider_details or {}).get("refusal")
        if isinstance(refusal, str):
            await writer.write_text(-1, refusal)
        writer.turn.finish_reason = _finish_reason_of(stream, response, self.wrapped.system)
        turn = one.turn = await writer.end(list(enumerate(response.parts)))
        return turn, replace(response, parts=_with_ids(response, parameters, turn))

    async def _read_stream(
        self,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
        writer: AnswerWriter,
    ) -> StreamedResponse:
        """Read the stream of an answer to its end. Raises ``RunFailed`` for an error of the vendor."""
        stream: StreamedResponse | None = None
        try:
            async with self.wrapped.request_stream(messages, settings, parameters) as stream:
                async for event in stream:
                    await writer.write(event)
            return stream
        except RunFailed:
            raise
        except Exception as error:
            failure = make_failure(error, has_begun=stream is not None)
            if failure is not None:
                raise failure from error
            fewer = without_files(messages, error, log_notice) if stream is None else None
            if fewer is None:
                raise
            return await self._read_stream(fewer, settings, parameters, writer)
        finally:
            if stream is not None:
                self._report_usage(stream)

    def _report_usage(self, stream: StreamedResponse) -> None:
        """Report the tokens so far, also of an answer that broke off (USE-1). Totals include their parts (USE-3)."""
        usage: RequestUsage = stream.usage
        if self.wrapped.system in _SILENT or not (usage.input_tokens or usage.output_tokens):
            return
        total = usage.input_tokens + usage.output_tokens
        self._capability.run.add_usage(
            TokenUsage(
                provider=stream.provider_name or self.wrapped.system,
                model=stream.model_name,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                total_tokens=total,
                reasoning_tokens=usage.output_reasoning_tokens or None,
                cached_input_tokens=usage.cache_read_tokens or None,
                cache_write_input_tokens=usage.cache_write_tokens or None,
            )
        )

    async def _check_end(self, turn: Turn, response: ModelResponse, *, is_text: bool) -> None:
        """Report the problem with the end of an answer. Raises ``RunFailed`` or ``AnswerEnded`` if the run ends."""
        one = self._capability
        if turn.finish_reason is None:
            raise truncated()
        problem = FinishProblem.of(turn.finish_reason)
        if problem is None:
            if one.chat.has_asked:
                raise AnswerEnded
            if not response.parts and response.state == "complete":  # otherwise the user would see nothing
                await one.send_problem(FinishProblem.of("empty"))
                raise AnswerEnded
            kinds = [type(item) for item in turn.items]
            if is_text and File in kinds and not {Text, Call} & {*kinds}:
                raise AnswerEnded  # a picture is an answer; pydantic-ai would ask for text
            return
        # Only the front end answers its calls (FT-1). It would execute those of a run that does not fail.
        is_out = problem.is_refusal and any(call.name in one.frontend and not call.is_held for call in turn.calls)
        if not turn.items or is_out or not all(call.is_complete for call in turn.calls):
            raise RunFailed(problem.message, code=problem.reason)
        if problem.reason == "other" and turn.calls:
            return  # calls are the reason to stop
        await one.send_problem(problem)
        if problem.is_refusal:
            await one.refuse_calls()
            raise AnswerEnded
        if not turn.calls and one.chat.has_asked:
            raise AnswerEnded


def _finish_reason_of(stream: StreamedResponse, response: ModelResponse, system: str) -> str | None:
    """Return our finish reason; None if the answer has no end."""
    details = response.provider_details or {}
    raw: Any = details.get("finish_reason")
    known = response.finish_reason
    if isinstance(details.get("refusal"), str) or raw == "refusal":
        return "refusal"
    if known == "content_filter" or known == "length":
        return known
    if raw is None:
        is_silent = system in _SILENT or (known is not None and not _makes_up_its_end(stream))
        return "stop" if is_silent else None
    if known in ("stop", "tool_call") or response.state == "suspended":
        return "stop"
    if raw in _STOPS:
        return _STOPS[raw]
    if "MALFORMED" in str(raw).upper():
        return "malformed_call"
    if raw == "failed":  # of OpenAI's Responses
        raise unavailable()
    log_notice(Notice(rule="models", message=f"the model stopped for the unknown reason {raw!r}"))
    return "other"


def _makes_up_its_end(stream: StreamedResponse) -> bool:
    """Return whether a stream has an end also if the server sent none, as that of OpenAI's Chat Completions."""
    try:
        from pydantic_ai.models.openai import OpenAIStreamedResponse
    except ImportError:  # without the SDK there is no such stream
        return False
    return isinstance(stream, OpenAIStreamedResponse)


def _with_ids(response: ModelResponse, parameters: ModelRequestParameters, turn: Turn) -> list[Any]:
    """Give the calls of a response the ids that they were sent with."""
    hidden = {tool.name for tool in parameters.output_tools}
    ids = iter([call.call_id for call in turn.calls])
    return [
        replace(part, tool_call_id=next(ids), args=_clean_arguments(part.args))
        if isinstance(part, ToolCallPart) and part.tool_name not in hidden
        else part
        for part in response.parts
    ]


def _clean_arguments(arguments: Any) -> Any:
    """Return arguments without halves of characters, which pydantic refuses also where they are escaped."""
    if isinstance(arguments, str) and "\\ud" in arguments.lower():
        parsed = FunctionCallContent("", "", arguments).parsed_arguments
        return arguments if parsed is None else replace_surrogates(parsed)
    return replace_surrogates(arguments)
