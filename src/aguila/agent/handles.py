"""Handles of the items that an agent has open: a text, a reasoning message, a tool call, a step, an activity, a branch.

A handle closes its item and refuses an illegal order of calls. Several may be open at once, in one task or many.
Handles have slots, so that assigning an unknown attribute fails instead of being ignored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, cast

from aguila.agent.interrupts import interrupts_in
from aguila.agent.output import Output
from aguila.agent.replay.branches import Branch, Branches, Place
from aguila.chat.from_chat.updates import Update
from aguila.chat.own_metadata import add_own_metadata
from aguila.codec.json.encoder import encode
from aguila.codec.json.text import MAX_SIZE
from aguila.errors import EncodeError, IllegalStep
from aguila.offload import offload
from aguila.protocol import (
    ContentPart,
    JsonPatchOperation,
    Metadata,
    TextMessageRole,
)
from aguila.protocol.parts import AudioPart, DocumentPart, ImagePart, TextPart, VideoPart
from aguila.stream.json_values import copy_json
from aguila.stream.patch import PatchLimit, make_patch
from aguila.stream.steps import OLD_STATUSES
from aguila.stream.verification.rules import REASONING_MESSAGE, REASONING_SPAN, STEP, TEXT, TOOL_CALL

Ended = Literal["success", "error", "suspended", "cancelled"]
"""How a step or subagent ended."""

_PARTS = (TextPart, ImagePart, AudioPart, VideoPart, DocumentPart)
_ARRAY: Any = (list, tuple)


class Opened(ABC):
    """A context manager that closes its item on exit."""

    __slots__ = ()  # SubagentHandle has two bases, and only one of them may have slots
    _output: Output

    @abstractmethod
    async def _close(self, error: BaseException | None) -> None:
        """Close the item if it is still open."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        out = self._output
        # After the run ended or the sink failed there is nothing to close. The error that is being raised must stay
        # the visible one.
        if not out.is_over and (out.failure is None or error is None):
            await self._close(error)


class TextHandle(Opened):
    """A text message that is being written. ``message_id`` is its id.

    Set ``closing`` to metadata for TEXT_MESSAGE_END; it is merged into that of the message (META-5).
    """

    __slots__ = ("_is_open", "_opening", "_output", "closing", "message_id")

    def __init__(
        self,
        output: Output,
        owner: str | None,
        role: TextMessageRole | None,
        name: str | None,
        message_id: str | None,
        metadata: Metadata | None,
    ) -> None:
        self._output = output
        self.message_id = output.branches.new_id("msg") if message_id is None else message_id
        self._opening = {"role": role, "name": name, "subagent": owner, "metadata": metadata}
        self._is_open: bool | None = None
        self.closing: Metadata | None = None

    async def __aenter__(self) -> TextHandle:
        opening: Any = self._opening
        await self._output.send_opener(self._output.agent_writer.start_text, self.message_id, **opening)
        self._is_open = True
        return self

    async def write(self, delta: str) -> None:
        """Append text. An empty string sends nothing. Raises ``IllegalStep`` if the message is not open."""
        if not self._is_open:
            raise not_open("run.text()", "text", self._is_open)
        if _text(delta) != "":
            await self._output.send(self._output.agent_writer.write_text, self.message_id, delta)

    async def _close(self, error: BaseException | None) -> None:
        self._is_open = False
        if self._output.agent_writer.has_open(TEXT, self.message_id):
            await self._output.send(
                self._output.agent_writer.end_text, self.message_id, metadata=copy_json(self.closing)
            )


class ReasoningHandle(Opened):
    """A reasoning message in a span of its own. ``message_id`` is the id of the message."""

    __slots__ = ("_is_open", "_metadata", "_output", "_owner", "_span_id", "message_id")

    def __init__(self, output: Output, owner: str | None, message_id: str | None, metadata: Metadata | None) -> None:
        self._output = output
        self._span_id = output.branches.new_id("span")
        self.message_id = output.branches.new_id("rsn") if message_id is None else message_id
        self._owner = owner
        self._metadata = metadata
        self._is_open: bool | None = None

    async def __aenter__(self) -> ReasoningHandle:
        await self._output.send_opener(self._output.agent_writer.start_reasoning, self._span_id, subagent=self._owner)
        await self._output.send(
            self._output.agent_writer.start_reasoning_message,
            self.message_id,
            subagent=self._owner,
            metadata=self._metadata,
        )
        self._is_open = True
        return self

    async def write(self, delta: str) -> None:
        """Append reasoning text. An empty string sends nothing. Raises ``IllegalStep`` if the message is not open."""
        if not self._is_open:
            raise not_open("run.reasoning()", "reasoning", self._is_open)
        if _text(delta) != "":
            await self._output.send(self._output.agent_writer.write_reasoning, self.message_id, delta)

    async def encrypted(self, value: str, type: str | None = None) -> None:  # noqa: A002 - the protocol's word
        """Attach an opaque value that the client returns with this message (ENC-1)."""
        await self._output.send(
            self._output.agent_writer.encrypted_value,
            "message",
            self.message_id,
            _text(value),
            value_type=type,
            subagent=self._owner,
        )

    async def _close(self, error: BaseException | None) -> None:
        self._is_open = False
        if self._output.agent_writer.has_open(REASONING_MESSAGE, self.message_id):
            await self._output.send(self._output.agent_writer.end_reasoning_message, self.message_id)
        if self._output.agent_writer.has_open(REASONING_SPAN, self._span_id):
            await self._output.send(self._output.agent_writer.end_reasoning, self._span_id)


