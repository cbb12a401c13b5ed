"""Layer: agent. The handles of an agent that runs in a thread: those of ``handles``, with methods that wait.

Above: ``blocking`` gives them out. Below: ``handles`` does the work, on the event loop; ``portal`` carries each call
there. What a method means and raises is said there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from aguila.agent.blocking.thread_portal import ThreadPortal
from aguila.agent.handles import (
    ActivityHandle,
    BranchScope,
    ChatHandle,
    ReasoningHandle,
    StepHandle,
    TextHandle,
    ToolCallHandle,
)
from aguila.agent.run_api import SubagentHandle
from aguila.chat.from_chat.updates import Update
from aguila.protocol import JsonPatchOperation, Metadata

H = TypeVar("H")
Entered = TypeVar("Entered", TextHandle, ReasoningHandle, ToolCallHandle, StepHandle, SubagentHandle)
Resulting = TypeVar("Resulting", StepHandle, SubagentHandle)


class PortalHandle(Generic[H]):
    """A handle whose methods wait."""

    __slots__ = ("_handle", "_portal")

    def __init__(self, handle: H, portal: ThreadPortal) -> None:
        self._handle = handle
        self._portal = portal


class Blocking(PortalHandle[Entered]):
    """A handle whose context manager and methods wait."""

    __slots__ = ()

    def __enter__(self) -> Self:
        self._portal.call(self._handle.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._portal.is_closed:  # otherwise the end of the run closes what is open
            self._portal.call(partial(self._handle.__aexit__, kind, error, trace))


class BlockingBranch(PortalHandle[BranchScope]):
    """See ``BranchScope``."""

    __slots__ = ()

    def __enter__(self) -> None:
        self._portal.call(self._handle.__aenter__)

    def __exit__(self, *error: object) -> None:
        if not self._portal.is_closed:  # otherwise the run is over
            self._portal.call(partial(self._handle.__aexit__, *error))


class WithResult(Blocking[Resulting]):
    """A handle of something that something comes of."""

    __slots__ = ()

    @property
    def result(self) -> Any:
        """What came out of it."""
        return self._handle.result

    @result.setter
    def result(self, result: Any) -> None:
        self._handle.result = result


class BlockingText(Blocking[TextHandle]):
    """See ``TextHandle``."""

    __slots__ = ()

    @property
    def message_id(self) -> str:
        """The message's id."""
        return self._handle.message_id

    @property
    def closing(self) -> Metadata | None:
        """Metadata that is told at the end."""
        return self._handle.closing

    @closing.setter
    def closing(self, closing: Metadata | None) -> None:
        self._handle.closing = closing

    def write(self, delta: str) -> None:
        """More text."""
        self._portal.call(partial(self._handle.write, delta))


class BlockingReasoning(Blocking[ReasoningHandle]):
    """See ``ReasoningHandle``."""

    __slots__ = ()

    @property
    def message_id(self) -> str:
        """The message's id."""
        return self._handle.message_id

    def write(self, delta: str) -> None:
        """More of the thought."""
        self._portal.call(partial(self._handle.write, delta))

    def encrypted(self, value: str, type: str | None = None) -> None:  # noqa: A002 - the protocol's word
        """An opaque artefact that the client returns with this thought."""
        self._portal.call(partial(self._handle.encrypted, value, type))


class BlockingToolCall(Blocking[ToolCallHandle]):
    """See ``ToolCallHandle``."""

    __slots__ = ()

    @property
    def id(self) -> str:
        """The call's id."""
        return self._handle.id

    @property
    def name(self) -> str:
        """The tool's name."""
        return self._handle.name

    @property
    def is_frontend(self) -> bool:
        """Whether the client is to answer it."""
        return self._handle.is_frontend

    def args(self, delta: str) -> None:
        """More of the argument text."""
        self._portal.call(partial(self._handle.args, delta))

    def end(self) -> None:
        """The arguments are complete."""
        self._portal.call(self._handle.end)

    def result(self, content: Any, *, message_id: str | None = None, metadata: Metadata | None = None) -> None:
        """Answer the call."""
        self._portal.call(partial(self._handle.result, content, message_id=message_id, metadata=metadata))

    def encrypted(self, value: str, type: str | None = None) -> None:  # noqa: A002 - the protocol's word
        """An opaque artefact that the client returns with this call."""
        self._portal.call(partial(self._handle.encrypted, value, type))


class BlockingStep(WithResult[StepHandle]):
    """See ``StepHandle``."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name it has."""
        return self._handle.name

    @property
    def status(self) -> str | None:
        """A word for how it went."""
        return self._handle.status

    @status.setter
    def status(self, status: str | None) -> None:
        self._handle.status = status

    @property
    def parent(self) -> str | None:
        """The name of the step that this one belongs to."""
        return self._handle.parent


class BlockingChat(PortalHandle[ChatHandle]):
    """See ``ChatHandle``."""

    __slots__ = ()

    @property
    def has_asked(self) -> bool:
        """Whether a hook made a question of something, with which the run will end."""
        return self._handle.has_asked

    def tell(self, update: Update) -> None:
        """Send what an update becomes."""
        self._portal.call(partial(self._handle.tell, update))

    def close(self, metadata: Metadata | None = None) -> None:
        """End the text or the thought that is open."""
        self._portal.call(partial(self._handle.close, metadata))


class BlockingActivity(PortalHandle[ActivityHandle]):
    """See ``ActivityHandle``."""

    __slots__ = ()

    @property
    def message_id(self) -> str:
        """The activity's id."""
        return self._handle.message_id

    def update(self, content: dict[str, Any]) -> None:
        """Change the content to this."""
        self._portal.call(partial(self._handle.update, content))

    def patch(self, patch: Sequence[JsonPatchOperation]) -> None:
        """Change the content by a JSON Patch."""
        self._portal.call(partial(self._handle.patch, patch))
