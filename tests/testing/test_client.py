"""Clients for agents and apps in the same process."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import Any

import pytest

from aguila import App
from aguila.server import Principal
from aguila.testing.client import client_for, is_asgi, sync_client_for

pytestmark = pytest.mark.anyio


async def agent(run: Any) -> Any:
    yield f"Hello, {run.messages[-1].content}"


class Agent:
    async def __call__(self, run: Any) -> str:
        return "An object."


class Other:
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...


def plain(run: Any) -> str:
    return "Plain."


async def with_more(run: Any, tone: str = "kind") -> str:
    return tone


async def asgi(scope: Any, receive: Any, send: Any) -> None: ...


async def test_an_agent_is_called_without_a_socket() -> None:
    async with client_for(agent) as client:
        assert (await client.thread().run("Ada")).text == "Hello, Ada"


def test_the_sync_client_does_the_same() -> None:
    with sync_client_for(agent) as client:
        assert client.thread().run("Ada").result().text == "Hello, Ada"
        assert client.capabilities() is not None


def test_two_clients_of_one_app_stand_for_two_users() -> None:
    async def whoami(run: Any) -> str:
        return run.principal.name

    users = {f"Bearer {name}": Principal(scope=name, name=name) for name in ("ada", "bob")}
    app = App(
        whoami, store=":memory:", authenticate=lambda request: users.get(request.headers.get("authorization", ""))
    )
    with sync_client_for(app, auth="ada") as ada, sync_client_for(app, auth="bob") as bob:
        assert [client.thread().run("hi").result().text for client in (ada, bob, ada)] == ["ada", "bob", "ada"]
        assert len([*bob.threads()]) == 1


def test_an_app_keeps_its_settings() -> None:
    app = App(agent, authenticate=lambda request: None)
    with sync_client_for(app) as client, pytest.raises(Exception, match="401"):
        client.thread().run("Ada").result()


def test_an_agent_below_a_path_of_another_application_is_found_by_its_url() -> None:
    inner = App(agent)

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            assert scope["path"].startswith("/agent")
            scope = {**scope, "root_path": "/agent"}
        await inner(scope, receive, send)

    with sync_client_for(outer, url="http://agent.test/agent") as client:
        assert client.thread().run("Ada").result().text == "Hello, Ada"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (agent, False),
        (Agent(), False),
        (plain, False),
        (with_more, False),
        (partial(with_more, tone="dry"), False),
        (asgi, True),
        (Other(), True),
        (App(agent), True),
    ],
)
def test_agents_and_applications_are_distinguished_by_their_parameters(target: Any, expected: bool) -> None:
    assert is_asgi(target) is expected


WITHOUT = """
import sys
sys.modules[{package!r}] = None
from aguila.testing import sync_client_for
with sync_client_for(lambda run: "Here.") as client:
    print(client.thread().run("x").result().text)
"""


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("http://x", "got a string; for a URL"),
        (None, "target: expected an agent or an ASGI application, got None"),
        ([], "target: expected an agent or an ASGI application, got a list"),
    ],
)
@pytest.mark.parametrize("make", [client_for, sync_client_for])
def test_what_is_neither_an_agent_nor_an_application_is_refused_at_once(make: Any, target: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        make(target)


def run_without(package: str) -> subprocess.CompletedProcess[str]:
    code = WITHOUT.format(package=package)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("package", ["uuid_utils", "python_multipart"])
def test_a_missing_extra_is_named(package: str) -> None:
    done = run_without(package)
    assert f"MissingExtra: this needs {package}; install it with: pip install 'aguila[server]'" in done.stderr


def test_no_http_library_is_needed() -> None:
    assert run_without("httpx2").stdout == "Here.\n"


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, aguila.testing, aguila.testing.plugin; print([m for m in sys.modules if m.startswith('aguila.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['aguila.testing', 'aguila.testing.plugin']"
