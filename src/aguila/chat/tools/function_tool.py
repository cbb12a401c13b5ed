"""Tools: functions that a model may call, declared by their signature, with checked arguments.

The same ``tool`` serves clients (front-end tools), agents of a provider, and agents that are plain functions. Nothing
here calls the function: ``aguila.client.tools`` and ``aguila.agent.tool_calls`` do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar, cast, get_args, overload

import msgspec

from aguila.chat.from_chat.messages import make_result_content
from aguila.chat.json_schema import problem_with
from aguila.chat.tools.functions import function_schema, read_arguments
from aguila.chat.tools.pydantic_types import as_json
from aguila.chat.types import Content, FunctionResultContent
from aguila.codec.json.bounded_floats import decode_json
from aguila.codec.notices import log_notice
from aguila.errors import AguilaError, DecodeError, EncodeError
from aguila.protocol import ContentPart, TextPart, Tool, replace

P = ParamSpec("P")
R = TypeVar("R")

RUN = "run"
"""The parameter that receives the run of an agent. It is not declared to the model."""

Confirm = Callable[[str, dict[str, Any]], Any]
"""A function of a tool's name and arguments. It returns whether the call may be made, or an awaitable of that."""

NeedsApproval = bool | Callable[[dict[str, Any]], bool]
"""Whether the user has to approve a call, or a function of the arguments that returns it."""

_PARTS = get_args(ContentPart)
_ARRAY: Any = (list, tuple)


class ToolError(Exception):
    """Raise it in a tool to answer the call with an error. Its text is the answer."""


