"""Handles for agents in threads: the methods of ``agent.handles``, without ``await``.

The async handle does the work on the event loop; ``ThreadPortal`` carries each call there. Signatures and docstrings
are those of the async methods.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from aguila.agent.blocking.thread_portal import ThreadPortal
from aguila.agent.handles import (
    ActivityHandle,
    ChatHandle,
    NamedBranch,
    ReasoningHandle,
    StepHandle,
    TextHandle,
    ToolCallHandle,
)
from aguila.agent.run_api import SubagentHandle
from aguila.protocol import Metadata

P = ParamSpec("P")
T = TypeVar("T")
B = TypeVar("B")
H = TypeVar("H")
Entered = TypeVar("Entered", TextHandle, ReasoningHandle, ToolCallHandle, StepHandle, SubagentHandle, NamedBranch)


class PortalHandle(Generic[H]):
    """A blocking handle. ``wrapped`` is the async one, which is used through ``portal``."""

    __slots__ = ("portal", "wrapped")

    def __init__(self, wrapped: H, portal: ThreadPortal) -> None:
        self.wrapped = wrapped
        self.portal = portal


class Attribute(Generic[T]):
    """An attribute of the wrapped handle."""

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    def __get__(self, handle: PortalHandle[Any], owner: type[Any]) -> T:
        return getattr(handle.wrapped, self._name)

    def __set__(self, handle: PortalHandle[Any], value: T) -> None:
        setattr(handle.wrapped, self._name, value)


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Make the blocking form of an async method."""

    @wraps(method)
    def call(self: PortalHandle[Any], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.portal.call(partial(method, self.wrapped, *args, **kwargs))

    return call


def on_loop(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Make the blocking form of a plain method that must be called on the event loop."""

    @wraps(method)
    def call(self: PortalHandle[Any], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.portal.call_function(method, self.wrapped, *args, **kwargs)

    return call


def wrap_result(
    method: Callable[Concatenate[Any, P], T], wrap: Callable[[T, ThreadPortal], B]
) -> Callable[Concatenate[Any, P], B]:
    """Wrap the handle that a blocking method returns: ``wrap_result(blocking(RunAPI.activity), BlockingActivity)``."""

    @wraps(method)
    def call(self: PortalHandle[Any], *args: P.args, **kwargs: P.kwargs) -> B:
        return wrap(method(self, *args, **kwargs), self.portal)

    return call


class BlockingItem(PortalHandle[Entered]):
    """A handle that is a context manager."""

    __slots__ = ()

    def __enter__(self) -> Self:
        self.portal.call(self.wrapped.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.portal.is_closed:  # otherwise the end of the run closes the item
            self.portal.call(partial(self.wrapped.__aexit__, kind, error, trace))


class BlockingBranch(BlockingItem[NamedBranch]):
    """See ``NamedBranch``."""

    __slots__ = ()


class BlockingText(BlockingItem[TextHandle]):
    """See ``TextHandle``."""

    __slots__ = ()
    message_id = Attribute[str]()
    closing = Attribute[Metadata | None]()
    write = blocking(TextHandle.write)


class BlockingReasoning(BlockingItem[ReasoningHandle]):
    """See ``ReasoningHandle``."""

    __slots__ = ()
    message_id = Attribute[str]()
    write = blocking(ReasoningHandle.write)
    encrypted = blocking(ReasoningHandle.encrypted)


class BlockingToolCall(BlockingItem[ToolCallHandle]):
    """See ``ToolCallHandle``."""

    __slots__ = ()
    id = Attribute[str]()
    name = Attribute[str]()
    is_frontend = Attribute[bool]()
    args = blocking(ToolCallHandle.args)
    end = blocking(ToolCallHandle.end)
    result = blocking(ToolCallHandle.result)
    encrypted = blocking(ToolCallHandle.encrypted)


class BlockingStep(BlockingItem[StepHandle]):
    """See ``StepHandle``."""

    __slots__ = ()
    name = Attribute[str]()
    parent = Attribute[str | None]()
    status = Attribute[str | None]()
    result = Attribute[Any]()


class BlockingChat(PortalHandle[ChatHandle]):
    """See ``ChatHandle``."""

    __slots__ = ()
    has_asked = Attribute[bool]()
    send = blocking(ChatHandle.send)
    close = blocking(ChatHandle.close)


class BlockingActivity(PortalHandle[ActivityHandle]):
    """See ``ActivityHandle``."""

    __slots__ = ()
    message_id = Attribute[str]()
    activity_type = Attribute[str]()
    update = blocking(ActivityHandle.update)
    patch = blocking(ActivityHandle.patch)
