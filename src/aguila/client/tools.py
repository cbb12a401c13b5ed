"""Layer: client. Plain functions as front-end tools: advertised, their arguments checked, called, answered (FT, SEC-3).

Below: msgspec (schemas from annotations), ``schema`` (schemas that were given). Above: ``thread`` decides when to call,
``asyncio`` and ``sync`` do it. Nothing an agent sends can raise out of here: a name nobody knows, arguments that do
not fit and a function that fails all become an answer with ``error``.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, cast, get_args, get_type_hints, overload

import msgspec

from aguila.client.schema import problem_with
from aguila.codec import encode
from aguila.errors import EncodeError
from aguila.protocol import ContentPart, Tool, ToolCall, ToolMessage

_log = logging.getLogger("aguila.client")

_PARTS = get_args(ContentPart)


class ToolError(Exception):
    """Raise it in a tool to answer with an error: its text is the answer."""


class FunctionTool:
    """A function that an agent may call. Still the function: calling it calls the function.

    ``tool`` makes one. ``declaration`` is what is advertised.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.function = function
        self.__name__ = name if name is not None else _name_of(function)
        self.__doc__ = function.__doc__
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object whose __call__ is async
        )
        summary, described = _read_docstring(inspect.getdoc(function) or "")
        self._given = None if parameters is None else dict(parameters)
        self._arguments = None if parameters is not None else _arguments_of(function, described)
        schema = _schema_of(self._arguments) if self._arguments is not None else self._given
        self.declaration = Tool(
            name=self.__name__,
            description=summary if description is None else description,
            parameters=schema,
            metadata=None if metadata is None else dict(metadata),
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, as if it were no tool."""
        return self.function(*args, **kwargs)

    def bind(self, text: str) -> dict[str, Any]:
        """The arguments that an agent wrote, as the function takes them. Raises ``ToolError`` if they do not fit."""
        if not text.strip():
            text = "{}"  # what a call without arguments is written as by some
        if self._arguments is None:
            try:
                value: Any = msgspec.json.decode(text)
            except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
                raise ToolError(f"the arguments are not JSON: {error}") from error
            problem = problem_with(value, self._given or {})
            if problem is None and not isinstance(value, dict):
                problem = "expected an object"
            if problem is not None:
                raise ToolError(f"the arguments do not fit: {problem}")
            return cast("dict[str, Any]", value)
        try:
            found = msgspec.json.decode(text, type=self._arguments)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise ToolError(f"the arguments do not fit: {error}") from error
        return {name: value for name in found.__struct_fields__ if (value := getattr(found, name)) is not msgspec.UNSET}


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = ...,
    description: str | None = ...,
    parameters: Mapping[str, Any] | None = ...,
    metadata: Mapping[str, Any] | None = ...,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Any:
    """Make a function a tool; with or without arguments, as a decorator or called.

    Name, description and parameters come from the function: its name, its docstring (Google, NumPy or Sphinx style),
    its annotations. ``parameters`` is a JSON Schema to use instead. Raises TypeError for a signature that cannot be
    advertised: positional-only or variadic parameters, or annotations that have no JSON form.
    """

    def make(function: Callable[..., Any]) -> FunctionTool:
        return FunctionTool(function, name=name, description=description, parameters=parameters, metadata=metadata)

    return make if function is None else make(function)


AnyTool = Tool | FunctionTool | Callable[..., Any]
"""A function to call, or a declaration alone: calls of it are left to the application."""


class Toolbox:
    """The tools of one run, by name; later ones replace earlier ones of the same name."""

    EMPTY: ClassVar[Toolbox]

    def __init__(self, tools: Iterable[AnyTool] = (), *, base: Toolbox | None = None) -> None:
        self.functions: dict[str, FunctionTool] = {} if base is None else dict(base.functions)
        self.declared: dict[str, Tool] = {} if base is None else dict(base.declared)
        for each in tools:
            if isinstance(each, Tool):
                self.functions.pop(each.name, None)
                self.declared[each.name] = each
            else:
                made = each if isinstance(each, FunctionTool) else FunctionTool(each)
                self.functions[made.declaration.name] = made
                self.declared[made.declaration.name] = made.declaration

    @property
    def declarations(self) -> list[Tool]:
        """What to advertise."""
        return list(self.declared.values())

    def is_manual(self, name: str) -> bool:
        """Whether calls of this tool are answered by the application."""
        return name in self.declared and name not in self.functions

    def plan(self, call: ToolCall, message_id: str) -> PlannedCall:
        """What there is to do about a call."""
        found = self.functions.get(call.function.name)
        if found is None:
            return PlannedCall(call.id, message_id, problem=f"there is no tool {call.function.name!r}")
        try:
            return PlannedCall(call.id, message_id, tool=found, arguments=found.bind(call.function.arguments))
        except ToolError as error:
            return PlannedCall(call.id, message_id, problem=str(error))


Toolbox.EMPTY = Toolbox()


class PlannedCall:
    """A call that is to be made, or whose ``problem`` is known without making it."""

    def __init__(
        self,
        call_id: str,
        message_id: str,
        *,
        tool: FunctionTool | None = None,
        arguments: dict[str, Any] | None = None,
        problem: str | None = None,
    ) -> None:
        self.call_id = call_id
        self.message_id = message_id
        self.tool = tool
        self.arguments = arguments or {}
        self.problem = problem

    def answer(self, value: Any) -> ToolMessage:
        """The answer that the function gave: text and parts as they are, anything else as JSON."""
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
    if isinstance(value, list) and value and all(isinstance(each, _PARTS) for each in value):  # type: ignore[reportUnknownVariableType]
        return value  # type: ignore[reportUnknownVariableType]
    return encode(value).decode()


# Schemas


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", None)
    if name is None or name == "<lambda>":
        raise TypeError("a tool needs a name: tool(name=...)")
    return name


def _arguments_of(function: Callable[..., Any], described: Mapping[str, str]) -> type[msgspec.Struct]:
    """A struct with a field for each parameter: it gives the schema, and it checks."""
    signature = inspect.signature(function)
    target = function if inspect.isroutine(function) else type(function).__call__
    hints = get_type_hints(inspect.unwrap(target), include_extras=True)
    fields: list[tuple[str, Any, Any]] = []
    for name, parameter in signature.parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{function!r} cannot be a tool: parameter {name!r} cannot be given by name")
        annotation = hints.get(name, Any)
        if name in described:
            annotation = _described(annotation, described[name])
        if parameter.default is inspect.Parameter.empty:
            fields.append((name, annotation, msgspec.NODEFAULT))
        elif _is_plain(parameter.default):
            fields.append((name, annotation, msgspec.field(default=parameter.default)))
        else:
            # The function has its own idea of a default; an absent argument is not passed.
            fields.append((name, annotation | msgspec.UnsetType, msgspec.UNSET))
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)


def _is_plain(default: Any) -> bool:
    return default is None or isinstance(default, str | int | float | bool)


def _described(annotation: Any, description: str) -> Any:
    return Annotated[annotation, msgspec.Meta(description=description)]


def _schema_of(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    try:
        (schema,), components = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    except TypeError as error:
        raise TypeError(f"the parameters of a tool need annotations with a JSON form: {error}") from error
    name = schema["$ref"].rpartition("/")[2]
    found = components.pop(name)
    found.pop("title", None)
    if components:
        found["$defs"] = components
    return found


# Docstrings

_GOOGLE = re.compile(r"^(?:Args|Arguments|Parameters):\s*$")
_NUMPY = re.compile(r"^Parameters\s*\n-{3,}\s*$", re.MULTILINE)
_SPHINX = re.compile(r"^:param\s+(?:[^:\s]+\s+)?(\w+):\s*", re.MULTILINE)
_SECTION = re.compile(r"^(?:[A-Z]\w*(?: \w+)?):\s*$|^:\w+|^[A-Z]\w*\s*\n-{3,}\s*$", re.MULTILINE)
_ENTRY = re.compile(r"^(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """What a docstring says of the whole, and of each parameter."""
    section = _SECTION.search(text)
    summary = (text if section is None else text[: section.start()]).strip()
    found: dict[str, str] = {}
    for match in _SPHINX.finditer(text):
        rest = text[match.end() :]
        end = _SECTION.search(rest)
        found[match[1]] = _one_line(rest if end is None else rest[: end.start()])
    lines = text.split("\n")
    for i, line in enumerate(lines):
        if _GOOGLE.match(line):
            found.update(_entries(lines[i + 1 :]))
    numpy = _NUMPY.search(text)
    if numpy is not None:
        found.update(_numpy_entries(text[numpy.end() :].strip("\n").split("\n")))
    return summary, {name: description for name, description in found.items() if description}


def _entries(lines: Sequence[str]) -> dict[str, str]:
    """``name (type): text`` at one indent, continued at a deeper one."""
    found: dict[str, str] = {}
    indent: int | None = None
    name = ""
    for line in lines:
        if not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        indent = depth if indent is None else indent
        if depth < indent or depth == 0:
            break
        entry = _ENTRY.match(line.strip()) if depth == indent else None
        if entry is not None:
            name = entry[1]
            found[name] = entry[2].strip()
        elif name:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found


def _numpy_entries(lines: Sequence[str]) -> dict[str, str]:
    """``name : type`` at the margin, its text indented below."""
    found: dict[str, str] = {}
    name = ""
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if following.startswith("---"):
            break
        if line and not line[0].isspace():
            name = line.partition(":")[0].strip()
            found.setdefault(name, "")
        elif name:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found


def _one_line(text: str) -> str:
    return " ".join(text.split())
