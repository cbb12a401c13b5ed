"""Layer: client. Plain functions as front-end tools: advertised, their arguments checked, called, answered (FT, SEC-3).

Below: ``aguila.chat.tools.functions`` (signatures as schemas), ``schema`` (schemas that were given). Above: ``thread``
decides when to call, ``asyncio`` and ``sync`` do it. Nothing an agent sends can raise out of here: a name nobody knows,
arguments that do not fit and a function that fails all become an answer with ``error``.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar, cast, get_args, overload

import msgspec

from aguila.chat.tools import function_schema, read_arguments
from aguila.chat.tools.pydantic_types import as_json
from aguila.client.arguments import expect, listed
from aguila.client.schema import problem_with
from aguila.codec import encode
from aguila.errors import DecodeError, EncodeError
from aguila.protocol import ContentPart, TextPart, Tool, ToolCall, ToolMessage, replace

_log = logging.getLogger("aguila.client")

P = ParamSpec("P")
R = TypeVar("R")

_PARTS = get_args(ContentPart)


Confirm = Callable[[str, dict[str, Any]], Any]
"""Asked with a tool's name and arguments whether it may be called: gives a truth, or an awaitable of one."""

_INTERRUPTED = "interrupted: the call had begun and may have had an effect; it was not made again"
_NOBODY_TO_ASK = "not executed: it needs the user's consent, and this client has no way to ask for it"


class ToolError(Exception):
    """Raise it in a tool to answer with an error: its text is the answer."""


class FunctionTool(Generic[P, R]):
    """A function that an agent may call. Still the function: calling it calls the function.

    ``tool`` makes one. ``declaration`` is what is advertised.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        confirm: Confirm | bool | None = None,
    ) -> None:
        if name is None and getattr(function, "__name__", None) == "<lambda>":
            raise TypeError("a tool needs a name: tool(name=...)")
        self.function = function
        self.confirm = confirm
        self.__doc__ = function.__doc__
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object whose __call__ is async
        )
        self._given = None if parameters is None else dict(parameters)
        declared = function_schema(function, name=name, description=description, exclude=self._excluded())
        if self._given is not None:
            declared = replace(declared, parameters=self._given)
        if metadata is not None:
            declared = replace(declared, metadata=dict(metadata))
        self.declaration = declared
        self.__name__ = declared.name

    def _excluded(self) -> tuple[str, ...]:
        """With a schema of its own, what the annotations say is the function's business."""
        return () if self._given is None else tuple(inspect.signature(self.function).parameters)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, as if it were no tool."""
        return self.function(*args, **kwargs)

    def bind(self, text: str) -> dict[str, Any]:
        """The arguments that an agent wrote, as the function takes them. Raises ``ToolError`` if they do not fit."""
        try:
            # A call without arguments is written as an empty text by some.
            value: Any = msgspec.json.decode(text) if text.strip() else {}
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise ToolError(f"the arguments are not JSON: {error}") from error
        if not isinstance(value, dict):
            raise ToolError("the arguments do not fit: expected an object")
        found = cast("dict[str, Any]", value)
        if self._given is not None:
            problem = problem_with(found, self._given)
            if problem is not None:
                raise ToolError(f"the arguments do not fit: {problem}")
            return found
        try:
            return read_arguments(self.function, found)
        except DecodeError as error:
            where = f" at {error.path!r}" if error.path else ""
            raise ToolError(f"the arguments do not fit: {error.message}{where}") from error


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = ...,
    description: str | None = ...,
    parameters: Mapping[str, Any] | None = ...,
    metadata: Mapping[str, Any] | None = ...,
    confirm: Confirm | bool | None = ...,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    confirm: Confirm | bool | None = None,
) -> Any:
    """Make a function a tool; with or without arguments, as a decorator or called.

    Name, description and parameters come from the function: its name, its docstring (Google, NumPy or Sphinx style),
    its annotations. ``parameters`` is a JSON Schema to use instead. Raises TypeError for a signature that cannot be
    advertised: positional-only or variadic parameters, or annotations that have no JSON form.

    ``confirm`` is asked before every call, with the tool's name and its arguments: only if it gives something true, or
    an awaitable of that, is the function called (SEC-1). True is for the client's ``confirm``, False for none; without
    it a tool is confirmed if the client has a ``confirm``. Calls that come together are asked about one by one, before
    any of them is made.
    """

    def make(function: Callable[P, R]) -> FunctionTool[P, R]:
        return FunctionTool(
            function, name=name, description=description, parameters=parameters, metadata=metadata, confirm=confirm
        )

    return make if function is None else make(function)


AnyTool = Tool | FunctionTool[..., Any] | Callable[..., Any]
"""A function to call, or a declaration alone: calls of it are left to the application."""


class Toolbox:
    """The tools of one run, by name. Those of a thread replace those of its client, and a run's those of both.

    Raises TypeError for what is no tool, ValueError for two of one name.
    """

    EMPTY: ClassVar[Toolbox]

    def __init__(self, tools: Iterable[AnyTool] = (), *, base: Toolbox | None = None) -> None:
        self.functions: dict[str, FunctionTool[..., Any]] = {} if base is None else dict(base.functions)
        self.declared: dict[str, Tool] = {} if base is None else dict(base.declared)
        given: set[str] = set()
        for each in listed("tools", tools, "functions and Tools"):
            if isinstance(each, Tool):
                self.functions.pop(each.name, None)
                declared = each
            else:
                if not callable(each):
                    expect("tools", each, (), "each to be a function or a Tool")
                made = cast("FunctionTool[..., Any]", each) if isinstance(each, FunctionTool) else FunctionTool(each)
                declared = made.declaration
                self.functions[declared.name] = made
            if declared.name in given:
                raise ValueError(f"tools: two are called {declared.name!r}; tool(name=...) gives one another name")
            given.add(declared.name)
            self.declared[declared.name] = declared

    @property
    def declarations(self) -> list[Tool]:
        """What to advertise."""
        return list(self.declared.values())

    def is_manual(self, name: str) -> bool:
        """Whether calls of this tool are answered by the application."""
        return name in self.declared and name not in self.functions

    def plan(self, call: ToolCall, message_id: str, confirm: Confirm | None = None) -> PlannedCall:
        """What there is to do about a call; ``confirm`` is the client's."""
        found = self.functions.get(call.function.name)
        if found is None:
            return PlannedCall(call.id, message_id, problem=f"there is no tool {call.function.name!r}")
        try:
            planned = PlannedCall(call.id, message_id, tool=found, arguments=found.bind(call.function.arguments))
        except ToolError as error:
            return PlannedCall(call.id, message_id, problem=str(error))
        planned.confirm = confirm if found.confirm is None or found.confirm is True else found.confirm or None
        if found.confirm is True and confirm is None:
            planned.tool, planned.problem = None, _NOBODY_TO_ASK
        return planned


