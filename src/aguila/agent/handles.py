"""Layer: agent. What an agent holds while it says something: a message, a thought, a call, a step, a subagent.

Above: ``run`` adds what belongs to the run as a whole. Below: ``output``. A handle closes what it opened and cannot be
used in an illegal order; several may be in use at once, in one task or in many, and interleave.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Literal, cast

from aguila.agent.output import Output
from aguila.agent.questions import APPROVAL_SCHEMA, Approval, Question, Questions, interrupts_in, read_approval
from aguila.codec.json import encode
from aguila.errors import EncodeError, IllegalStep
from aguila.protocol import (
    ContentPart,
    JsonPatchOperation,
    Metadata,
    TextMessageRole,
    replace,
)
from aguila.protocol.parts import AudioPart, DocumentPart, ImagePart, TextPart, VideoPart
from aguila.stream.emit import own_json
from aguila.stream.patch import apply_patch, make_patch
from aguila.stream.rules import REASONING_MESSAGE, REASONING_SPAN, STEP, SUBAGENT, TEXT, TOOL_CALL
from aguila.stream.write import EventWriter

StepStatus = Literal["success", "error", "suspended", "cancelled"]
"""How a step went."""

_PARTS = (TextPart, ImagePart, AudioPart, VideoPart, DocumentPart)
_ARRAY: Any = (list, tuple)


class _Opened:
    """Something that is open from entering until leaving."""

    def __init__(self, output: Output) -> None:
        self._out = output

    async def _close(self, error: BaseException | None) -> None:
        raise NotImplementedError

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        out = self._out
        # After the end of the run, or of the sink, there is nothing to close, and the error on its way is the one to
        # be seen.
        if not out.is_over and (out.failure is None or error is None):
            await self._close(error)


class TextHandle(_Opened, AbstractAsyncContextManager["TextHandle"]):
    """A text message that is being written. ``message_id`` is its id."""

    def __init__(
        self,
        output: Output,
        owner: str | None,
        role: TextMessageRole | None,
        name: str | None,
        message_id: str | None,
        metadata: Metadata | None,
    ) -> None:
        super().__init__(output)
        self.message_id = output.ids.mint("msg") if message_id is None else message_id
        self._opening = {"role": role, "name": name, "subagent": owner, "metadata": metadata}

    async def __aenter__(self) -> TextHandle:
        """Open the message."""
        opening: Any = self._opening
        await self._out.send_opener(EventWriter.start_text, self.message_id, **opening)
        return self

    async def write(self, delta: str) -> None:
        """More text; an empty string is nothing. Raises ``IllegalStep`` once the message is closed."""
        if _text(delta) != "":
            await self._out.send_delta(EventWriter.write_text, self.message_id, delta)

    async def _close(self, error: BaseException | None) -> None:
        if self._out.front._verifier.is_open(TEXT, self.message_id):
            await self._out.send(EventWriter.end_text, self.message_id)


class ReasoningHandle(_Opened, AbstractAsyncContextManager["ReasoningHandle"]):
    """A thought that is being written: one message in a span of its own. ``message_id`` is the message's id."""

    def __init__(self, output: Output, owner: str | None, message_id: str | None, metadata: Metadata | None) -> None:
        super().__init__(output)
        self._span_id = output.ids.mint("span")
        self.message_id = output.ids.mint("rsn") if message_id is None else message_id
        self._owner = owner
        self._metadata = metadata

    async def __aenter__(self) -> ReasoningHandle:
        """Open the span and the message."""
        await self._out.send_opener(EventWriter.start_reasoning, self._span_id, subagent=self._owner)
        await self._out.send(
            EventWriter.start_reasoning_message, self.message_id, subagent=self._owner, metadata=self._metadata
        )
        return self

    async def write(self, delta: str) -> None:
        """More of the thought; an empty string is nothing. Raises ``IllegalStep`` once it is closed."""
        if _text(delta) != "":
            await self._out.send_delta(EventWriter.write_reasoning, self.message_id, delta)

    async def encrypted(self, value: str, type: str | None = None) -> None:  # noqa: A002 - the protocol's word
        """An opaque artefact that the client returns with this thought (ENC-1)."""
        await self._out.send(
            EventWriter.encrypted_value,
            "message",
            self.message_id,
            _text(value),
            value_type=type,
            subagent=self._owner,
        )

    async def _close(self, error: BaseException | None) -> None:
        if self._out.front._verifier.is_open(REASONING_MESSAGE, self.message_id):
            await self._out.send(EventWriter.end_reasoning_message, self.message_id)
        if self._out.front._verifier.is_open(REASONING_SPAN, self._span_id):
            await self._out.send(EventWriter.end_reasoning, self._span_id)


