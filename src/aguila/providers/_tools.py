"""Layer: providers. Functions that an agent has as tools: declared to the model, their arguments checked, called.

Below: ``aguila.chat.tools``. Above: ``_loop``. Nothing that a model writes can raise out of here: an unknown name,
arguments that do not fit and a function that fails all become an answer with an error.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

import msgspec

from aguila.agent.interrupts import interrupts_in
from aguila.agent.run import Run
from aguila.chat import Content, FunctionCallContent, FunctionResultContent
from aguila.chat.from_chat.messages import make_result_content
from aguila.chat.tools import function_schema, read_arguments
from aguila.chat.tools.pydantic_types import as_json
from aguila.codec.notice import log_notice
from aguila.codec.records import members
from aguila.errors import AguilaError, DecodeError, EncodeError
from aguila.offload import is_large, offload
from aguila.protocol import ContentPart, Tool, replace

_log = logging.getLogger("aguila")

P = ParamSpec("P")
R = TypeVar("R")

RUN = "run"
"""The parameter of a tool that is given the run, and not declared to the model."""
FAILED = "The tool failed."
"""What a model, and whoever reads the stream, is told of a function that raised."""

NeedsApproval = bool | Callable[[dict[str, Any]], bool]


class ToolError(Exception):
    """Raise it in a tool to answer the model with an error: its text is the answer. Other errors are only logged."""


class FunctionTool(Generic[P, R]):
    """A function that a model may call. ``tool`` makes one; ``declaration`` is what the model is told."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        needs_approval: NeedsApproval = False,
    ) -> None:
        self.function = function
        self.__doc__ = function.__doc__
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object whose __call__ is async
        )
        self.takes_run = RUN in inspect.signature(function).parameters
        if self.takes_run and not self.is_async:
            raise TypeError("a tool that is given the run must be an async function: a run is no matter of threads")
        self._has_schema = parameters is not None
        hidden = tuple(inspect.signature(function).parameters) if self._has_schema else (RUN,)
        declared = function_schema(function, name=name, description=description, exclude=hidden)
        self.declaration: Tool = declared if parameters is None else replace(declared, parameters=dict(parameters))
        self.__name__ = self.declaration.name
        self._needs_approval = needs_approval

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, as if it were no tool."""
        return self.function(*args, **kwargs)

    @property
    def may_ask(self) -> bool:
        """Whether a call of it may end a run with a question."""
        return self._needs_approval is not False or self.takes_run

    def needs_approval(self, arguments: dict[str, Any]) -> bool:
        """Whether somebody has to allow a call with these arguments."""
        needs = self._needs_approval
        return needs if isinstance(needs, bool) else bool(needs(arguments))

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as the function takes them. Raises ``ToolError`` if they do not fit."""
        if self._has_schema:
            return arguments
        try:
            return read_arguments(self.function, arguments, exclude=(RUN,))
        except DecodeError as error:
            raise ToolError(f"The arguments do not fit: {error.message} at {error.path!r}.") from error

    async def call(self, arguments: dict[str, Any], run: Run) -> Result:
        """Call the function; what it raises is an error of the result. Questions that it asks leave here."""
        task = asyncio.current_task()
        try:
            bound = self.check(arguments)
            if self.takes_run:
                bound[RUN] = run
            function: Callable[..., Any] = self.function
            value = function(**bound) if self.is_async else await _in_thread(function, bound)
            if inspect.isawaitable(value):
                value = await value
            return await offload(Result.of, value) if is_large(value) else Result.of(value)
        except ToolError as error:
            return Result.failed(str(error))
        except BaseException as error:
            if not _is_its_own(error, task):
                raise
            # Whatever a tool raises, the model gets an answer. SystemExit, with which command line parsers refuse their
            # arguments, would end the event loop if it left a task.
            _log.warning("the tool %r failed", self.declaration.name, exc_info=error, extra=members())
            return Result.failed(FAILED)