Toolbox.EMPTY = Toolbox()


class PlannedCall:
    """A call that is to be made, or whose ``problem`` is known without making it.

    It is made once. ``outcome`` is pending until the function is called, and then holds the answer, sooner or later:
    a run may be left while its function goes on in a thread, and the next run takes what comes of it.
    """

    def __init__(
        self,
        call_id: str,
        message_id: str,
        *,
        tool: FunctionTool[..., Any] | None = None,
        arguments: dict[str, Any] | None = None,
        problem: str | None = None,
    ) -> None:
        self.call_id = call_id
        self.message_id = message_id
        self.tool = tool
        self.arguments = arguments or {}
        self.problem = problem
        self.confirm: Confirm | None = None
        self.outcome: Future[ToolMessage] = Future()

    @property
    def has_begun(self) -> bool:
        """Whether the function was called; it is not called again."""
        return self.outcome.running() or (self.outcome.done() and not self.outcome.cancelled())

    def begin(self) -> bool:
        """Whether the function is to be called now: not if it was called before, or was given up."""
        return not self.has_begun and self.outcome.set_running_or_notify_cancel()

    @contextmanager
    def settling(self) -> Generator[None]:
        """Around the call: whatever ends it, there is an outcome. Raises what is no ``Exception``."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever the application's function raises is the answer
            self.outcome.set_result(self.failed(error))
        except BaseException:
            # Cancelled, Ctrl-C: nobody knows how far the function came.
            self.outcome.set_result(self._error(_INTERRUPTED))
            raise

    def ask(self) -> Any:
        """Whether the user lets the call be made, or an awaitable of that (SEC-1)."""
        is_asked = self.tool is not None and self.confirm is not None
        return self.confirm(self.tool.declaration.name, dict(self.arguments)) if is_asked else True  # type: ignore[misc, union-attr]

    def decline(self, error: Exception | None = None) -> None:
        """The user did not allow the call, or could not be asked: then it is not made either."""
        self.tool, self.problem = None, "not executed: the user declined this call"
        if error is not None:
            _log.warning("nobody could be asked about the tool call %s", self.call_id, exc_info=error)
            self.problem = "not executed: the user could not be asked"

    def settle(self, value: Any) -> None:
        """The function gave this."""
        self.outcome.set_result(self.answer(value))

    def answer(self, value: Any) -> ToolMessage:
        """The answer that the function gave: text, parts and lists of both as they are, anything else as JSON."""
        try:
            content = _content(value)
        except EncodeError as error:
            return self.failed(ToolError(f"the result has no JSON form: {error}"))
        return ToolMessage(id=self.message_id, tool_call_id=self.call_id, content=content)

    def refused(self) -> ToolMessage:
        """The answer to a call that cannot be made."""
        return self._error(self.problem or "")

    def failed(self, error: Exception) -> ToolMessage:
        """The answer of a function that raised: its words, so that the model can do better."""
        if isinstance(error, ToolError):
            return self._error(str(error))
        _log.warning("the tool call %s failed", self.call_id, exc_info=error)
        return self._error(f"{type(error).__name__}: {error}")

    def _error(self, text: str) -> ToolMessage:
        # The content too: most models are shown nothing else.
        return ToolMessage(id=self.message_id, tool_call_id=self.call_id, content=text, error=text)


def _content(value: Any) -> str | list[ContentPart]:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, _PARTS):
        return [value]
    if isinstance(value, list | tuple) and any(isinstance(each, _PARTS) for each in value):  # type: ignore[reportUnknownVariableType]
        several: list[Any] = list(value)  # type: ignore[reportUnknownArgumentType]
        if all(isinstance(each, (str, *_PARTS)) for each in several):
            return [TextPart(text=each) if isinstance(each, str) else each for each in several]
    try:
        return encode(value).decode()
    except EncodeError:
        return encode(as_json(value)).decode()  # models of pydantic
