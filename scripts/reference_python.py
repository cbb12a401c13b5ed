"""The pages of docs/reference about functions and classes, with headers and docstrings from the source."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from functools import cache
from types import ModuleType
from typing import Any, Final

import msgspec

from aguila import chat, codec, protocol
from aguila.chat import event_content

PAGES: Final[dict[str, tuple[str, str, list[ModuleType]]]] = {
    "chat": (
        "Chat types",
        "Provider-neutral messages and updates (`aguila.chat`), and the functions that convert them to and from AG-UI. "
        "[chat.md](../chat.md) shows how to use them.",
        [chat, event_content],
    ),
    "codec": (
        "Codec",
        "Functions and classes that read and write the types of `aguila.protocol` as JSON (`aguila.codec`), and those "
        "that read their content (`aguila.protocol`).",
        [codec, protocol],
    ),
}
"""Page name -> title, introduction and the modules whose public functions and classes it has."""

_PUBLIC_OF_EVENT_CONTENT: Final = ("create", "is_event", "try_get")


def entries_of(module: ModuleType) -> list[tuple[str, Any]]:
    """Return the public functions and classes of a module, as name and object. Wire types have pages of their own."""
    names = _PUBLIC_OF_EVENT_CONTENT if module is event_content else module.__all__
    found = [(name, getattr(module, name)) for name in names]
    functions = [(name, value) for name, value in found if inspect.isfunction(value)]
    classes = [(name, value) for name, value in found if inspect.isclass(value) and module is not protocol]
    return functions + classes


@cache
def _source_of(module: str) -> tuple[str, ast.Module]:
    source = inspect.getsource(sys.modules[module])
    return source, ast.parse(source)


_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _decorators(node: _Function) -> set[str]:
    return {ast.unparse(decorator) for decorator in node.decorator_list}


def _functions(body: list[ast.stmt], name: str) -> list[_Function]:
    """Return the overloads of a function, or else the function."""
    found = [node for node in body if isinstance(node, _Function) and node.name == name]
    return [node for node in found if "overload" in _decorators(node)] or found


def _header(source: str, node: _Function) -> str:
    """Return the text of a definition before its body, formatted as in the source."""
    first = node.body[0]
    lines = source.splitlines()[node.lineno - 1 : first.lineno]
    lines[-1] = lines[-1][: first.col_offset]
    text = textwrap.dedent("\n".join(lines)).rstrip().removesuffix(":")
    text = re.sub(r"  # noqa.*", "", text)
    shown = [f"@{one}" for one in ("property", "staticmethod", "classmethod") if one in _decorators(node)]
    return "\n".join([*shown, text])


def _prose(docstring: str | None) -> list[str]:
    paragraphs = (docstring or "").replace("``", "`").split("\n\n")
    return [line for one in paragraphs for line in (" ".join(one.split()), "")]


def _table(kind: type[Any]) -> list[str]:
    """Return the fields of a class that has no constructor in the source."""
    annotations: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        annotations |= {name: str(hint) for name, hint in vars(base).get("__annotations__", {}).items()}
    lines = ["| field | type | default |", "|---|---|---|"]
    for field in msgspec.structs.fields(kind):
        default = "" if field.required else f"`{_default_of(field)}`"
        annotation = annotations[field.name].replace("|", "\\|")
        lines.append(f"| `{field.name}` | `{annotation}` | {default} |")
    return [*lines, ""] if len(lines) > 2 else []


def _default_of(field: Any) -> str:
    if field.default is not msgspec.NODEFAULT:
        return repr(field.default)
    return repr(field.default_factory())


def _method(kind: type[Any], name: str, source: str, body: list[ast.stmt]) -> list[str]:
    headers = [_header(source, function) for function in _functions(body, name)]
    documented = getattr(kind, name)
    return [f"### {kind.__name__}.{name}", "", "```python", *headers, "```", "", *_prose(inspect.getdoc(documented))]


def _constructor(name: str, header: str) -> str:
    """Return the header of ``__init__`` as a call of the class."""
    text = header.replace("def __init__", name).replace(" -> None", "")
    return re.sub(r"\n +self,(?=\n)|self(?:, )?", "", text, count=1)


def _body(kind: type[Any], tree: ast.Module) -> list[ast.stmt]:
    """Return the statements of a class, after those of its private bases in the same module."""
    names = {base.__name__ for base in kind.__mro__ if base.__name__.startswith("_") or base is kind}
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name in names]
    return [statement for node in classes for statement in node.body]


def write_entry(title: str, value: Any) -> list[str]:
    """Return the section of a function or a class."""
    source, tree = _source_of(value.__module__)
    lines = [f"## {title}", ""]
    if inspect.isfunction(value):
        headers = [_header(source, node) for node in _functions(tree.body, value.__name__)]
        return [*lines, "```python", *headers, "```", "", *_prose(inspect.getdoc(value))]
    body = _body(value, tree)
    lines += _prose(inspect.getdoc(value))
    if issubclass(value, msgspec.Struct):
        lines += _table(value)
    else:
        headers = [_constructor(value.__name__, _header(source, node)) for node in _functions(body, "__init__")]
        lines += ["```python", *headers, "```", ""] if headers else []
    for name in dict.fromkeys(one.name for one in body if isinstance(one, _Function) and not one.name.startswith("_")):
        lines += _method(value, name, source, body)
    return lines


def write_page(page: str) -> str:
    """Return a page."""
    title, introduction, modules = PAGES[page]
    lines = [f"# {title}", "", introduction, "", "<!-- Written by scripts/reference.py. -->", ""]
    entries = [
        (f"event_content.{name}" if module is event_content else name, value)
        for module in modules
        for name, value in entries_of(module)
    ]
    lines += [", ".join(f"[{name}](#{name.lower().replace('.', '')})" for name, _ in entries), ""]
    for name, value in entries:
        lines += write_entry(name, value)
    return "\n".join(lines).rstrip() + "\n"
