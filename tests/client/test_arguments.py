"""Arguments of the client: an error names the argument and is raised at the call."""

import base64
import datetime
import gc
import inspect
import subprocess
import sys
import warnings

import pytest
from builders import run_finished_json, run_started_json, text_message_json
from scripted_server import Answer, ScriptedServer, frame, frames, run_of

from aguila.client import AsyncClient, AsyncThread, Client, Thread, part
from aguila.client.runs.run import RunResult
from aguila.client.transports.aiohttp import AiohttpTransport
from aguila.client.transports.httpx2 import HTTPX2Transport
from aguila.errors import AguilaError, AuthFailed, EncodeError, IllegalStep
from aguila.protocol import Context, DocumentPart, FileSource, ImagePart, TextPart, Tool, UserMessage
from aguila.protocol.legacy import BinaryInputContent

URL = "http://127.0.0.1:9"
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()


def pay():
    """Pay."""


# Clients


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"timeouts": 5}, TypeError, r"timeouts: expected Timeouts\(...\), got a int"),
        ({"reconnect": 5}, TypeError, r"reconnect: expected Reconnect\(...\) or None, got a int"),
        ({"headers": "x"}, TypeError, "headers: expected a mapping of names to values, got a str"),
        ({"auth": 5}, TypeError, "auth: expected a token, headers, or a function that returns either, got a int"),
        ({"tools": pay}, TypeError, "tools: expected a list of functions and Tools, got a function"),
        ({"tools": [5]}, TypeError, "tools: expected each to be a function or a Tool, got a int"),
        ({"tools": [pay, Tool(name="pay", description="")]}, ValueError, "tools: two are called 'pay'"),
        ({"confirm": True}, TypeError, "confirm: expected a function, got a bool"),
        ({"middleware": pay}, TypeError, "middleware: expected a list of middleware"),
        ({"max_rounds": "3"}, TypeError, "max_rounds: expected a number, got a str"),
        ({"compat": "none"}, ValueError, "compat: expected one of off, standard, wide, got 'none'"),
        ({"peer_version": 1.0}, TypeError, "peer_version: expected a version as text"),
        (
            {"peer_version": "v0.0.39"},
            ValueError,
            "peer_version: expected a version such as '0.0.45' or '1.0', got 'v0",
        ),
        ({"peer_version": "banana"}, ValueError, "peer_version: expected a version"),
        ({"tols": [pay]}, TypeError, "unexpected keyword argument 'tols'"),
    ],
)
def test_an_option_that_cannot_be_is_refused_at_once(twin, options, error, message):
    with pytest.raises(error, match=message):
        twin.client(URL, **options)


def test_a_transport_of_the_other_twin_is_refused():
    with pytest.raises(
        TypeError, match=r"transport: AiohttpTransport is for AsyncClient; wrap it for Client with ThreadedTransport"
    ):
        Client(URL, transport=AiohttpTransport())
    with pytest.raises(TypeError, match=r"transport: HTTPX2Transport is for Client"):
        AsyncClient(URL, transport=HTTPX2Transport(verify=False))


@pytest.mark.parametrize("auth", ["secret", {"Authorization": "Bearer secret"}])
def test_auth_may_be_a_token_or_headers(twin, auth):
    with ScriptedServer(run_of()) as server:
        twin.result(twin.client(server.url, auth=auth).thread().run("x"))
        assert server.requests[0].headers["authorization"] == "Bearer secret"


def test_an_async_auth_is_not_for_the_sync_client():
    async def token():
        return "x"

    with pytest.raises(TypeError, match="auth: the function is async; only AsyncClient can await it"):
        Client(URL, auth=token)
    with pytest.raises(AuthFailed, match="the auth function is async; only AsyncClient can await it"):
        Client(URL, auth=lambda: token()).thread().run("x").result()


def test_what_auth_raises_while_reconnecting_ends_the_run_and_is_the_cause(twin):
    asked = []

    def auth():
        asked.append(1)
        if len(asked) > 1:
            raise KeyError("the vault is closed")
        return "token"

    def cut(request):
        return Answer([frame(run_started_json(request.json["runId"], request.json["threadId"]), 1)], cut=True)

    with ScriptedServer(cut) as server:
        thread = twin.client(server.url, auth=auth).thread()
        with pytest.raises(
            AuthFailed, match="auth returned no credentials: KeyError: 'the vault is closed'"
        ) as failure:
            twin.result(thread.run("x"))
    assert isinstance(failure.value, AguilaError)
    assert isinstance(failure.value.__cause__, KeyError)
    assert len(thread.runs) == 1


def test_what_auth_gives_must_be_a_token_or_headers(twin):
    with pytest.raises(AuthFailed, match="expected a token, headers"):
        twin.result(twin.client(URL, auth=lambda: 5).thread().run("x"))


