"""Each documented way to install works, with nothing else installed."""

import gzip
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ports import free_port
from processes.commands import Command
from waiting import DEADLINE

from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE

AN_APP = """
import asyncio
from aguila import AsyncClient
from aguila.client.transports.asgi import ASGITransport
from aguila.server import App

async def agent(run):
    yield "Hello"

async def main():
    async with AsyncClient("http://localhost", transport=ASGITransport(App(agent))) as client:
        print((await client.thread().run("Hi")).text)

asyncio.run(main())
"""

A_CALL = """
from aguila import Client
with Client({url!r}) as client:
    print(client.capabilities().transport.http_binary, client.thread().run("Show me text").result().outcome)
"""

A_CALL_OVER_AIOHTTP = """
import asyncio
from aguila import AsyncClient
from aguila.client.transports.aiohttp import AiohttpTransport

async def main():
    async with AsyncClient({url!r}, transport=AiohttpTransport()) as client:
        print((await client.thread().run("Show me text")).outcome)

asyncio.run(main())
"""


def output_of(python: Path, code: str) -> str:
    done = subprocess.run([python, "-W", "error", "-c", code], capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def demo(installed: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """``pip install 'aguila[cli]'`` and ``aguila serve``, as the README has it."""
    folder = tmp_path_factory.mktemp("cli")
    aguila = installed(folder / "env", "cli").with_name("aguila")
    port = free_port()
    server = Command([str(aguila), "serve", "--port", str(port)], port, folder, "/healthz", {})
    yield server
    server.stop()


def test_with_server_an_app_answers(installed: Callable[..., Path], tmp_path: Path) -> None:
    assert output_of(installed(tmp_path, "server"), AN_APP) == "Hello"


def test_with_cli_the_demo_is_served_and_client_calls_it(
    installed: Callable[..., Path], demo: Command, tmp_path: Path
) -> None:
    assert output_of(installed(tmp_path, "client"), A_CALL.format(url=demo.url)) == "False success"


def test_with_aiohttp_the_demo_is_called(installed: Callable[..., Path], demo: Command, tmp_path: Path) -> None:
    assert output_of(installed(tmp_path, "aiohttp"), A_CALL_OVER_AIOHTTP.format(url=demo.url)) == "success"


def test_without_protobuf_who_asks_for_it_gets_sse_pb2(demo: Command) -> None:
    body = {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "Show me text"}]}
    answer = demo.post("/", json=body, headers={"Accept": PROTOBUF_MEDIA_TYPE})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert '"RUN_FINISHED"' in answer.text


def test_with_cli_the_page_is_served_without_node(demo: Command) -> None:
    if shutil.which("npm") is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("npm is not installed; the wheel has no page")
    shell = demo.get("/", headers={"Accept": "text/html"})
    assert shell.status_code == 200
    paths = re.findall(r'(?:src|href)="\./(_page/[^"]+)"', shell.text)
    assert {Path(path).suffix for path in paths} == {".js", ".css", ".svg"}
    assets = [demo.get(f"/{path}") for path in paths]
    assert {answer.status_code for answer in assets} == {200}
    assert sum(len(gzip.compress(answer.content)) for answer in (shell, *assets)) < 150_000  # the first load
    assert "Open http://" in demo.log