class ToolCallHandle(_Opened, AbstractAsyncContextManager["ToolCallHandle"]):
    """A tool call. ``id`` and ``name`` are the call's; ``is_frontend`` whether the client is to answer it."""

    def __init__(
        self,
        output: Output,
        owner: str | None,
        name: str,
        call_id: str | None,
        parent_message_id: str | None,
        is_frontend: bool,
        metadata: Metadata | None,
    ) -> None:
        super().__init__(output)
        self.name = name
        self.id = output.ids.mint("call") if call_id is None else call_id
        self.is_frontend = is_frontend
        self._owner = owner
        self._opening = {"parent_message_id": parent_message_id, "subagent": owner, "metadata": metadata}

    async def __aenter__(self) -> ToolCallHandle:
        """Open the call."""
        opening: Any = self._opening
        await self._out.send_opener(EventWriter.start_tool_call, self.name, self.id, **opening)
        return self

    async def args(self, delta: str) -> None:
        """More of the argument text; an empty string is nothing. Raises ``IllegalStep`` once it is complete."""
        if _text(delta) != "":
            await self._out.send_delta(EventWriter.write_tool_args, self.id, delta)

    async def end(self) -> None:
        """The arguments are complete."""
        if self._out.front._verifier.is_open(TOOL_CALL, self.id):
            await self._out.send(EventWriter.end_tool_call, self.id)

    async def result(self, content: Any, *, message_id: str | None = None, metadata: Metadata | None = None) -> None:
        """Answer the call: with a string, with parts, or with any JSON value, which is sent as its text.

        Raises ``IllegalStep`` for a call that the client is to answer (FT-1), ``EncodeError`` for what is not JSON.
        """
        if self.is_frontend:
            raise IllegalStep(f"{self.name!r} is a tool of the front end, which answers it", rule="FT-1")
        answer = _result(content)
        await self.end()
        await self._out.send(
            EventWriter.tool_result,
            self.id,
            answer,
            message_id=self._out.ids.mint("tool") if message_id is None else message_id,
            subagent=self._owner,
            metadata=metadata,
        )

    async def encrypted(self, value: str, type: str | None = None) -> None:  # noqa: A002 - the protocol's word
        """An opaque artefact that the client returns with this call (ENC-1)."""
        await self._out.send(
            EventWriter.encrypted_value, "tool-call", self.id, _text(value), value_type=type, subagent=self._owner
        )

    async def _close(self, error: BaseException | None) -> None:
        await self.end()