class ToolCallHandle(Opened):
    """A tool call. If ``is_frontend``, the client executes it.

    ``edited`` are the arguments that a user changed. The call that was shown stays as it is, so the result carries them
    in ``metadata["aguila"]["arguments"]``.
    """

    __slots__ = ("_is_open", "_opening", "_output", "_owner", "edited", "id", "is_frontend", "name")

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
        self._output = output
        self.name = name
        self.id = output.branches.new_id("call") if call_id is None else call_id
        self.is_frontend = is_frontend
        self.edited: dict[str, Any] | None = None
        self._is_open: bool | None = None
        self._owner = owner
        self._opening = {"parent_message_id": parent_message_id, "subagent": owner, "metadata": metadata}

    async def __aenter__(self) -> ToolCallHandle:
        opening: Any = self._opening
        await self._output.send_opener(self._output.agent_writer.start_tool_call, self.name, self.id, **opening)
        self._is_open = True
        return self

    async def args(self, delta: str) -> None:
        """Append argument text. An empty string sends nothing. Raises ``IllegalStep`` if the call is not open."""
        if not self._is_open:
            raise not_open("run.stream_tool_call(name)", "call", self._is_open)
        if _text(delta) != "":
            await self._output.send(self._output.agent_writer.write_tool_args, self.id, delta)

    async def end(self) -> None:
        """End the arguments."""
        self._is_open = False
        if self._output.agent_writer.has_open(TOOL_CALL, self.id):
            await self._output.send(self._output.agent_writer.end_tool_call, self.id)

    async def result(self, content: Any, *, message_id: str | None = None, metadata: Metadata | None = None) -> None:
        """Send the result: a string, content parts, or any JSON value, which is sent as JSON text.

        Raises ``IllegalStep`` for a front-end call (FT-1), ``EncodeError`` for a value that is not JSON.
        """
        if self.is_frontend:
            raise IllegalStep(
                f"{self.name!r} is a front-end tool: the client sends its result, not the agent", rule="FT-1"
            )
        answer = _result(content)
        await self.end()
        await self._output.send(
            self._output.agent_writer.tool_result,
            self.id,
            answer,
            message_id=self._output.branches.new_id("tool") if message_id is None else message_id,
            subagent=self._owner,
            metadata=add_own_metadata(metadata, arguments=self.edited),
        )

    async def encrypted(self, value: str, type: str | None = None) -> None:  # noqa: A002 - the protocol's word
        """Attach an opaque value that the client returns with this call (ENC-1)."""
        await self._output.send(
            self._output.agent_writer.encrypted_value,
            "tool-call",
            self.id,
            _text(value),
            value_type=type,
            subagent=self._owner,
        )

    async def _close(self, error: BaseException | None) -> None:
        await self.end()


class StepHandle(Opened):
    """A step. Set ``status`` or ``result`` (JSON): STEP_FINISHED carries both in ``metadata["aguila"]``.

    If the owner has a step of that name open, ``name`` gets a number when the step is entered (STEP-1).
    """

    __slots__ = ("_metadata", "_output", "_owner", "_parent", "name", "result", "status")

    def __init__(
        self,
        output: Output,
        owner: str | None,
        name: str,
        parent: str | StepHandle | None,
        metadata: Metadata | None,
    ) -> None:
        self._output = output
        self.name = name
        self.result: Any = None
        self.status: str | None = None
        """A custom status for a step that succeeds. An exception sets the status itself."""
        self._owner = owner
        self._parent = parent
        self._metadata: Metadata = {} if metadata is None else metadata

    @property
    def parent(self) -> str | None:
        """The name of the enclosing step."""
        return self._parent.name if isinstance(self._parent, StepHandle) else self._parent

    async def __aenter__(self) -> StepHandle:
        name, number = self.name, 1
        while self._output.agent_writer.has_open(STEP, self.name, self._owner):
            number += 1
            self.name = f"{name} ({number})"
        metadata = self._metadata
        if self.parent is not None:
            metadata = {**metadata, "aguila": {"parentStepId": self.parent}}
        await self._output.send_opener(
            self._output.agent_writer.start_step,
            self.name,
            subagent=self._owner,
            metadata=metadata if metadata else None,
        )
        return self

    async def _close(self, error: BaseException | None) -> None:
        if not self._output.agent_writer.has_open(STEP, self.name, self._owner):
            return
        status: str = status_of(error)
        if error is None and self.status is not None:
            status = _text(self.status)
        own: dict[str, Any] = {"status": OLD_STATUSES.get(status, status)}
        if self.result is not None:
            own["result"] = copy_json(self.result)
        await self._output.send_opener(
            self._output.agent_writer.finish_step,
            self.name,
            subagent=self._owner,
            metadata={**self._metadata, "aguila": own},
        )


