"""The options of an App that front ends need, and a front end of our own: its hooks need no change of the core."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast, get_args

import pytest
from in_process import Reader
from serving import run_input
from starlette.routing import BaseRoute

import aguila.server
from aguila import App
from aguila.codec import encode
from aguila.protocol import CustomEvent, Event, RunFinishedEvent, UserMessage, replace
from aguila.server import Rejected, Request, front_end_options
from aguila.server.frontends.options import FrontEnd
from aguila.server.http.frames import Framing, SSEFraming
from aguila.server.http.front_end import FrontEnd as Hooks
from aguila.server.http.responses import Response, json_response
from aguila.server.http.routes import Endpoint, route
from aguila.server.http.service import Service
from aguila.server.runs.runs import Runs
from aguila.server.runs.start_request import StartRequest


async def agent(run: Any) -> Any:
    yield "Hello"


@pytest.mark.parametrize("name", get_args(FrontEnd))
def test_the_options_of_every_front_end_make_an_app(name: FrontEnd) -> None:
    App(agent, **front_end_options(name))


def test_an_option_can_be_replaced_in_the_dict() -> None:
    options = front_end_options("copilotkit") | {"copilotkit": "/kit"}
    app = App(agent, **options)
    assert app.copilotkit is not None
    assert app.copilotkit.path == "/kit"


def test_a_change_of_the_dict_does_not_reach_the_next_app() -> None:
    front_end_options("copilotkit")["capabilities"]["custom"]["a2ui"] = False
    assert front_end_options("copilotkit")["capabilities"] == {"custom": {"a2ui": True}}


def test_an_unknown_front_end_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'gradio'.* copilotkit, assistant-ui, tanstack, tdesign"):
        front_end_options(cast(Any, "gradio"))


# A front end of our own


class Shouting(SSEFraming):
    """Writes texts in capitals."""

    def frame_batch(self, first: int, events: Sequence[bytes], token: str = "") -> bytes:
        return super().frame_batch(first, [event.replace(b'"delta":"hi', b'"delta":"HI') for event in events], token)


class Notes(Hooks):
    """A front end that reads notes below ``/notes`` and posts them with the header ``X-Notes``."""

    path = "/notes"
    header = "x-notes"

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [route("/of/{thread}", {"GET": self._read})]

    async def _read(self, service: Service, request: Request) -> Response:
        thread = (await service.store.thread(request.caller.scope, request.ids[0])).summary
        return json_response({"note": thread.thread_id, "runs": thread.runs})

    def root(self, request: Request) -> Endpoint | None:
        return Endpoint({"GET": self._greet}, is_public=True) if "notes" in request.query else None

    async def _greet(self, service: Service, request: Request) -> Response:
        return json_response({"notes of": request.agent})

    async def translate(self, start: StartRequest, request: Request, runs: Runs) -> StartRequest:
        messages = [UserMessage(id="note", content=request.headers["x-notes"])]
        translated = replace(start.input, messages=messages)
        return replace(start, input=translated, body=encode(translated))

    def frame(self, request: Request, declared: str | None) -> Framing:
        return Shouting()

    def closing(self, event: Event) -> Sequence[Event]:
        return [CustomEvent(name="note", value="saved")] if isinstance(event, RunFinishedEvent) else ()

    def describe_error(self, refusal: Rejected) -> tuple[int, bytes]:
        return 418, refusal.code.encode()


async def echo(run: Any) -> Any:
    yield f"hi {run.input.messages[-1].content}"


@pytest.mark.anyio
async def test_a_front_end_is_an_object_with_hooks() -> None:
    app = App({"first": echo, "second": echo}, store=":memory:")
    app.add_front_end(Notes())

    async def request(method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        client = Reader(app)
        data = b"" if body is None else json.dumps(body).encode()
        return await client.request(method, path, data, content_type="application/json", **headers), client.body

    body = run_input(thread_id="a/b", run_id="r", messages=[{"id": "u", "role": "user", "content": "?"}])
    del body["protocolVersion"]  # a reader that declares the current version gets it as it is
    status, frames = await request("POST", "/", body, x_notes="Anna")
    events = [json.loads(line) for line in re.findall(rb"^data: (.*)$", frames, re.MULTILINE)]
    assert status == 200
    assert "".join(event.get("delta", "") for event in events) == "HI Anna"  # translated, and framed
    assert [event["type"] for event in events[-2:]] == ["CUSTOM", "RUN_FINISHED"]  # closing
    assert await request("GET", "/notes/of/a%2Fb") == (200, b'{"note":"a/b","runs":1}')
    assert await request("GET", "/notes/of/a/b") == (418, b"not_found")
    assert await request("GET", "/notes/elsewhere") == (418, b"not_found")
    assert await request("POST", "/notes/of/a") == (418, b"method_not_allowed")
    assert await request("GET", "/?notes") == (200, b'{"notes of":null}')
    assert await request("GET", "/agents/second?notes") == (200, b'{"notes of":"second"}')
    assert (await request("GET", "/"))[0] == 405
    # No header, parameter or member without a name is a front end's.
    anonymous = {**body, "runId": "r2", "forwardedProps": {"": 1}}
    status, frames = await request("POST", "/?=1", anonymous)
    assert (status, b'"hi ' in frames) == (200, True)
    assert await request("GET", "/elsewhere/of/a") == (404, (await request("GET", "/elsewhere"))[1])
    await app.close()


def test_products_are_named_in_front_ends_only() -> None:
    server = Path(aguila.server.__file__).parent
    product = re.compile(r"copilotkit|tanstack|langgraph|assistant.ui|tdesign", re.IGNORECASE)
    named = {
        str(path.relative_to(server))
        for path in server.rglob("*.py")
        if product.search(path.read_text()) and "frontends" not in path.parts
    }
    assert named == {"app.py"}  # its options
