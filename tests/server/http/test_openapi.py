"""``GET /openapi.json``: it has every route and no other, and what the routes answer is what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from route_table import endpoints, route_names
from serving import Gate, Server, run_input, serving
from starlette.applications import Starlette
from starlette.testclient import TestClient

from aguila import App
from aguila.server import Page, Principal, front_end_options
from aguila.server.http.front_end import FrontEnd
from aguila.server.http.routes import route


async def echo(run: Any) -> Any:
    run.state["count"] = 1
    yield "Hello"


def documented(app: App) -> set[str]:
    return {
        f"{method.upper()} " + re.sub(r"\{\w+\}", "{id}", path)
        for path, item in app.openapi()["paths"].items()
        for method in item
    }


@pytest.mark.parametrize("options", [{}, {"copilotkit": True}, {"page": True}, {"copilotkit": "/kit", "page": Page()}])
def test_the_document_has_the_routes_of_the_app(options: dict[str, Any]) -> None:
    app = App(echo, store=":memory:", **options)
    assert documented(app) == {name for name, _ in endpoints(app._router, "")}


def test_the_document_has_every_route_of_every_front_end() -> None:
    app = App(echo, store=":memory:", **front_end_options("copilotkit"), page=True, metrics=True)
    own = {name for name in documented(app) if " /agents/{id}/" not in f"{name}/"}
    assert own == route_names() - {"GET / (page)"}


def test_a_route_without_an_operation_is_an_error() -> None:
    async def extra(service: Any, request: Any) -> Any:
        return None

    class More(FrontEnd):
        routes = (route("/extra", {"GET": extra}),)

    app = App(echo, store=":memory:")
    app.add_front_end(More())
    with pytest.raises(LookupError, match="GET /extra has no Operation"):
        app.openapi()


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (one for name, one in value.items() if name == "$ref")
        yield from (found for one in value.values() for found in references(one))
    elif isinstance(value, list):
        yield from (found for one in value for found in references(one))


def test_the_document_is_valid() -> None:
    document = App(echo, store=":memory:", copilotkit=True, page=True).openapi()
    for schema in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    named = {f"#/components/{kind}/{name}" for kind, found in document["components"].items() for name in found}
    assert set(references(document)) <= named
    ids = [found["operationId"] for item in document["paths"].values() for found in item.values()]
    assert len(ids) == len(set(ids))


def test_a_mounted_app_says_where_it_is() -> None:
    outer = Starlette()
    outer.mount("/agent", App(echo, store=":memory:"))
    with TestClient(outer) as client:
        assert client.get("/agent/openapi.json").json()["servers"] == [{"url": "/agent"}]
        assert client.get("/agent/agents/default/openapi.json").json()["servers"] == [{"url": "/agent"}]


def test_credentials_are_declared_if_requests_need_them() -> None:
    document = App(echo, store=":memory:", authenticate=lambda request: "ada").openapi()
    assert document["security"] == [{"credentials": []}]
    assert document["paths"]["/healthz"]["get"]["security"] == []
    assert "security" not in App(echo, store=":memory:").openapi()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(App(echo, store=":memory:", allow_anonymous=True, copilotkit=True)) as found:
        found.events()
        yield found


@pytest.fixture(scope="module")
def document(server: Server) -> Any:
    return server.get("/openapi.json").json()


RUN_PATH = "/threads/{thread}/runs/{run}"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/capabilities", None, 200),
        ("GET", "/agents", None, 200),
        ("GET", "/healthz", None, 200),
        ("GET", "/readyz", None, 200),
        ("GET", "/threads", None, 200),
        ("GET", "/threads/{thread}", None, 200),
        ("PATCH", "/threads/{thread}", {"title": "A", "metadata": {"a": 1}}, 200),
        ("POST", "/threads/{thread}/cancel", None, 200),
        ("GET", RUN_PATH, None, 200),
        ("GET", f"{RUN_PATH}/input", None, 200),
        ("GET", f"{RUN_PATH}/check", None, 200),
        ("POST", f"{RUN_PATH}/cancel", None, 200),
        ("POST", "/files", {"any": "file"}, 201),
        ("POST", "/", {"threadId": 1}, 422),
        ("GET", "/copilotkit/info", None, 200),
        ("GET", "/copilotkit/threads", None, 200),
        ("GET", "/copilotkit/threads/{thread}/messages", None, 200),
        ("GET", "/copilotkit/threads/{thread}/events", None, 200),
        ("GET", "/copilotkit/threads/{thread}/state", None, 200),
        ("POST", "/copilotkit/transcribe", None, 503),
        ("POST", "/copilotkit/threads/{thread}/archive", {}, 200),
        ("PATCH", "/copilotkit/threads/{thread}", {"name": "B", "archived": False}, 200),
        ("POST", "/copilotkit", {"method": "none"}, 400),
    ],
)
def test_an_answer_has_the_documented_form(
    server: Server, document: Any, method: str, path: str, body: Any, status: int
) -> None:
    url = path.replace("{thread}", "thread").replace("{run}", "run")
    answer = server.client.request(method, url, json=body)
    assert answer.status_code == status
    check_form(document, method, path, answer)


def test_an_answer_to_an_operator_has_the_documented_form() -> None:
    gate = Gate()

    async def waiting(run: Any) -> None:
        await gate.wait()

    principal = Principal(scope="ops", rights={"admin"})
    with serving(App(waiting, store=":memory:", authenticate=lambda _: principal)) as server, server.run() as stream:
        stream.next()
        document = server.get("/openapi.json").json()
        for path in ("/admin/runs", "/admin/scopes"):
            answer = server.get(path)
            assert len(answer.json()[path.removeprefix("/admin/")]) == 1
            check_form(document, "GET", path, answer)
        path = "/admin/scopes/{scope}/threads/{thread}/runs/{run}/cancel"
        answer = server.post(path.replace("{scope}", "ops").replace("{thread}", "thread").replace("{run}", "run"))
        assert answer.status_code == 202
        check_form(document, "POST", path, answer)


def check_form(document: Any, method: str, path: str, answer: Any) -> None:
    described = document["paths"][path][method.lower()]["responses"]
    found = described.get(str(answer.status_code), described["default"])
    if "$ref" in found:
        found = document["components"]["responses"][found["$ref"].rpartition("/")[2]]
    schema = {**found["content"]["application/json"]["schema"], "components": document["components"]}
    jsonschema_rs.validator_for(schema).validate(answer.json())
    assert answer.headers["content-type"] == "application/json"


def test_a_run_is_a_valid_request_and_its_events_are_valid(server: Server, document: Any) -> None:
    components = {"components": document["components"]}
    message = {"id": "m", "role": "user", "content": [{"type": "text", "text": "hi"}]}
    sent = run_input("second", messages=[message], state={"a": None})
    sending = document["paths"]["/"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    jsonschema_rs.validator_for({**sending, **components}).validate(sent)
    stream = document["paths"]["/"]["post"]["responses"]["200"]["content"]["text/event-stream"]
    each = stream["itemSchema"]["properties"]["data"]["contentSchema"]
    check = jsonschema_rs.validator_for({**each, **components})
    events = server.client.post("/", json=sent).text
    found = [line.removeprefix("data: ") for line in events.splitlines() if line.startswith("data: ")]
    assert len(found) > 3
    for one in found:
        check.validate(json.loads(one))
    assert not check.is_valid({"type": "NONE"})