class NamedBranch:
    """A named branch of the agent, active while it is entered: ``async with run.branch("name"):``."""

    __slots__ = ("_branches", "_entered", "_name")

    def __init__(self, branches: Branches, name: str) -> None:
        if not isinstance(name, str) or name == "":  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"run.branch() takes a name, which is a non-empty string; it got {name!r}")
        self._branches = branches
        self._name = name
        self._entered: tuple[Branch, Place] | None = None

    async def __aenter__(self) -> None:
        """Begin the branch in the current context. Raises ``ValueError`` while one of that name is active here."""
        self._entered = self._branches.enter(self._name)

    async def __aexit__(self, *error: object) -> None:
        if self._entered is not None:
            self._branches.leave(*self._entered)
            self._entered = None


class ChatHandle:
    """A stream of chat updates beside other output, which does not end its messages. ``run.hooks`` are applied."""

    __slots__ = ("_chat", "_output")

    def __init__(self, output: Output) -> None:
        self._output = output
        self._chat = output.yielded.new_chat()
        self._chat.keeps_names = True

    @property
    def has_asked(self) -> bool:
        """Whether a hook turned a content into a question, with which the run will end."""
        return len(self._chat.interrupts) > 0

    async def send(self, update: Update) -> None:
        """Send the events of an update. Its ids are used as they are, so they must be new in the thread.

        Raises ``EncodeError`` for a content that has no events, ``IllegalStep`` after the agent's own terminal event.
        """
        yielded = self._output.yielded
        if yielded.is_large(update):
            update = await offload(yielded.prepare, update)
        await self._output.send_opener(yielded.events_of_update, self._chat, update)

    async def close(self, metadata: Metadata | None = None) -> None:
        """End the open text or reasoning message. The end of a text carries ``metadata``."""
        await self._output.send(self._chat.close, copy_json(metadata))


class ActivityHandle:
    """An activity message: structured progress for the user interface."""

    __slots__ = ("_content", "_output", "_owner", "activity_type", "message_id")

    def __init__(
        self,
        output: Output,
        owner: str | None,
        activity_type: str,
        content: dict[str, Any],
        message_id: str | None,
    ) -> None:
        self._output = output
        self._owner = owner
        self.message_id = output.branches.new_id("act") if message_id is None else message_id
        self.activity_type = activity_type
        self._content = _object(content)

    async def send(self, replace: bool | None = None) -> None:
        """Send the whole content as a snapshot."""
        await self._output.send(
            self._output.agent_writer.activity_snapshot,
            self.activity_type,
            self._content,
            self.message_id,
            replace=replace,
            subagent=self._owner,
        )

    async def update(self, content: dict[str, Any]) -> None:
        """Replace the content. Sends the shorter of a patch and a snapshot, or nothing if it is the same."""
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
        """Apply a JSON Patch to the content. If it does not apply, raises ``PatchError`` and sends nothing."""
        operations = copy_json(list(patch))
        new = PatchLimit(MAX_SIZE).apply_patch(self._content, operations)
        self._content = _object(new)
        await self._send_patch(operations)

    async def _send_patch(self, patch: Sequence[Any]) -> None:
        await self._output.send(self._output.agent_writer.activity_delta, self.message_id, patch, subagent=self._owner)


def status_of(error: BaseException | None) -> Ended:
    """Return the status of an item that ended with this exception, or without one."""
    if error is None:
        return "success"
    if interrupts_in(error):
        return "suspended"
    return "error" if isinstance(error, Exception) else "cancelled"


def not_open(maker: str, name: str, is_open: bool | None) -> IllegalStep:
    """Make the error for a handle that is used before it is entered (None) or after it is closed (False)."""
    if is_open is None:
        message = f"{maker} is not open: enter it with `async with {maker} as {name}:` (`with` in a thread)"
    else:
        message = f"the {name} is closed; write to it inside its `async with {maker} as {name}:` block"
    return IllegalStep(message, rule="STR-2")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise EncodeError(f"expected a string, got {type(value).__name__}")
    return value


def _object(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise EncodeError(f"the content of an activity must be a dict, not {type(content).__name__}")  # ACT-8
    return copy_json(content)


def encode_arguments(args: dict[str, Any] | str | None, absent: str) -> str:
    """Return arguments as JSON text. A string is returned unchanged. Raises ``EncodeError`` if they are not JSON."""
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
