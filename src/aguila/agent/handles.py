"""Layer: agent. What an agent holds while it says something: a message, a thought, a call, a step, an activity.

Above: ``writing`` makes them. Below: ``output``. A handle closes what it opened and cannot be
used in an illegal order; several may be in use at once, in one task or in many, and interleave. It has the attributes
named here and takes no others: one that is set and means nothing would be lost without a word.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, cast

from aguila.agent.interrupts import interrupts_in
from aguila.agent.output import OutputMapper
from aguila.agent.replay.branches import Branch, Branches, Place
from aguila.chat.from_chat.updates import Update
from aguila.chat.own_metadata import add_own_metadata
from aguila.codec.json.encoder import encode
from aguila.errors import EncodeError, IllegalStep
from aguila.protocol import (
    ContentPart,
    JsonPatchOperation,
    Metadata,
    TextMessageRole,
)
from aguila.protocol.parts import AudioPart, DocumentPart, ImagePart, TextPart, VideoPart
from aguila.stream.json_values import copy_json
from aguila.stream.patch import apply_patch, make_patch
from aguila.stream.rules import REASONING_MESSAGE, REASONING_SPAN, STEP, TEXT, TOOL_CALL
from aguila.stream.steps import OLD_STATUSES
from aguila.stream.writer import EventWriter

Ended = Literal["success", "error", "suspended", "cancelled"]
"""How something ended that an exception left, or none."""

_PARTS = (TextPart, ImagePart, AudioPart, VideoPart, DocumentPart)
_ARRAY: Any = (list, tuple)


class Opened(ABC):
    """Something that is open from entering until leaving."""

    __slots__ = ()  # a subagent is a RunAPI as well, and only one of them may have some
    _out: OutputMapper

    @abstractmethod
    async def _close(self, error: BaseException | None) -> None:
        """Close what was opened, if it still is."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        out = self._out
        # After the end of the run, or of the sink, there is nothing to close, and the error on its way is the one to
        # be seen.
        if not out.is_over and (out.failure is None or error is None):
            await self._close(error)


class TextHandle(Opened):
    """A text message that is being written. ``message_id`` is its id.

    ``closing`` may be set: metadata that is told at the end, and is the message's too (META-5).
    """

    __slots__ = ("_is_open", "_opening", "_out", "closing", "message_id")

    def __init__(
        self,
        output: OutputMapper,
        owner: str | None,
        role: TextMessageRole | None,
        name: str | None,
        message_id: str | None,
        metadata: Metadata | None,
    ) -> None:
        self._out = output
        self.message_id = output.ids.mint("msg") if message_id is None else message_id
        self._opening = {"role": role, "name": name, "subagent": owner, "metadata": metadata}
        self._is_open: bool | None = None
        self.closing: Metadata | None = None

    async def __aenter__(self) -> TextHandle:
        """Open the message."""
        opening: Any = self._opening
        await self._out.send_opener(EventWriter.start_text, self.message_id, **opening)
        self._is_open = True
        return self

    async def write(self, delta: str) -> None:
        """More text; an empty string is nothing. Raises ``IllegalStep`` if the message is not open."""
        if not self._is_open:
            raise _not_open("run.text()", "text", self._is_open)
        if _text(delta) != "":
            await self._out.send_delta(EventWriter.write_text, self.message_id, delta)

    async def _close(self, error: BaseException | None) -> None:
        self._is_open = False
        if self._out.front.has_open(TEXT, self.message_id):
            await self._out.send(EventWriter.end_text, self.message_id, metadata=copy_json(self.closing))


class ReasoningHandle(Opened):
    """A thought that is being written: one message in a span of its own. ``message_id`` is the message's id."""

    __slots__ = ("_is_open", "_metadata", "_out", "_owner", "_span_id", "message_id")

    def __init__(
        self, output: OutputMapper, owner: str | None, message_id: str | None, metadata: Metadata | None
    ) -> None:
        self._out = output
        self._span_id = output.ids.mint("span")
        self.message_id = output.ids.mint("rsn") if message_id is None else message_id
        self._owner = owner
        self._metadata = metadata
        self._is_open: bool | None = None

    async def __aenter__(self) -> ReasoningHandle:
        """Open the span and the message."""
        await self._out.send_opener(EventWriter.start_reasoning, self._span_id, subagent=self._owner)
        await self._out.send(
            EventWriter.start_reasoning_message, self.message_id, subagent=self._owner, metadata=self._metadata
        )
        self._is_open = True
        return self

    async def write(self, delta: str) -> None:
        """More of the thought; an empty string is nothing. Raises ``IllegalStep`` if it is not open."""
        if not self._is_open:
            raise _not_open("run.reasoning()", "thought", self._is_open)
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
        self._is_open = False
        if self._out.front.has_open(REASONING_MESSAGE, self.message_id):
            await self._out.send(EventWriter.end_reasoning_message, self.message_id)
        if self._out.front.has_open(REASONING_SPAN, self._span_id):
            await self._out.send(EventWriter.end_reasoning, self._span_id)


