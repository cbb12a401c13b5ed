"""ag-ui-validate, a third-party validator, finds nothing in the streams of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from ag_ui_validate.transport import TransportOptions, validate_body
from processes.commands import Command, aguila_serve
from serving import Stream

from aguila.cli.demo import FEATURES

pytestmark = pytest.mark.anyio


# Findings of version 0.4.0 that the protocol does not require.
EXEMPTIONS = {
    "AGUI902": "timestamps are optional (ENV-2); it is a hint",
    "AGUI504 TOOL_CALL_RESULT/content": "a result's content may be parts (spec section 2); the validator's is older",
    "AGUI207 TOOL_CALL_RESULT/toolCallId": "the answer to a call that waited for approval is in the run that resumes "
    "(INT-11); the validator looks at one run",
}
TOOL = {"name": "pick_date", "description": "Lets the user pick a date", "parameters": {"type": "object"}}
SHOWN = [name for name in FEATURES if name != "slow"]
VERSIONS = ["1.1", "1.0", ...]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    with aguila_serve(tmp_path_factory.mktemp("served")) as server:
        yield server


@pytest.fixture(scope="module")
def recorded(server: Command) -> dict[tuple[str, Any], Stream]:
    """Every feature for every kind of consumer, read to its end; together, since the demo takes its time."""

    def play(feature: str, version: Any) -> Stream:
        members = asking(feature, protocolVersion=version, tools=[TOOL] if feature == "frontend" else [])
        with server.run(thread_id=f"{feature} {version}", **members) as stream:
            assert stream.rest() != []
            return stream

    with ThreadPoolExecutor(16) as pool:
        played = {(feature, version): pool.submit(play, feature, version) for feature in SHOWN for version in VERSIONS}
    return {key: future.result() for key, future in played.items()}


async def diagnose(raw: bytes, content_type: str) -> list[str]:
    """Return all findings of the validator in the bytes of a stream."""

    async def body() -> AsyncIterator[bytes]:
        yield raw

    report = (await validate_body(body(), content_type, TransportOptions(recorded=True))).report
    assert report.internal_errors == []
    return [f"{one.rule} {one.event_type or ''}{one.pointer or ''}: {one.message}" for one in report.diagnostics]


async def findings(stream: Stream) -> list[str]:
    """Return the findings of the validator in a stream, read to its end, without the exempt ones."""
    stream.rest()
    told = await diagnose(stream.raw, stream.response.headers["content-type"])
    return [one for one in told if one.partition(":")[0].strip() not in EXEMPTIONS]


def asking(feature: str, **members: Any) -> dict[str, Any]:
    return {"messages": [{"id": "m", "role": "user", "content": f"Show me {feature}"}], **members}


@pytest.mark.parametrize("version", VERSIONS, ids=["speaks 1.1", "speaks 1.0", "says nothing"])
@pytest.mark.parametrize("feature", SHOWN)
async def test_nothing_is_found_in_a_run_of_the_demo(
    recorded: dict[tuple[str, Any], Stream], feature: str, version: Any
) -> None:
    found = await findings(recorded[feature, version])
    if feature == "state" and version is ...:
        # Undeclared clients get the final state as well: in Node, 0.0.45 to 0.0.50 apply no delta.
        assert found == ["AGUI304 STATE_SNAPSHOT: STATE_SNAPSHOT replaces state previously built from 3 delta(s)"]
    else:
        assert found == []


@pytest.mark.parametrize(
    ("feature", "payload"), [("interrupt", {"colour": "red"}), ("approval", {"approved": True}), ("approval", False)]
)
async def test_nothing_is_found_in_a_run_that_goes_on_after_an_answer(
    server: Command, feature: str, payload: Any
) -> None:
    thread = f"resumed {feature} {payload}"
    *_, last = server.events(thread_id=thread, **asking(feature))
    (interrupt,) = last["outcome"]["interrupts"]
    status = "cancelled" if payload is False else "resolved"
    entry = {"interruptId": interrupt["id"], "status": status, **({"payload": payload} if payload else {})}
    with server.run(thread_id=thread, run_id="then", **asking(feature), resume=[entry]) as stream:
        assert stream.status == 200
        assert await findings(stream) == []


async def test_nothing_is_found_in_a_run_that_was_cancelled(server: Command) -> None:
    with server.run(thread_id="cancelled", **asking("slow")) as stream:
        stream.read_until("TEXT_MESSAGE_CONTENT")
        server.post("/threads/cancelled/runs/run/cancel")
        assert await findings(stream) == []


@pytest.mark.parametrize("feature", ["state", "tools", "reasoning", "subagents", "activity", "interrupt"])
async def test_nothing_is_found_in_a_join_and_in_a_replay(server: Command, feature: str) -> None:
    thread = f"joined {feature}"
    server.events(thread_id=thread, **asking(feature))
    with server.run("/connect", thread_id=thread, run_id="join") as stream:
        assert await findings(stream) == []
    for query in ("", "?compact=true"):
        with server.stream("GET", f"/threads/{thread}/events{query}") as stream:
            assert await findings(stream) == []


async def test_the_validator_finds_what_is_wrong(server: Command) -> None:
    """Check the assumptions of the tests above."""
    with server.run(thread_id="broken", **asking("text")) as stream:
        stream.rest()
    broken = stream.raw.replace(b"TEXT_MESSAGE_START", b"TEXT_MESSAGE_END")
    assert [one for one in await diagnose(broken, "text/event-stream") if one.startswith("AGUI102 TEXT_MESSAGE_END")]
