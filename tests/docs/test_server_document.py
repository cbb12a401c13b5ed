"""docs/server.md has every option, route and code that there is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from aguila import App
from aguila.server import Limits
from aguila.server.http.routes import ROUTES
from aguila.server.runs.maintenance import PRUNE_INTERVAL

REPOSITORY = Path(__file__).parents[2]
TEXT = (REPOSITORY / "docs" / "server.md").read_text()


def test_every_option_and_limit_is_explained() -> None:
    options = [name for name in inspect.signature(App).parameters if name != "agent"]
    assert [name for name in options if f"| `{name}` |" not in TEXT] == []
    assert [name for name in Limits.__struct_fields__ if f"`{name}`" not in TEXT] == []


def test_every_code_of_a_refusal_is_listed() -> None:
    source = "".join(path.read_text() for path in (REPOSITORY / "src/aguila/server").rglob("*.py"))
    codes = {*re.findall(r'\bRejected\(\s*\d+,\s*"(\w+)"', source), "bad_json", "too_many_messages", "too_many_tools"}
    assert len(codes) > 25
    assert {code for code in codes if f"`{code}`" not in TEXT} == set()


def test_every_route_is_listed() -> None:
    listed = [re.sub(r"\{\w+\}", "{}", route) for route in re.findall(r"`((?:GET|POST|PATCH|DELETE) /[^`?]*)", TEXT)]
    routes = [
        f"{method} /" + "/".join("{}" if part is None else part for part in route.path)
        for route in ROUTES
        for method in route.handlers
    ]
    assert [route for route in routes if route not in listed] == []


def test_retention_is_found_where_the_document_says() -> None:
    (block,) = (one for one in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if "Retention(" in one)
    names: dict[str, object] = {"agent": lambda run: None}
    exec(block, names)
    assert isinstance(names["app"], App)


def test_the_schedule_of_retention_is_what_the_document_says() -> None:
    assert "about once a minute" in " ".join(TEXT.split())
    assert PRUNE_INTERVAL == 60