class ToolCallHandle(Opened):
    """A tool call. ``id`` and ``name`` are the call's; ``is_frontend`` whether the client is to answer it.

    ``edited`` are the arguments that it is made with, if a user edited them: the result says so, in its
    ``metadata["aguila"]["arguments"]``, as the call that was shown stays as it is.
    """

    __slots__ = ("_is_open", "_opening", "_out", "_owner", "edited", "id", "is_frontend", "name")

    def __init__(
        self,
        output: OutputMapper,
        owner: str | None,
        name: str,
        call_id: str | None,
        parent_message_id: str | None,
        is_frontend: bool,
        metadata: Metadata | None,
    ) -> None:
        self._out = output
        self.name = name
        self.id = output.ids.mint("call") if call_id is None else call_id
        self.is_frontend = is_frontend
        self.edited: dict[str, Any] | None = None
        self._is_open: bool | None = None
        self._owner = owner
        self._opening = {"parent_message_id": parent_message_id, "subagent": owner, "metadata": metadata}

    async def __aenter__(self) -> ToolCallHandle:
        """Open the call."""
        opening: Any = self._opening
        await self._out.send_opener(EventWriter.start_tool_call, self.name, self.id, **opening)
        self._is_open = True
        return self

    async def args(self, delta: str) -> None:
        """More of the argument text; an empty string is nothing. Raises ``IllegalStep`` if the call is not open."""
        if not self._is_open:
            raise _not_open("run.stream_tool_call(name)", "call", self._is_open)
        if _text(delta) != "":
            await self._out.send_delta(EventWriter.write_tool_args, self.id, delta)

    async def end(self) -> None:
        """The arguments are complete."""
        self._is_open = False
        if self._out.front.has_open(TOOL_CALL, self.id):
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
            metadata=add_own_metadata(metadata, arguments=self.edited),
        )

    async def encrypted(self, value: str, type: str | None = None) -> None:  # noqa: A002 - the protocol's word
        """An opaque artefact that the client returns with this call (ENC-1)."""
        await self._out.send(
            EventWriter.encrypted_value, "tool-call", self.id, _text(value), value_type=type, subagent=self._owner
        )

    async def _close(self, error: BaseException | None) -> None:
        await self.end()


class StepHandle(Opened):
    """A step. ``status`` and ``result``, a JSON value, may be set: both are in the end's ``metadata["aguila"]``.

    A name that is open already for the same owner gets a number (STEP-1): ``name`` is the name it has. ``parent`` is
    the name of the step it belongs to.
    """

    __slots__ = ("_metadata", "_out", "_owner", "_parent", "name", "result", "status")

    def __init__(
        self,
        output: OutputMapper,
        owner: str | None,
        name: str,
        parent: str | StepHandle | None,
        metadata: Metadata | None,
    ) -> None:
        self._out = output
        self.name = name
        self.result: Any = None
        self.status: str | None = None
        """A word for how it went, if it went well: what an exception makes of a step is said by itself."""
        self._owner = owner
        self._parent = parent
        self._metadata: Metadata = {} if metadata is None else metadata

    @property
    def parent(self) -> str | None:
        """The name of the step that this one belongs to; said when it was made."""
        return self._parent.name if isinstance(self._parent, StepHandle) else self._parent

    async def __aenter__(self) -> StepHandle:
        """Open the step."""
        name, number = self.name, 1
        while self._out.front.has_open(STEP, self.name, self._owner):
            number += 1
            self.name = f"{name} ({number})"
        metadata = self._metadata
        if self.parent is not None:
            metadata = {**metadata, "aguila": {"parentStepId": self.parent}}
        await self._out.send_opener(
            EventWriter.start_step, self.name, subagent=self._owner, metadata=metadata if metadata else None
        )
        return self

    async def _close(self, error: BaseException | None) -> None:
        if not self._out.front.has_open(STEP, self.name, self._owner):
            return
        status: str = status_of(error)
        if error is None and self.status is not None:
            status = _text(self.status)
        own: dict[str, Any] = {"status": OLD_STATUSES.get(status, status)}
        if self.result is not None:
            own["result"] = copy_json(self.result)
        await self._out.send_opener(
            EventWriter.finish_step, self.name, subagent=self._owner, metadata={**self._metadata, "aguila": own}
        )


