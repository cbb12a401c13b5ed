"""The reference of the HTTP surface, from the OpenAPI document of an app."""

from __future__ import annotations

from typing import Any, Final

from reference import PAGE_OF

from aguila import App
from aguila.server import Metrics

_INTRODUCTION = """\
# All routes

Every route of an `App`, from its OpenAPI document: `GET /openapi.json`, or `App.openapi()`. With several agents, each
route also exists below `/agents/{name}`. [Call the server over HTTP](../http.md) explains them. A status that is not
listed is a refusal with an [error code](../errors.md).
"""
_ORDER: Final = ("/admin", "/copilotkit")
"""The routes that come last."""

_PROTOCOL: Final = {**PAGE_OF, "Event": "events"}
"""Type of the protocol -> its page."""


def http_page() -> str:
    """Return the page as Markdown."""
    app = App(lambda run: None, store=":memory:", copilotkit=True, metrics=Metrics(), page=True)
    document = app.openapi()
    lines = [_INTRODUCTION]
    paths = [path for path in document["paths"] if not path.startswith("/agents/")]
    for path in sorted(paths, key=lambda path: [path.startswith(one) for one in reversed(_ORDER)]):
        for method, operation in document["paths"][path].items():
            lines += [f"## {method.upper()} {path}", "", f"{operation['summary']}.", ""]
            lines += _parameters(operation.get("parameters", []))
            if "requestBody" in operation:
                lines += ["Body: " + _content(operation["requestBody"]["content"]) + ".", ""]
            lines += ["| status | response |", "|---|---|"]
            for status, answer in operation["responses"].items():
                if status != "default":
                    content = _content(answer.get("content", {}))
                    lines.append(f"| {status} | {answer['description']}{': ' if content else ''}{content} |")
            lines.append("")
    lines += ["## Bodies", ""]
    schemas = document["components"]["schemas"]
    for name, schema in schemas.items():
        if name not in _PROTOCOL:
            lines += [
                f"### {name}",
                "",
                schema.get("description", ""),
                "",
                "| member | type | required |",
                "|---|---|---|",
            ]
            for member, kind in schema["properties"].items():
                required = "yes" if member in schema.get("required", ()) else "no"
                lines.append(f"| `{member}` | {_type(kind)} | {required} |")
            lines.append("")
    return "\n".join(lines)


def _parameters(parameters: list[dict[str, Any]]) -> list[str]:
    rows = [
        f"| `{one['name']}` | {one['in']} | {_type(one['schema'])} | {one.get('description', 'Required')} |"
        for one in parameters
    ]
    return ["| parameter | in | type | meaning |", "|---|---|---|---|", *rows, ""] if rows else []


def _content(content: dict[str, Any]) -> str:
    found: list[str] = []
    for media_type, body in content.items():
        schema = body.get("schema", {})
        kind = _type(schema) if schema and schema.get("type") != "string" else ""
        found.append(f"`{media_type}`" + (f" ({kind})" if kind else ""))
    return ", ".join(found)


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        page = f"{_PROTOCOL[name]}.md" if name in _PROTOCOL else ""
        return f"[`{name}`]({page}{'' if name == 'Event' else f'#{name.lower()}'})"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return " or ".join(f"`{one}`" for one in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"array of {_type(schema['items'])}" if schema.get("items") else "array"
    return schema.get("type", "any JSON")
