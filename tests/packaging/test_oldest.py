"""The oldest packages that our extras allow: ag-ui-protocol 0.1.19, rich 14, uuid-utils 0.12, in own processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OLDEST = ROOT / ".venv" / "oldest"

CONVERT = """
import json, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from streams.vectors import VALID
from aguila.codec import decode
from aguila.codec.official import from_official, to_official
from aguila.errors import EncodeError

verdicts = {}
for vector in VALID:
    if vector.read_as == "patch":
        continue
    ours, notices = decode(json.dumps(vector.wire), vector.type, strict=True), []
    try:
        back = from_official(to_official(ours), warn=notices.append)
    except EncodeError:
        verdict = "refused"
    else:
        verdict = "same" if back == ours and not notices else "changed"
    verdicts.setdefault(verdict, []).append(str(vector))
print(json.dumps(verdicts))
"""

RUN_AN_AGENT = """
import asyncio
from importlib.metadata import version
from ag_ui.core import RunAgentInput, TextMessageChunkEvent, ThinkingStartEvent
from aguila import App, AsyncClient
from aguila.client.transports.asgi import ASGITransport
from aguila.codec.official import from_official
from aguila.frameworks import from_events

async def agent(run):
    yield TextMessageChunkEvent(message_id="m-1", delta="Hello from ")
    yield TextMessageChunkEvent(message_id="m-1", delta=version("ag-ui-protocol"))

async def main():
    for each in (agent, from_events(agent)):
        async with AsyncClient("http://localhost", transport=ASGITransport(App(each))) as client:
            print((await client.thread().run("Hi")).text)

asyncio.run(main())
print(from_official(RunAgentInput(thread_id="t", run_id="r", state=None, messages=[], tools=[], context=[],
                                  forwarded_props={})).thread_id)
print(type(from_official(ThinkingStartEvent())).__name__)
"""


def run_with_the_oldest(*arguments: str) -> str:
    if not OLDEST.is_dir():
        pytest.fail(f"{OLDEST} is missing; `make test` installs it from requirements/oldest.txt")
    path = os.pathsep.join(map(str, (OLDEST, ROOT / "src", ROOT / "tests" / "support")))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, *arguments], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_models_of_0_1_19_convert_both_ways_and_what_they_lack_is_refused() -> None:
    verdicts = json.loads(run_with_the_oldest("-c", CONVERT))
    assert len(verdicts["same"]) > 150
    # filled in by to_official, or by the defaults of the 0.1 models
    assert {name.partition(":")[0] for name in verdicts["changed"]} == {
        "ActivitySnapshotEvent",  # replace
        "RunAgentInput",
        "RunStartedEvent",  # its input
        "TextMessageStartEvent",  # role
    }
    assert {name.partition(":")[0] for name in verdicts["refused"]} == {
        "AudioPart",  # from a file
        "DocumentPart",
        "FileSource",
        "ImagePart",
        "RunFinishedCancelledOutcome",
        "RunFinishedEvent",  # cancelled
        "SubagentErrorEvent",
        "SubagentFinishedEvent",
        "SubagentFinishedSuccessOutcome",
        "SubagentFinishedSuspendedOutcome",
        "SubagentStartedEvent",
        "TokenUsage",
        "ToolCallResultEvent",  # parts
        "ToolMessage",
        "VideoPart",
    }


def test_an_agent_may_yield_events_of_0_1_19() -> None:
    assert run_with_the_oldest("-c", RUN_AN_AGENT).splitlines() == [
        "Hello from 0.1.19",
        "Hello from 0.1.19",
        "t",
        "ThinkingStartEvent",
    ]


def test_the_terminal_chat_works_with_rich_14() -> None:
    version = "from importlib.metadata import version; print(version('rich'))"
    assert run_with_the_oldest("-c", version) == "14.0.0\n"
    run_with_the_oldest(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/cli/test_chat.py", "-k", "reasoning or tools"
    )