class BranchScope:
    """A named branch of the agent, active while it is entered: ``async with run.branch("name"):``."""

    __slots__ = ("_branches", "_entered", "_name")

    def __init__(self, branches: Branches, name: str) -> None:
        if not isinstance(name, str) or name == "":  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"the name of a branch is text that is not empty, not {name!r}")
        self._branches = branches
        self._name = name
        self._entered: tuple[Branch, Place] | None = None

    def begin(self) -> None:
        """Begin the branch in the current context. Raises ``ValueError`` while one of that name is active here."""
        self._entered = self._branches.enter(self._name)

    def end(self) -> None:
        """End the branch."""
        if self._entered is not None:
            self._branches.leave(*self._entered)
            self._entered = None

    async def __aenter__(self) -> None:
        """Begin the branch."""
        self.begin()

    async def __aexit__(self, *error: object) -> None:
        """End the branch."""
        self.end()


class ChatHandle:
    """One who speaks in chat updates, which go by ``run.hooks``; what others say meanwhile ends nothing of it."""

    __slots__ = ("_chat", "_out")

    def __init__(self, output: OutputMapper) -> None:
        self._out = output
        self._chat = output.new_chat()
        self._chat.keeps_names = True

    @property
    def has_asked(self) -> bool:
        """Whether a hook made a question of something, with which the run will end."""
        return len(self._chat.interrupts) > 0

    async def tell(self, update: Update) -> None:
        """Send what an update becomes. Ids in it are used as they are: they must mean nothing else in the thread.

        Raises ``EncodeError`` for what cannot be expressed, ``IllegalStep`` after the end of the run was told.
        """
        await self._out.tell(self._chat, update)

    async def close(self, metadata: Metadata | None = None) -> None:
        """End the text or the thought that is open; ``metadata`` is told with the end of a text."""
        await self._out.close_chat(self._chat, copy_json(metadata))


class ActivityHandle:
    """An activity message: structured progress for the user interface."""

    __slots__ = ("_content", "_out", "_owner", "activity_type", "message_id")

    def __init__(
        self,
        output: OutputMapper,
        owner: str | None,
        activity_type: str,
        content: dict[str, Any],
        message_id: str | None,
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
        operations = copy_json(list(patch))
        new = apply_patch(self._content, operations)
        self._content = _object(new)
        await self._send_patch(operations)

    async def _send_patch(self, patch: Sequence[Any]) -> None:
        await self._out.send(EventWriter.activity_delta, self.message_id, patch, subagent=self._owner)


def status_of(error: BaseException | None) -> Ended:
    """How something went that an exception left, or none."""
    if error is None:
        return "success"
    if interrupts_in(error):
        return "suspended"
    return "error" if isinstance(error, Exception) else "cancelled"


def _not_open(maker: str, name: str, is_open: bool | None) -> IllegalStep:
    """Make the error for a handle that is used before it is entered (None) or after it is closed (False)."""
    if is_open is None:
        message = f"{maker} is not open: enter it with `async with {maker} as {name}:` (`with` in a thread)"
    else:
        message = f"the {name} is closed; write to it inside its `async with {maker} as {name}:` block"
    return IllegalStep(message, rule="STR-2")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise EncodeError(f"text is a string, not {type(value).__name__}")
    return value


def _object(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise EncodeError(f"an activity's content is an object, not {type(content).__name__}")  # ACT-8
    return copy_json(content)


def arguments_of(args: dict[str, Any] | str | None, absent: str) -> str:
    """Arguments as their text; text stays exactly as it is. Raises ``EncodeError`` if they are not JSON."""
    if args is None:
        return absent
    return args if isinstance(args, str) else encode(copy_json(args)).decode()


def _result(content: Any) -> str | list[ContentPart]:
    if isinstance(content, str):
        return content
    if isinstance(content, _PARTS):
        return [content]
    if isinstance(content, _ARRAY):
        elements = list(cast("Sequence[Any]", content))
        if elements and all(isinstance(element, _PARTS) for element in elements):
            return elements
    return encode(copy_json(content)).decode()