class FunctionTool(Generic[P, R]):
    """A function that a model may call. Calling it calls the function.

    ``tool`` makes one. ``declaration`` is shown to the model. If ``takes_run``, the function has a parameter ``run``
    without a JSON type, and receives the run of the agent.
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
        needs_approval: NeedsApproval | None = None,
    ) -> None:
        if name is None and getattr(function, "__name__", None) == "<lambda>":
            raise TypeError("a lambda has no name that a model could call; use tool(name=...)")
        self.function = function
        self.confirm = confirm
        self.__doc__ = function.__doc__
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object whose __call__ is async
        )
        found = inspect.signature(function).parameters
        self.takes_run = RUN in found and _is_run(found[RUN].annotation)
        if self.takes_run and not self.is_async:
            raise TypeError("a tool with a parameter 'run' must be an async function, because the methods of a run are")
        self._schema = None if parameters is None else dict(parameters)
        self._hidden = (RUN,) if self.takes_run else ()
        # With a schema of its own, the annotations are not read.
        hidden = self._hidden if self._schema is None else tuple(found)
        declared = function_schema(function, name=name, description=description, exclude=hidden)
        if self._schema is not None:
            declared = replace(declared, parameters=self._schema)
        if metadata is not None:
            declared = replace(declared, metadata=dict(metadata))
        self.declaration: Tool = declared
        self.__name__ = declared.name
        self._needs_approval = needs_approval

    @staticmethod
    def of(function: FunctionTool[..., Any] | Callable[..., Any]) -> FunctionTool[..., Any]:
        """Return a tool as it is, and any other function as a tool. Raises ``TypeError``."""
        if not callable(function):
            raise TypeError(f"expected a function or a tool, got {_shown(function)}")
        return (
            cast("FunctionTool[..., Any]", function) if isinstance(function, FunctionTool) else FunctionTool(function)
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        return self.function(*args, **kwargs)

    @property
    def name(self) -> str:
        """The name that the model calls."""
        return self.declaration.name

    @property
    def may_ask(self) -> bool:
        """Whether a call may end an agent's run with a question."""
        return self.takes_run or self._consent is not False

    def needs_approval(self, arguments: dict[str, Any]) -> bool:
        """Return whether the user has to approve a call with these arguments.

        A tool with ``confirm`` and without ``needs_approval`` needs approval for every call.
        """
        consent = self._consent
        return consent if isinstance(consent, bool) else bool(consent(arguments))

    @property
    def _consent(self) -> NeedsApproval:
        if self._needs_approval is None:
            return self.confirm is not None and self.confirm is not False
        return self._needs_approval

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert decoded arguments to the types of the parameters. Raises ``ToolError`` if they do not fit."""
        if self._schema is not None:
            problem = problem_with(arguments, self._schema)
            if problem is not None:
                raise ToolError(f"the arguments do not fit: {problem}")
            return dict(arguments)
        try:
            return read_arguments(self.function, arguments, exclude=self._hidden)
        except DecodeError as error:
            where = f" at {error.path!r}" if error.path else ""
            raise ToolError(f"the arguments do not fit: {error.message}{where}") from error

    def bind(self, text: str) -> dict[str, Any]:
        """Decode arguments as a model wrote them, and check them. Raises ``ToolError`` if they do not fit."""
        try:
            # Some models write a call without arguments as an empty text.
            value: Any = decode_json(text) if text.strip() else {}
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise ToolError(f"the arguments are not JSON: {error}") from error
        if not isinstance(value, dict):
            raise ToolError("the arguments do not fit: expected an object")
        return self.check(cast("dict[str, Any]", value))


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = ...,
    description: str | None = ...,
    parameters: Mapping[str, Any] | None = ...,
    metadata: Mapping[str, Any] | None = ...,
    confirm: Confirm | bool | None = ...,
    needs_approval: NeedsApproval | None = ...,
) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = ...,
    description: str | None = ...,
    parameters: Mapping[str, Any] | None = ...,
    metadata: Mapping[str, Any] | None = ...,
    confirm: Confirm | bool | None = ...,
    needs_approval: NeedsApproval | None = ...,
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
    needs_approval: NeedsApproval | None = None,
) -> Any:
    """Make a function a tool, for a client, an agent of a provider or an agent of your own.

    Use it as a decorator with or without arguments, or call it. Name, description and parameters come from the
    function: its name, its docstring (Google, NumPy or Sphinx style) and its annotations, pydantic models included.
    ``parameters`` is a JSON Schema to use instead. An async function with a parameter ``run`` receives the run of the
    agent.

    In a client, ``confirm`` is called before every call, with the tool's name and arguments. The function is called
    only if it returns a true value, or an awaitable of one (SEC-1). True stands for the client's own ``confirm``,
    False for none. Without it a tool is confirmed if the client has a ``confirm``.

    In an agent, ``needs_approval`` asks the user before each call, or before those for whose arguments it returns True.

    A tool that needs consent on one side needs it on the other. In an agent, a tool with ``confirm`` needs approval
    unless ``needs_approval`` says otherwise. In a client, a call that needs approval is made only if the client's own
    ``confirm`` returns a true value.

    Raises ``TypeError`` for a signature that cannot be declared: positional-only or variadic parameters, or
    annotations that have no JSON form.
    """

    def make(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        return FunctionTool(
            function,
            name=name,
            description=description,
            parameters=parameters,
            metadata=metadata,
            confirm=confirm,
            needs_approval=needs_approval,
        )

    return make if function is None else make(function)


AnyTool = Tool | FunctionTool[..., Any] | Callable[..., Any]
"""A function to call, or a declaration alone."""


class Toolbox:
    """Tools by name. ``base`` holds tools that those of the same name replace.

    Raises ``TypeError`` for an object that is not a tool, ``ValueError`` for two tools of one name.
    """

    def __init__(self, tools: Iterable[AnyTool] = (), *, base: Toolbox | None = None) -> None:
        self.functions: dict[str, FunctionTool[..., Any]] = {} if base is None else dict(base.functions)
        self.declared: dict[str, Tool] = {} if base is None else dict(base.declared)
        if isinstance(tools, str) or not isinstance(tools, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"tools: expected a list of functions and Tools, got {_shown(tools)}")
        given: set[str] = set()
        for each in tools:
            if isinstance(each, Tool):
                self.functions.pop(each.name, None)
                declared = each
            else:
                if not callable(each):
                    raise TypeError(f"tools: expected each to be a function or a Tool, got {_shown(each)}")
                made = FunctionTool.of(each)
                declared = made.declaration
                self.functions[declared.name] = made
            if declared.name in given:
                raise ValueError(f"tools: two are called {declared.name!r}; tool(name=...) gives one another name")
            given.add(declared.name)
            self.declared[declared.name] = declared

    @property
    def declarations(self) -> list[Tool]:
        """The declarations for a model."""
        return list(self.declared.values())

    @property
    def may_ask(self) -> bool:
        """Whether a call of one of the tools may end an agent's run with a question."""
        return any(one.may_ask for one in self.functions.values())

    def get(self, name: str) -> FunctionTool[..., Any] | None:
        """Return the function of this name, if there is one."""
        return self.functions.get(name)

    def is_manual(self, name: str) -> bool:
        """Return whether a tool is only declared, so that the application answers its calls."""
        return name in self.declared and name not in self.functions


def content_of(value: Any) -> str | list[ContentPart]:
    """Convert the return value of a function to the content of a result.

    Text, parts, chat contents and lists of these stay as they are. Anything else becomes its JSON, pydantic models
    included. Raises ``EncodeError`` for a value that has no JSON form.
    """
    if isinstance(value, (Content, *_PARTS)):
        value = [value]
    elif isinstance(value, _ARRAY):
        several: list[Any] = list(value)
        if not several:
            return "[]"
        is_content = any(isinstance(one, (Content, *_PARTS)) for one in several)
        if is_content and all(isinstance(one, (str, Content, *_PARTS)) for one in several):
            several = [TextPart(text=one) if isinstance(one, str) else one for one in several]
        value = several
    try:
        return _content(value)
    except EncodeError:
        return _content(as_json(value))


def _content(value: Any) -> str | list[ContentPart]:
    try:
        return make_result_content(FunctionResultContent("", value), log_notice)
    except EncodeError:
        raise
    except (AguilaError, TypeError) as error:
        raise EncodeError(str(error)) from error


def _is_run(annotation: Any) -> bool:
    """Return whether a parameter ``run`` is for the run of an agent, and not an argument of the model."""
    if annotation is inspect.Parameter.empty or annotation is Any:
        return True
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2] in ("Any", "Run")
    return getattr(annotation, "__module__", "").startswith("aguila.")


def _shown(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