class StepHandle(_Opened, AbstractAsyncContextManager["StepHandle"]):
    """A step. ``result`` may be set to a JSON value; with the status it is the end's ``metadata["aguila"]``.

    A name that is open already for the same owner gets a number (STEP-1): ``name`` is the name it has.
    """

    def __init__(
        self, output: Output, owner: str | None, name: str, parent: str | StepHandle | None, metadata: Metadata | None
    ) -> None:
        super().__init__(output)
        self.name = name
        self.result: Any = None
        self._owner = owner
        self._parent = parent
        self._metadata: Metadata = {} if metadata is None else metadata

    async def __aenter__(self) -> StepHandle:
        """Open the step."""
        is_open = self._out.front._verifier.is_open
        name, number = self.name, 1
        while is_open(STEP, self.name, self._owner):
            number += 1
            self.name = f"{name} ({number})"
        metadata = self._metadata
        if self._parent is not None:
            parent = self._parent.name if isinstance(self._parent, StepHandle) else self._parent
            metadata = {**metadata, "aguila": {"parent": parent}}
        await self._out.send_opener(
            EventWriter.start_step, self.name, subagent=self._owner, metadata=metadata if metadata else None
        )
        return self

    async def _close(self, error: BaseException | None) -> None:
        if not self._out.front._verifier.is_open(STEP, self.name, self._owner):
            return
        own: dict[str, Any] = {"status": _status(error)}
        if self.result is not None:
            own["result"] = own_json(self.result)
        await self._out.send_opener(
            EventWriter.finish_step, self.name, subagent=self._owner, metadata={**self._metadata, "aguila": own}
        )


class ActivityHandle:
    """An activity message: structured progress for the user interface."""

    def __init__(
        self, output: Output, owner: str | None, activity_type: str, content: dict[str, Any], message_id: str | None
    ) -> None:
        self._out = output
        self._owner = owner
        self.message_id = output.ids.mint("act") if message_id is None else message_id
        self.activity_type = activity_type
        self._content = _object(content)

    async def send(self, replace: bool | None = None) -> None:
        """The whole content, as a snapshot."""
        await self._out.send(
            EventWriter.activity_snapshot,
            self.activity_type,
            self._content,
            self.message_id,
            replace=replace,
            subagent=self._owner,
        )

    async def update(self, content: dict[str, Any]) -> None:
        """Change the content to this, by the shortest event that does; none if it is the same."""
        new = _object(content)
        patch = make_patch(self._content, new)
        if not patch:
            return
        self._content = new
        if patch[0]["path"] == "":
            await self.send()
        else:
            await self._send_patch(patch)

    async def patch(self, patch: Sequence[JsonPatchOperation]) -> None:
        """Change the content by a JSON Patch. Raises ``PatchError`` if it does not apply, and has sent nothing."""
        operations = own_json(list(patch))
        new = apply_patch(self._content, operations)
        self._content = _object(new)
        await self._send_patch(operations)

    async def _send_patch(self, patch: Sequence[Any]) -> None:
        await self._out.send(EventWriter.activity_delta, self.message_id, patch, subagent=self._owner)