# Runs


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"content": 5}, TypeError, "content: expected text, parts or messages, got a int"),
        ({"content": ["x", 5]}, TypeError, r"content\[1\]: expected text, parts or messages, got a int"),
        ({"content": {"text": "x"}}, EncodeError, "a message, with a role, or a part, with a type"),
        ({"content": {"type": "text", "text": 5}}, EncodeError, "at '/text'"),
        ({"content": {"role": "user", "content": {1}}}, EncodeError, "type set is not JSON at '/content'"),
        ({"context": 5}, TypeError, "context: expected a list of Context objects"),
        ({"context": [5]}, TypeError, r"context\[0\]: expected a Context"),
        ({"context": [{"description": 1}]}, EncodeError, "at '/context/0/description'"),
        ({"context": {"a": 5}}, EncodeError, "at '/context/0/value'"),
        ({"tools": pay}, TypeError, "tools: expected a list"),
        ({"headers": 5}, TypeError, "headers: expected a mapping"),
        ({"max_rounds": "x"}, TypeError, "max_rounds: expected a number"),
        ({"forwarded_props": {"a": {1}}}, EncodeError, "type set is not JSON at '/forwardedProps/a'"),
        ({"bogus": 5}, TypeError, "unexpected keyword argument 'bogus'"),
    ],
)
def test_an_argument_of_a_run_that_cannot_be_is_refused_at_once(twin, arguments, error, message):
    thread = twin.client(URL).thread()
    with pytest.raises(error, match=message):
        thread.run(**arguments)
    with pytest.raises(error, match=message):
        thread.resume({}, **arguments)


def test_answers_that_are_no_mapping_are_refused(twin):
    with pytest.raises(TypeError, match="answers: expected a mapping of interrupt ids to answers, got a list"):
        twin.client(URL).thread().resume(["yes"])


def test_parts_may_be_plain_objects(twin):
    image = {"type": "image", "source": {"type": "url", "value": "http://x/y.png"}}
    with ScriptedServer(run_of(), run_of()) as server:
        thread = twin.client(server.url).thread()
        twin.result(thread.run(["See", image, {"role": "user", "content": "and this"}]))
        assert [message["content"] for message in server.requests[0].json["messages"]] == [
            [{"type": "text", "text": "See"}, image],
            "and this",
        ]
        twin.result(thread.run({"type": "text", "text": "alone"}))
        assert server.requests[1].json["messages"][-1]["content"] == "alone"
    assert isinstance(thread.messages[0].content[1], ImagePart)


@pytest.mark.parametrize(
    ("value", "path"),
    [({"a": {1}}, "/state/a"), ({"b": [b"x"]}, "/state/b/0"), ({"c": datetime.date(2026, 1, 1)}, "/state/c")],
)
def test_a_state_that_is_no_json_is_refused_and_never_coerced(twin, value, path):
    client = twin.client(URL)
    with pytest.raises(EncodeError, match=f"is not JSON at '{path}'"):
        client.thread(state=value)
    thread = client.thread(state={"n": 1})
    with pytest.raises(EncodeError, match=f"is not JSON at '{path}'"):
        thread.state = value
    assert thread.state == {"n": 1}


def test_the_state_is_a_copy_of_ones_own(twin):
    given = {"list": []}
    thread = twin.client(URL).thread(state=given)
    given["list"].append({1})
    assert thread.state == {"list": []}


def test_metadata_that_is_no_json_is_refused_with_its_path(twin):
    thread = twin.client(URL).thread()
    with pytest.raises(EncodeError, match="type set is not JSON at '/messages/0/metadata/a'"):
        twin.result(thread.run(UserMessage(id="m", content="x", metadata={"a": {1}})))
    with pytest.raises(EncodeError, match="type bytes is not JSON at '/messages/0/content/0/metadata/a'"):
        twin.result(thread.run([TextPart(text="x", metadata={"a": b""})]))
    with pytest.raises(EncodeError, match="type set is not JSON at '/tools/0/parameters/a'"):
        twin.result(thread.run("x", tools=[Tool(name="t", description="", parameters={"a": {1}})]))


# Parts of the older kind


@pytest.mark.parametrize("how", ["part", "message", "plain"])
def test_a_binary_part_is_todays_part_to_a_current_peer_and_itself_to_an_old_one(twin, how):
    given = BinaryInputContent(mime_type="image/png", data=PNG, filename="a.png")
    plain = {"type": "binary", "mimeType": "image/png", "data": PNG, "filename": "a.png"}
    content = {"part": [given], "message": UserMessage(id="m", content=[given]), "plain": [plain]}[how]
    notices = []
    with ScriptedServer(run_of(), run_of()) as server:
        thread = twin.client(server.url, warn=notices.append).thread()
        twin.result(thread.run(content))
        assert server.requests[0].json["messages"][0]["content"] == [
            {
                "type": "image",
                "source": {"type": "data", "value": PNG, "mimeType": "image/png"},
                "metadata": {"filename": "a.png"},
            }
        ]
        assert isinstance(thread.messages[0].content[0], ImagePart)
        assert len(notices) == 1
        twin.result(twin.client(server.url, peer_version="0.0.45").thread().run(content))
        assert server.requests[1].json["messages"][0]["content"] == [plain]


