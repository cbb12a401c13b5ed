"""The pytest plugin, in runs of pytest of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import RUN_FINISHED, RUN_STARTED
from typing_checks import revealed

from aguila.protocol import (
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
)
from aguila.testing import assert_stream

EVENTS = [
    RUN_STARTED,
    TextMessageStartEvent(message_id="m"),
    TextMessageContentEvent(message_id="m", delta="Hello"),
    TextMessageEndEvent(message_id="m"),
    RUN_FINISHED,
]

AGENT = """
async def agent(run):
    yield "Hello, "
    yield run.messages[-1].content

"""


BLOCK = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Block())
"""


def run_pytest(folder: Path, test: str, *, before: str = "", options: tuple[str, ...] = ()) -> tuple[int, str]:
    (folder / "test_mine.py").write_text(test)
    code = f"{before}\nimport sys, pytest\nsys.exit(pytest.main(['-q', '-W', 'error', *sys.argv[1:]]))"
    command = [sys.executable, "-c", code, "-p", "no:cacheprovider", *options, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    return done.returncode, done.stdout + done.stderr


def test_a_test_talks_to_an_agent_and_the_client_is_closed_after_it(tmp_path: Path) -> None:
    test = (
        AGENT
        + """
import threading

def test_it(agui_client, assert_stream):
    client = agui_client(agent)
    events = list(client.thread().run("Ada"))
    assert assert_stream(events, text="Hello, Ada", outcome="success").messages

def test_it_is_closed():
    assert "aguila-transport" not in [thread.name for thread in threading.enumerate()]
"""
    )
    status, output = run_pytest(tmp_path, test)
    assert status == 0, output
    assert "2 passed" in output


def test_a_broken_stream_fails_with_everything_that_is_wrong(tmp_path: Path) -> None:
    test = """
def test_it(assert_stream):
    assert_stream([
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "x"},
    ])
"""
    status, output = run_pytest(tmp_path, test)
    assert status == 1
    for rule in ("VER-2", "STR-2", "TRN-3"):
        assert f"[{rule}]" in output


def test_a_project_that_does_not_use_it_notices_nothing_even_without_any_extra(tmp_path: Path) -> None:
    missing = (
        "httpx2",
        "uvicorn",
        "starlette",
        "jsonschema_rs",
        "uuid_utils",
        "python_multipart",
        "typer",
    )
    before = BLOCK.format(missing=missing)
    test = """
import sys

def test_it():
    assert [name for name in sys.modules if name.startswith("aguila.")] == ["aguila.testing", "aguila.testing.plugin"]
"""
    # The plugin of schemathesis, which only this repository has installed, needs one of them.
    status, output = run_pytest(tmp_path, test, before=before, options=("-p", "no:schemathesis"))
    assert status == 0, output


def test_a_fixture_whose_extra_is_missing_names_it(tmp_path: Path) -> None:
    before = "import sys; sys.modules['uuid_utils'] = None"
    status, output = run_pytest(tmp_path, AGENT + "def test_it(agui_client): agui_client(agent)\n", before=before)
    assert status == 1
    assert "pip install 'aguila[server]'" in output


def test_the_fixtures_are_explained(tmp_path: Path) -> None:
    status, output = run_pytest(tmp_path, "", options=("--fixtures",))
    assert status in (0, 5)
    assert "agui_client" in output
    assert "Assert that a stream follows the protocol" in output


def test_a_stream_can_be_asserted_on_in_any_form() -> None:
    from aguila.codec.protobuf import ProtobufEncoder
    from aguila.codec.sse import SSEEncoder

    for stream in (EVENTS, SSEEncoder().encode_many(EVENTS), b"".join(map(ProtobufEncoder().encode, EVENTS))):
        conversation = assert_stream(stream, text="Hello", outcome="success")
        assert [message.content for message in conversation.messages] == ["Hello"]
    assert_stream(EVENTS, types=[event.type for event in EVENTS])


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({"text": "Bye"}, "the text of the assistant: 'Hello', expected 'Bye'"),
        ({"outcome": "interrupt"}, "the outcome of the run: 'success', expected 'interrupt'"),
        ({"types": ["RUN_STARTED"]}, "the event types"),
    ],
)
def test_a_claim_that_is_not_true_fails(claim: dict[str, object], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_stream(EVENTS, **claim)  # type: ignore[arg-type]


def test_rules_can_be_ignored() -> None:
    stream = [RunStartedEvent(thread_id="t", run_id="r"), *EVENTS[1:]]
    with pytest.raises(AssertionError, match="VER-2"):
        assert_stream(stream)
    assert_stream(stream, ignore=["VER-2"])


@pytest.mark.parametrize(
    ("stream", "claim", "problem"),
    [
        ("data: {}", {}, "stream: expected a list of events, or the bytes of a body, got a str"),
        ({"type": "RUN_STARTED"}, {}, "stream: expected a list of events"),
        (None, {}, "stream: expected a list of events, or the bytes of a body, got None"),
        (EVENTS, {"ignore": "VER-2"}, "ignore: expected a list of rules"),
        (EVENTS, {"types": "RUN_STARTED"}, "types: expected a list of"),
        (EVENTS, {"text": b"Hello"}, "text: expected the text of the assistant, got a bytes"),
    ],
)
def test_an_argument_of_another_type_is_named(stream: Any, claim: dict[str, Any], problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        assert_stream(stream, **claim)


def test_an_outcome_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="outcome: expected one of success, interrupt, cancelled, error, got 'sucess'"):
        assert_stream(EVENTS, outcome="sucess")  # type: ignore[arg-type]


@pytest.mark.parametrize("stream", [[], b"", b": nothing\n\n", bytearray(b"[]"), iter(())])
def test_an_empty_stream_is_called_empty(stream: Any) -> None:
    with pytest.raises(AssertionError, match=r"the stream is empty: it has no event \[TRN-3\]"):
        assert_stream(stream)


def test_the_types_of_the_fixtures_are_public(tmp_path: Path) -> None:
    test = """
from aguila.testing import ClientMaker, StreamAssertion

def test_it(agui_client: ClientMaker, assert_stream: StreamAssertion):
    reveal_type(agui_client(repr).thread())
    reveal_type(assert_stream([], outcome="success"))
"""
    assert revealed(tmp_path, test) == ["Thread", "Conversation"]


def test_a_patch_on_a_state_that_was_not_passed_is_explained() -> None:
    run = [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r2", "protocolVersion": "1.1"},
        {"type": "STATE_DELTA", "delta": [{"op": "replace", "path": "/n", "value": 2}]},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r2", "outcome": {"type": "success"}},
    ]
    with pytest.raises(AssertionError, match=r"in 1 place:\n(.|\n)*not the first run(.|\n)*state=\.\.\."):
        assert_stream(run)
    with pytest.raises(AssertionError) as failure:
        assert_stream(run, state={"m": 1})
    assert "not the first run" not in str(failure.value)
    assert_stream(run, state={"n": 1})
