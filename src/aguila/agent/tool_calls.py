"""Call function tools in an agent, and turn every outcome into a result that a model can read."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from aguila.agent.interrupts import interrupts_in
from aguila.chat.tools import RUN, FunctionTool, ToolError, content_of
from aguila.chat.types import FunctionResultContent
from aguila.codec.json.text import parse_json
from aguila.codec.logs import log_fields
from aguila.codec.notices import log_notice
from aguila.errors import EncodeError
from aguila.offload import is_large, offload
from aguila.protocol import ContentPart

if TYPE_CHECKING:
    from aguila.agent.handles import ToolCallHandle
    from aguila.agent.run import Run
    from aguila.agent.run_api import RunAPI

_log = logging.getLogger("aguila")

FAILED = "The tool failed."
"""The result of a function that raised. The exception is only logged: a stream must not show internals."""


class ToolResult(msgspec.Struct, frozen=True):
    """The result of a tool call. ``content`` is what was sent. ``error`` is None if the call succeeded.

    ``value`` is what the function returned, as ``run.once`` returns it: text and parts unchanged, anything else as JSON
    (a dataclass or a model as a dict). It is None if the call failed.
    """

    content: str | list[ContentPart] = ""
    error: str | None = None
    value: Any = None

    @classmethod
    def of(cls, value: Any) -> ToolResult:
        """Make a result from a returned value: text, parts and contents unchanged, anything else as JSON."""
        try:
            return cls(content_of(value), value=value)
        except EncodeError as error:
            _log.warning("the result of a tool has no JSON form", exc_info=error, extra=log_fields())
            return cls.failed("The tool gave a result that cannot be sent.")

    @classmethod
    def failed(cls, error: str) -> ToolResult:
        """Make the result of a call that failed. The content has the error too: most models are shown only that."""
        return cls(error, error)

    def as_record(self) -> dict[str, Any]:
        """Return the result as JSON, to record it. The value is in the content; ``is_json`` says how to read it."""
        is_json = isinstance(self.content, str) and self.error is None and not isinstance(self.value, str)
        return {"content": msgspec.to_builtins(self.content), "error": self.error, "is_json": is_json}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> ToolResult:
        """Read a recorded result."""
        result = msgspec.convert(record, cls)
        if result.error is not None:
            return result
        value: Any = result.content
        if isinstance(value, str) and record.get("is_json", False):
            value = None if value == "" else parse_json(value, strict=False, warn=log_notice)
        return msgspec.structs.replace(result, value=value)

    def as_content(self, call_id: str) -> FunctionResultContent:
        """Return the result as a chat content."""
        return FunctionResultContent(call_id, self.content, self.error)


def describe_refusal(reason: str | None) -> str:
    """Return the content of the result of a call that the user did not approve."""
    return "The user did not allow this call." + ("" if reason is None else f" Reason: {reason}")


async def begin_call(
    api: RunAPI, tool: FunctionTool[..., Any], arguments: dict[str, Any]
) -> tuple[ToolCallHandle, dict[str, Any], ToolResult | None]:
    """Send a call and ask for approval if the tool needs it.

    Return the call, the arguments as the user left them, and the result if the function must not be called.
    """
    result: ToolResult | None = None
    try:
        tool.check(arguments)
        needs_approval = tool.needs_approval(arguments)
    except ToolError as error:
        result, needs_approval = ToolResult.failed(str(error)), False
    if not needs_approval:
        call = await api.tool_call(tool, arguments)
        call.is_frontend = False
        return call, arguments, result
    approval = await api.approve(tool, arguments)
    if not approval.approved:
        result = ToolResult.failed(describe_refusal(approval.reason))
    return approval.call, approval.arguments, result


async def call_function(tool: FunctionTool[..., Any], arguments: dict[str, Any], run: Run) -> ToolResult:
    """Call the function of a tool. A plain function is called in a thread.

    Arguments that do not fit and exceptions become an error in the result. Questions of the function are raised.
    """
    task = asyncio.current_task()
    try:
        bound = tool.check(arguments)
        if tool.takes_run:
            bound[RUN] = run
        function: Callable[..., Any] = tool.function
        value = function(**bound) if tool.is_async else await _call_in_thread(function, bound)
        if inspect.isawaitable(value):
            value = await value
        return await offload(ToolResult.of, value) if is_large(value) else ToolResult.of(value)
    except ToolError as error:
        return ToolResult.failed(str(error))
    except BaseException as error:
        if not _is_failure_of_function(error, task):
            raise
        # SystemExit, with which command line parsers refuse their arguments, would end the event loop.
        return failed_call(tool, error)


def unknown_outcome(tool: FunctionTool[..., Any]) -> ToolResult:
    """Return the result of a call that an earlier run began and did not end. It is not called again."""
    return ToolResult.failed(
        f"it is unknown whether {tool.declaration.name!r} was executed: the server stopped in the middle;"
        " check before calling it again"
    )


def failed_call(tool: FunctionTool[..., Any], error: BaseException) -> ToolResult:
    """Log the exception of a function, and return the result for it."""
    if isinstance(error, ToolError):
        return ToolResult.failed(str(error))
    _log.warning("the tool %r failed", tool.name, exc_info=error, extra=log_fields())
    return ToolResult.failed(FAILED)


async def _call_in_thread(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a function that may block. A future cannot carry StopIteration, so the exception is returned."""

    def call() -> tuple[Any, BaseException | None]:
        try:
            return function(**arguments), None
        except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
            return None, error

    value, error = await asyncio.to_thread(call)
    if error is not None:
        raise error
    return value


def _is_failure_of_function(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Return whether the function failed by itself: it did not ask, and its caller was not cancelled or closed."""
    if interrupts_in(error):
        return False
    if isinstance(error, asyncio.CancelledError):
        return task is not None and task.cancelling() == 0  # 0: the function awaited a cancelled task
    if isinstance(error, GeneratorExit):
        try:
            return asyncio.current_task() is task
        except RuntimeError:  # the loop is closed
            return False
    return True