async def _in_thread(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a function that may block. A future cannot bring all that it may raise, such as StopIteration."""

    def call() -> tuple[Any, BaseException | None]:
        try:
            return function(**arguments), None
        except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
            return None, error

    value, error = await asyncio.to_thread(call)
    if error is not None:
        raise error
    return value


def _is_its_own(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Whether what was raised is the tool's own doing: no question, and nothing that stops who calls it."""
    if interrupts_in(error):
        return False
    if isinstance(error, asyncio.CancelledError):
        return task is not None and task.cancelling() == 0  # it awaited something that was cancelled
    if isinstance(error, GeneratorExit):
        try:
            return asyncio.current_task() is task
        except RuntimeError:  # the loop has gone, and the call is closed
            return False
    return True


class Result(msgspec.Struct, frozen=True):
    """The answer to a call, as it is sent and as it is recorded."""

    content: str | list[ContentPart] = ""
    error: str | None = None

    @classmethod
    def of(cls, value: Any) -> Result:
        """What a function returned: text, parts and contents as they are, anything else as its JSON."""
        if value is None:
            return cls("")
        if isinstance(value, (Content, ContentPart)):
            value = [value]
        try:
            try:
                return cls(make_result_content(FunctionResultContent("", value), log_notice))
            except EncodeError:
                return cls(make_result_content(FunctionResultContent("", as_json(value)), log_notice))
        except (AguilaError, TypeError) as error:
            _log.warning("the result of a tool cannot be sent", exc_info=error, extra=members())
            return cls.failed("The tool gave a result that cannot be sent.")

    @classmethod
    def failed(cls, error: str) -> Result:
        """Word that it failed; in the content too, as most models are shown nothing else."""
        return cls(error, error)

    def as_content(self, call_id: str) -> FunctionResultContent:
        """The answer as it stands in the chat."""
        return FunctionResultContent(call_id, self.content, self.error)


_Tool = FunctionTool[..., Any]
AnyTool = _Tool | Callable[..., Any]


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = ...,
    description: str | None = ...,
    parameters: Mapping[str, Any] | None = ...,
    needs_approval: NeedsApproval = ...,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    needs_approval: NeedsApproval = False,
) -> Any:
    """Make a function a tool of an agent; with or without arguments, as a decorator or called.

    Name, description and parameters come from the function, unless given; a parameter named ``run`` gets the ``Run``.
    ``needs_approval`` has the user asked before each call, or before those for whose arguments it gives True. A plain
    function is called in a thread. Raises ``TypeError`` for a signature that cannot be declared.
    """

    def make(function: Callable[..., Any]) -> _Tool:
        return FunctionTool(
            function, name=name, description=description, parameters=parameters, needs_approval=needs_approval
        )

    return make if function is None else make(function)


class Toolbox:
    """The tools of an agent, by name."""

    def __init__(self, tools: Iterable[AnyTool]) -> None:
        made = [cast("_Tool", one) if isinstance(one, FunctionTool) else FunctionTool(one) for one in tools]
        self._tools: dict[str, _Tool] = {one.declaration.name: one for one in made}
        if len(self._tools) != len(made):
            raise ValueError("two tools of an agent have the same name")

    @property
    def declarations(self) -> list[Tool]:
        """What the model is told."""
        return [one.declaration for one in self._tools.values()]

    @property
    def may_ask(self) -> bool:
        """Whether a run may end with a question, so that what was done has to be remembered for its resumption."""
        return any(one.may_ask for one in self._tools.values())

    def get(self, name: str) -> _Tool | None:
        """The tool of this name, if the agent has it."""
        return self._tools.get(name)

    def plan(self, call: FunctionCallContent) -> tuple[_Tool, dict[str, Any]] | Result:
        """The tool and the arguments of a call that can be made, or the answer to one that cannot."""
        found = self._tools.get(call.name)
        if found is None:
            return Result.failed(f"There is no tool named {call.name!r}.")
        arguments = call.parsed_arguments
        if arguments is None:
            return Result.failed("The arguments are not a JSON object.")
        try:
            found.check(arguments)
        except ToolError as error:
            return Result.failed(str(error))
        return found, arguments