def test_a_binary_part_by_id_reaches_an_old_peer_as_it_was(twin):
    with ScriptedServer(run_of()) as server:
        thread = twin.client(server.url, peer_version="0.0.45").thread()
        twin.result(thread.run(BinaryInputContent(mime_type="application/pdf", id="f-1")))
        assert server.requests[0].json["messages"][0]["content"] == [
            {"type": "binary", "mimeType": "application/pdf", "id": "f-1"}
        ]
    assert isinstance(thread.messages[0].content[0], DocumentPart)
    assert isinstance(thread.messages[0].content[0].source, FileSource)


def test_a_binary_part_that_refers_to_nothing_is_refused(twin):
    with pytest.raises(EncodeError):
        twin.client(URL).thread().run(BinaryInputContent(mime_type="image/png"))


# Interrupts, addresses, runs at the same time


def test_there_must_be_something_to_resume(twin):
    thread = twin.client(URL).thread("known")
    for answers in ({}, {"q": 1}):
        with pytest.raises(IllegalStep, match=r"none is open; thread\.refresh\(\)"):
            twin.result(thread.resume(answers))


@pytest.mark.parametrize("thread_id", ["..", ".", ""])
def test_an_id_that_is_a_step_in_a_path_is_no_address(twin, thread_id):
    with ScriptedServer() as server:
        with pytest.raises(EncodeError, match="cannot be part of a URL"):
            twin.wait(twin.client(server.url).thread(thread_id).refresh())
        assert server.requests == []


def test_a_run_that_was_refused_does_not_also_warn(twin):
    with ScriptedServer(Answer([frames([run_started_json()])])) as server:
        thread = twin.client(server.url).thread()
        refused = []

        def look(event):
            run = thread.run("second")
            with pytest.raises(IllegalStep, match="a run is in progress"):
                iter(run) if twin.name == "sync" else aiter(run)
            refused.append(event)
            return True

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            twin.events(thread.run("first"), look)
            gc.collect()
        assert refused


# Signatures


def test_the_options_are_there_to_be_seen():
    for client in (Client, AsyncClient):
        parameters = inspect.signature(client).parameters
        assert {"url", "transport", "options", "headers", "auth", "tools", "timeouts", "peer_version"} <= set(
            parameters
        )
        assert not [one for one in parameters.values() if one.kind is one.VAR_KEYWORD]
    for thread in (Thread, AsyncThread):
        for function in (thread.run, thread.resume, thread.attach, thread.__init__):
            assert not [one for one in inspect.signature(function).parameters.values() if one.kind is one.VAR_KEYWORD]
        run, resume = (dict(inspect.signature(one).parameters) for one in (thread.run, thread.resume))
        del resume["answers"]
        assert run == resume


def test_a_type_checker_sees_the_options_and_the_outcomes(tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text(
        "from aguila import Client\n"
        "client = Client('http://x', tols=[])\n"
        "client.thread(idd='x')\n"
        "client.thread().resume({}, bogus=3)\n"
        "result = client.thread().run('x').result()\n"
        "reveal_type(result.outcome)\n"
    )
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(path)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout
    for name in ("tols", "idd", "bogus"):
        assert f'No parameter named "{name}"' in found
    assert "Literal['success', 'interrupt', 'cancelled']" in found
    assert RunResult.__annotations__["outcome"] == "Outcome"


# Tools


def test_a_list_of_text_and_parts_is_a_list_of_parts(twin):
    def look():
        """Look."""
        return ["see", part(b"\x89PNG\r\n\x1a\n")]

    def call(asked):
        run, thread = asked.json["runId"], asked.json["threadId"]
        events = [
            {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "look"},
            {"type": "TOOL_CALL_END", "toolCallId": "c"},
        ]
        return Answer([frames([run_started_json(run, thread), *events, run_finished_json(run, thread)])])

    with ScriptedServer(call, run_of(*text_message_json("m", "ok"))) as server:
        twin.result(twin.client(server.url).thread().run("x", tools=[look]))
        content = server.requests[1].json["messages"][-1]["content"]
    assert [one["type"] for one in content] == ["text", "image"]
    assert content[0]["text"] == "see"


def test_contexts_are_sent_however_they_are_given(twin):
    with ScriptedServer(run_of()) as server:
        given = [Context(description="a", value="b"), {"description": "c", "value": "d"}]
        twin.result(twin.client(server.url).thread().run("x", context=given))
        assert server.requests[0].json["context"] == [
            {"description": "a", "value": "b"},
            {"description": "c", "value": "d"},
        ]
