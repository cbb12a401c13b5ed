"""The pages of docs/reference about functions and classes, with headers and docstrings from the source."""

from __future__ import annotations

import ast
import dataclasses
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
        "aguila.chat",
        "Provider-neutral messages and updates (`aguila.chat`), and the functions that convert them to and from AG-UI. "
        "[Convert chat messages](../chat.md) shows how to use them.",
        [chat, event_content],
    ),
    "codec": (
        "aguila.codec",
        "Functions and classes that read and write the types of `aguila.protocol` as JSON (`aguila.codec`), and those "
        "that read their content (`aguila.protocol`).",
        [codec, protocol],
    ),
}
"""Page name -> title, introduction and the modules whose public functions and classes it has."""

_PUBLIC_OF_EVENT_CONTENT: Final = ("create", "is_event", "try_get")


def entries_of(module: ModuleType) -> list[tuple[str, Any]]:
    """Return the public functions and classes of a module, as name and object. Wire types have pages of their own."""
    names = _PUBLIC_OF_EVENT_CONTENT if module is event_content else getattr(module, "__all__", None) or _own(module)
    found = [(name, getattr(module, name)) for name in names]
    functions = [(name, value) for name, value in found if inspect.isfunction(value)]
    classes = [(name, value) for name, value in found if inspect.isclass(value) and module is not protocol]
    return functions + classes


def _own(module: ModuleType) -> list[str]:
    public = [name for name in vars(module) if not name.startswith("_")]
    return [name for name in public if getattr(getattr(module, name), "__module__", None) == module.__name__]


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
    for field in msgspec.structs.fields(kind) if issubclass(kind, msgspec.Struct) else dataclasses.fields(kind):
        default = _default_of(field)
        annotation = annotations[field.name].replace("|", "\\|")
        lines.append(f"| `{field.name}` | `{annotation}` | {default} |")
    return [*lines, ""] if len(lines) > 2 else []


def _default_of(field: Any) -> str:
    if field.default not in (msgspec.NODEFAULT, dataclasses.MISSING):
        return f"`{field.default!r}`"
    if field.default_factory not in (msgspec.NODEFAULT, dataclasses.MISSING):
        return f"`{field.default_factory()!r}`"
    return ""


def _method(kind: type[Any], name: str, source: str, body: list[ast.stmt]) -> list[str]:
    headers = [_header(source, function) for function in _functions(body, name)]
    documented = getattr(kind, name)
    return [f"### {kind.__name__}.{name}", "", "```python", *headers, "```", "", *_prose(inspect.getdoc(documented))]


def _constructor(name: str, header: str) -> str:
    """Return the header of ``__init__`` as a call of the class."""
    text = header.replace("def __init__", name).replace(" -> None", "")
    return re.sub(r"\n +self,(?=\n)|self(?:, )?", "", text, count=1)


def _bodies(kind: type[Any]) -> list[tuple[str, list[ast.stmt]]]:
    """Return the source and the statements of a class, after those of its bases that are not public themselves."""
    found: list[tuple[str, list[ast.stmt]]] = []
    for base in reversed(kind.__mro__):
        if base is kind or (base.__module__.startswith("aguila.") and not _is_public(base)):
            source, tree = _source_of(base.__module__)
            classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == base.__name__]
            found += [(source, node.body) for node in classes]
    return found


def _is_public(kind: type[Any]) -> bool:
    package = sys.modules[".".join(kind.__module__.split(".")[:2])]
    return kind.__name__ in getattr(package, "__all__", vars(package))


def write_entry(title: str, value: Any) -> list[str]:
    """Return the section of a function or a class."""
    lines = [f"## {title}", ""]
    if inspect.isfunction(value):
        source, tree = _source_of(value.__module__)
        headers = [_header(source, node) for node in _functions(tree.body, value.__name__)]
        return [*lines, "```python", *headers, "```", "", *_prose(inspect.getdoc(value))]
    lines += _prose(inspect.getdoc(value))
    if issubclass(value, msgspec.Struct) or dataclasses.is_dataclass(value):
        lines += _table(value)
    methods: dict[str, list[str]] = {}
    constructor: list[str] = []
    for source, body in _bodies(value):
        if headers := [_constructor(value.__name__, _header(source, node)) for node in _functions(body, "__init__")]:
            constructor = ["```python", *headers, "```", ""]
        for name in dict.fromkeys(one.name for one in body if isinstance(one, _Function)):
            if not name.startswith(("_", "test_")):
                methods[name] = _method(value, name, source, body)
    return [*lines, *constructor, *(line for one in methods.values() for line in one)]


def write_page(title: str, introduction: str, modules: list[ModuleType]) -> str:
    """Return a page."""
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