class Writing:
    """What the agent itself and each of its subagents can say. All of it is attributed to ``_owner``."""

    def __init__(self, output: Output, questions: Questions, frontend_tools: frozenset[str], owner: str | None) -> None:
        self._out = output
        self._questions = questions
        self._frontend_tools = frontend_tools
        self._owner = owner

    # Text and thoughts

    def text(
        self,
        role: TextMessageRole | None = None,
        name: str | None = None,
        message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> TextHandle:
        """A text message, open while it is entered: ``async with run.text() as text: await text.write("...")``."""
        return TextHandle(self._out, self._owner, role, name, message_id, metadata)

    async def say(
        self,
        text: str,
        role: TextMessageRole | None = None,
        name: str | None = None,
        message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> str:
        """A whole text message; gives its id."""
        async with self.text(role, name, message_id, metadata) as message:
            await message.write(text)
        return message.message_id

    def reasoning(self, message_id: str | None = None, metadata: Metadata | None = None) -> ReasoningHandle:
        """A thought, open while it is entered."""
        return ReasoningHandle(self._out, self._owner, message_id, metadata)

    # Tools

    async def tool_call(
        self,
        name: str,
        args: dict[str, Any] | str | None = None,
        *,
        tool_call_id: str | None = None,
        parent_message_id: str | None = None,
        metadata: Metadata | None = None,
        stream: bool = False,
    ) -> ToolCallHandle:
        """Call a tool: arguments as an object, or as the exact text. Answer it with ``result`` of what this gives.

        A call of a tool of the input is the front end's to answer: leave it, and the run ends with the call pending.
        ``stream`` leaves the arguments open for ``args``; ``end`` or ``result`` completes them.
        """
        text = _arguments(args, "" if stream else "{}")
        call = self.stream_tool_call(
            name, tool_call_id=tool_call_id, parent_message_id=parent_message_id, metadata=metadata
        )
        await call.__aenter__()
        await call.args(text)
        if not stream:
            await call.end()
        return call

    def stream_tool_call(
        self,
        name: str,
        *,
        tool_call_id: str | None = None,
        parent_message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> ToolCallHandle:
        """A call whose arguments are written piece by piece while it is entered."""
        is_frontend = name in self._frontend_tools
        return ToolCallHandle(self._out, self._owner, name, tool_call_id, parent_message_id, is_frontend, metadata)

    # Structure

    def step(self, name: str, parent: str | StepHandle | None = None, metadata: Metadata | None = None) -> StepHandle:
        """A step, open while it is entered. ``parent`` is told in its ``metadata["aguila"]``."""
        return StepHandle(self._out, self._owner, name, parent, metadata)

    def subagent(
        self,
        name: str,
        description: str | None = None,
        *,
        subagent_run_id: str | None = None,
        tool_call: str | ToolCallHandle | None = None,
        parent_message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> SubagentHandle:
        """An invocation of a subagent, open while it is entered; what is said through it is the subagent's."""
        call_id = tool_call.id if isinstance(tool_call, ToolCallHandle) else tool_call
        opening = {
            "description": description,
            "parent_subagent_run_id": self._owner,
            "parent_tool_call_id": call_id,
            "parent_message_id": parent_message_id,
            "metadata": metadata,
        }
        run_id = self._out.ids.mint("sub") if subagent_run_id is None else subagent_run_id
        return SubagentHandle(self._out, self._questions, self._frontend_tools, run_id, name, opening)

    async def activity(
        self, activity_type: str, content: dict[str, Any], *, message_id: str | None = None, replace: bool | None = None
    ) -> ActivityHandle:
        """Show an activity; what this gives can change it. Content is passed on as it is."""
        activity = ActivityHandle(self._out, self._owner, activity_type, content, message_id)
        await activity.send(replace)
        return activity

    async def custom(self, name: str, value: Any, *, metadata: Metadata | None = None) -> None:
        """An event whose meaning the application defines. Raises ``EncodeError`` if the value is not JSON."""
        await self._out.send(EventWriter.custom, name, value, subagent=self._owner, metadata=metadata)

    async def raw(self, event: Any, source: str | None = None, *, metadata: Metadata | None = None) -> None:
        """An event of another system, beside the standard events that say the same (PASS-3)."""
        await self._out.send(EventWriter.raw, event, source=source, subagent=self._owner, metadata=metadata)

    # Questions

    async def ask(
        self,
        question: str,
        *,
        schema: dict[str, Any] | None = None,
        key: str | None = None,
        reason: str = "input_required",
        expires_at: str | None = None,
        metadata: Metadata | None = None,
    ) -> Any:
        """Ask the user; gives the answer's payload.

        The first time this ends the run. The run that brings the answer invokes the agent again from its
        beginning and returns here; what was said before is not said again. A question is recognised by its text, its
        schema, and its ``key`` or else its place among the questions asked.

        Raises ``InterruptCancelled`` if the user gave up.
        """
        asked = Question(
            question=question, schema=schema, key=key, reason=reason, expires_at=expires_at, metadata=metadata
        )
        return (await self._questions.ask([asked], self._owner))[0]

    async def ask_all(self, questions: Sequence[Question | str]) -> list[Any]:
        """Ask several questions at once; gives the payloads in order.

        Raises ``InterruptCancelled``, which has the other answers, if the user gave any of them up.
        """
        asked = [Question(question=each) if isinstance(each, str) else each for each in questions]
        return await self._questions.ask(asked, self._owner)

    async def approve(
        self,
        tool_name: str,
        args: dict[str, Any],
        *,
        message: str | None = None,
        key: str | None = None,
        expires_at: str | None = None,
        metadata: Metadata | None = None,
    ) -> Approval[ToolCallHandle]:
        """Show a tool call and ask whether it may be made; the user may edit the arguments.

        Giving up answering is a refusal. Other arguments are another question.
        """
        text = _arguments(args, "{}")
        question = Question(
            question=f"Allow the call of {tool_name}?" if message is None else message,
            schema=APPROVAL_SCHEMA,
            key=key,
            reason="tool_call",
            expires_at=expires_at,
            metadata=metadata,
        )
        identity = f"{question.question}\n{tool_name}\n{text}"
        asked = self._questions.interrupt(question, subagent=self._owner, identity=identity)
        call = await self.tool_call(tool_name, text, tool_call_id=f"call_{asked.id}")
        (answer,) = await self._questions.answers([replace(asked, tool_call_id=call.id)])
        return read_approval(answer, own_json(args), call)


class SubagentHandle(_Opened, Writing, AbstractAsyncContextManager["SubagentHandle"]):
    """An invocation of a subagent. ``id`` is its run id, ``result`` may be set to a JSON value."""

    def __init__(
        self,
        output: Output,
        questions: Questions,
        frontend_tools: frozenset[str],
        run_id: str,
        name: str,
        opening: dict[str, Any],
    ) -> None:
        Writing.__init__(self, output, questions, frontend_tools, run_id)
        self.id = run_id
        self.name = name
        self.result: Any = None
        self._opening = opening

    async def __aenter__(self) -> SubagentHandle:
        """Announce the invocation."""
        await self._out.send_opener(EventWriter.start_subagent, self.name, self.id, **self._opening)
        return self

    async def fail(self, message: str, code: str | None = None) -> None:
        """End the invocation as failed, with a message for people; the run goes on (SUB-6)."""
        await self._out.send_opener(EventWriter.fail_subagent, self.id, message, code)

    async def _close(self, error: BaseException | None) -> None:
        if not self._out.front._verifier.is_open(SUBAGENT, self.id):
            return
        status = _status(error)
        if status == "success":
            await self._out.send_opener(EventWriter.finish_subagent, self.id, own_json(self.result))
        elif status == "error":
            await self.fail("The subagent failed.", "subagent_error")
        elif status == "cancelled" and not self._questions.raised and not self._out.is_cancelled:
            await self.fail("The subagent was cancelled.", "cancelled")
        # Otherwise the run is about to end: its outcome decides how (suspended by a question, cancelled).


def _status(error: BaseException | None) -> StepStatus:
    if error is None:
        return "success"
    if interrupts_in(error):
        return "suspended"
    return "error" if isinstance(error, Exception) else "cancelled"


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise EncodeError(f"text is a string, not {type(value).__name__}")
    return value


def _object(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise EncodeError(f"an activity's content is an object, not {type(content).__name__}")  # ACT-8
    return own_json(content)


def _arguments(args: dict[str, Any] | str | None, absent: str) -> str:
    if args is None:
        return absent
    return args if isinstance(args, str) else encode(own_json(args)).decode()


def _result(content: Any) -> str | list[ContentPart]:
    if isinstance(content, str):
        return content
    if isinstance(content, _PARTS):
        return [content]
    if isinstance(content, _ARRAY):
        elements = list(cast("Sequence[Any]", content))
        if elements and all(isinstance(element, _PARTS) for element in elements):
            return elements
    return encode(own_json(content)).decode()


__all__ = [
    "ActivityHandle",
    "ReasoningHandle",
    "StepHandle",
    "SubagentHandle",
    "TextHandle",
    "ToolCallHandle",
    "Writing",
]
