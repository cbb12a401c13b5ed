"""Build the OpenAPI document from the routes of an app."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, cast

import msgspec
from starlette.routing import BaseRoute, Mount, Route

from aguila import __version__
from aguila.codec.json.values import is_array, is_object
from aguila.codec.negotiate import SSE_MEDIA_TYPE
from aguila.protocol import Event, RunAgentInput
from aguila.protocol._base import Phantom
from aguila.server.http.front_end import FrontEnd
from aguila.server.http.openapi.documents import Document, ErrorDocument
from aguila.server.http.openapi.operation import ID, JSON, Answer, Operation, Parameter
from aguila.server.http.openapi.operations import OPERATIONS
from aguila.server.http.routes import Endpoint, get_root

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_REF: Final = "#/components/schemas/{name}"
_EVENT: Final = "Event"
_SSE: Final = {
    "type": "object",
    "required": ["data"],
    "properties": {
        "id": {"type": "string", "description": "The cursor of the event"},
        "data": {
            "type": "string",
            "contentMediaType": JSON,
            "contentSchema": {"$ref": _REF.format(name=_EVENT)},
        },
    },
}
"""Of an event of a stream. ``itemSchema`` is of OpenAPI 3.2; earlier versions cannot describe streams."""


def build_document(
    routes: Sequence[BaseRoute], front_ends: Sequence[FrontEnd], *, has_credentials: bool
) -> dict[str, Any]:
    """Build the document of these routes. ``has_credentials``: requests need them.

    Every handler has an ``Operation``, here or in ``FrontEnd.operations``. Raises ``LookupError`` for one without.
    """
    operations = dict(OPERATIONS)
    for front_end in front_ends:
        operations |= front_end.operations
    at_root = [one.root_operation for one in front_ends if one.root_operation is not None]
    operations[get_root] = _join(at_root)
    types: list[Any] = [Event, ErrorDocument]
    for one in operations.values():
        answered = chain.from_iterable(answer.content.values() for answer in one.answers.values())
        types += chain.from_iterable(map(_alternatives, (*one.body.values(), *answered, one.errors)))
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    found = _Schemas(types, schemas)
    paths: dict[str, dict[str, Any]] = {}
    for path, endpoint in _endpoints(routes, ""):
        for method, handler in endpoint.handlers.items():
            if method == "HEAD" or (handler is get_root and not at_root):
                continue
            if handler not in operations:
                raise LookupError(f"{method} {path} has no Operation; add one in server/http/openapi/operations.py")
            document = _describe(path, method, endpoint, operations[handler], found)
            paths.setdefault(path, {}).setdefault(method.lower(), document)
    closed = {kind.__name__ for kind in _subclasses(Document)}
    components = {
        name: _relax(schema, is_closed=name in closed)
        for name, schema in components.items()
        if name != Phantom.__name__
    }
    components[_EVENT] = _relax(schemas[0])
    for name in ("threadId", "runId", "parentRunId"):
        components[RunAgentInput.__name__]["properties"][name] |= ID
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Aguila", "version": __version__, "description": "Agents over AG-UI."},
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {
                "Error": {"description": "The request was refused", "content": found.content(JSON, ErrorDocument)}
            },
        },
    }
    if has_credentials:
        document["components"]["securitySchemes"] = {"credentials": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"credentials": []}]
    return document


def _join(operations: Iterable[Operation]) -> Operation:
    """Return one operation whose requests are answered by one or another of these."""
    answers: dict[int, Answer] = {}
    parameters: dict[str, Parameter] = {}
    summaries: list[str] = []
    for one in operations:
        summaries.append(one.summary)
        parameters |= one.parameters
        for status, answer in one.answers.items():
            other = answers.get(status)
            answers[status] = (
                answer
                if other is None
                else Answer(
                    description=f"{other.description}; {answer.description}",
                    content={**other.content, **answer.content},
                )
            )
    return Operation(summary="; ".join(summaries), answers=answers, parameters=parameters)


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for one in kind.__subclasses__():
        yield one
        yield from _subclasses(one)


class _Schemas:
    """The schema of each type."""

    def __init__(self, types: Sequence[Any], schemas: Iterable[Any]) -> None:
        self._found = list(zip(types, map(_relax, schemas), strict=True))

    def content(self, media_type: str, kind: Any) -> dict[str, Any]:
        """Return the description of a body."""
        if media_type == SSE_MEDIA_TYPE:
            return {media_type: {"itemSchema": _SSE}}
        if kind is None:
            return {media_type: {"schema": {"type": "string"} if media_type.startswith("text/") else {}}}
        found = [next(schema for one, schema in self._found if one == each) for each in _alternatives(kind)]
        return {media_type: {"schema": found[0] if len(found) == 1 else {"anyOf": found}}}

    def body(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the descriptions of a body in each of its media types."""
        return {name: found for one, kind in content.items() for name, found in self.content(one, kind).items()}


def _alternatives(kind: Any) -> Sequence[Any]:
    if isinstance(kind, tuple):
        return cast("tuple[Any, ...]", kind)
    return () if kind is None else (kind,)


def _endpoints(routes: Iterable[BaseRoute], prefix: str) -> Iterator[tuple[str, Endpoint]]:
    for one in routes:
        if isinstance(one, Mount):
            yield from _endpoints(one.routes, prefix + one.path)
        elif isinstance(one, Route):
            endpoint: Any = one.endpoint
            yield prefix + one.path.rstrip("/") or "/", endpoint


def _describe(path: str, method: str, endpoint: Endpoint, operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(path)
    ]
    for name, parameter in operation.parameters.items():
        place = "header" if parameter.is_header else "query"
        described: dict[str, Any] = {"name": name, "in": place, "description": parameter.description}
        parameters.append({**described, "schema": dict(parameter.schema)})
    answers = {str(status): _answer(answer, schemas) for status, answer in operation.answers.items()}
    error: dict[str, Any] = {"$ref": "#/components/responses/Error"}
    if operation.errors is not None:
        error = {"description": "The request was refused", "content": schemas.content(JSON, operation.errors)}
    found: dict[str, Any] = {"operationId": _operation_id(method, path), "summary": operation.summary}
    if parameters:
        found["parameters"] = parameters
    if operation.body:
        found["requestBody"] = {"required": operation.needs_body, "content": schemas.body(operation.body)}
    found["responses"] = {**answers, "default": error}
    if endpoint.is_public:
        found["security"] = []
    return found


def _answer(answer: Answer, schemas: _Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {"description": answer.description}
    return {**found, "content": schemas.body(answer.content)} if answer.content else found


def _operation_id(method: str, path: str) -> str:
    return "_".join([method.lower(), *re.findall(r"\w+", path)])


def _relax(schema: Any, *, is_closed: bool = False) -> Any:
    """Describe what a receiver accepts. Optional members are omitted, so null is no default.

    Unknown members of a protocol object are skipped with a warning (PROC-3), so only ``Document`` objects are closed.
    """
    if is_array(schema):
        return [_relax(one) for one in schema if one != {"$ref": _REF.format(name=Phantom.__name__)}]
    if not is_object(schema):
        return schema
    dropped = {"default"} if schema.get("default", schema) is None else set[str]()
    if not is_closed and schema.get("additionalProperties") is False:
        dropped.add("additionalProperties")
    return {name: _relax(value) for name, value in schema.items() if name not in dropped}
