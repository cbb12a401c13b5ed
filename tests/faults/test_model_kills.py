"""``kill -9`` at every step of a run of a pydantic-ai agent that follows an answer, and then the same answer again."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from builders import user_json
from faults.kit import Effects, Worker, report, scaled
from httpx2 import HTTPError
from serving import check_valid, server_process, text_of
from waiting import wait_until

LOOKS = 5
UNKNOWN = "it is unknown whether"

Json = dict[str, Any]


class ModelWorker(Worker):
    script = "model_app.py"


def ask(server: Worker, thread_id: str) -> list[Json]:
    """Begin a conversation; return the answers to what it asks: the payment with an edit, and a size."""
    events = server.events(thread_id=thread_id, run_id="r1", messages=[user_json("u1", thread_id)])
    check_valid(events)
    assert "outcome" in events[-1], (events[-1], server.log.read_text())
    interrupts = events[-1]["outcome"]["interrupts"]
    payloads = [
        {"approved": True, "editedArgs": {"amount": 7}} if one["reason"] == "tool_call" else "M" for one in interrupts
    ]
    assert len(payloads) == 2
    return [
        {"interruptId": one["id"], "status": "resolved", "payload": payload}
        for one, payload in zip(interrupts, payloads, strict=True)
    ]


def messages_of(server: Worker, thread_id: str) -> list[Json]:
    return server.get(f"/threads/{thread_id}").json()["messages"]


def seen(messages: list[Json]) -> list[str]:
    """Return what a user sees of the messages after the first answer, in a form that all threads share.

    Results with an unknown outcome are like others. Of the tools of the first turn, which run concurrently, each may be
    the first to say something.
    """
    found: list[str] = []
    for one in messages[1:]:
        calls = [(call["id"], call["function"]["arguments"]) for call in one.get("toolCalls", ())]
        content = one["toolCallId"] if one["role"] == "tool" else one.get("content")
        found.append(f"{one['role']} {content} {calls}")
    first_look = next((at for at, line in enumerate(found) if "Look 1" in line), len(found))
    # What a tool said whose outcome is unknown was retracted.
    said = [line for line in found[:first_look] if "Adding" not in line]
    return sorted(said) + found[first_look:]


def is_killed_while_answering(folder: Path, step: int, thread_id: str, answers: list[Json], options: Json) -> bool:
    """Answer on a server that is killed at a step. Return whether it was before the run had ended."""
    victim = ModelWorker(folder, kill_at=step, **options)
    try:
        victim.events(thread_id=thread_id, run_id="r2", resume=answers)
    except (HTTPError, AssertionError):  # the answer broke off, before its head or after it
        victim.process.wait()
        return True
    finally:
        victim.stop()
    return False


def answer_again(survivor: Worker, thread_id: str, answers: list[Json]) -> None:
    """Send the same answers to another server, unless the killed one had stored the end of the run."""

    def status() -> str:
        found = survivor.get(f"/threads/{thread_id}/runs/r2")
        return "none" if found.status_code == 404 else found.json()["status"]

    wait_until(lambda: status() != "running")
    if status() == "finished":
        return
    events = survivor.events(thread_id=thread_id, run_id="r3", resume=answers)
    check_valid(events)
    assert events[-1]["type"] == "RUN_FINISHED", events[-1]


class Work:
    """What the agents of all processes did, by thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, thread_id: str, name: str) -> Counter[str]:
        lines = [line.split(" ", 1) for line in Effects(self._folder, name).lines()]
        return Counter(what for thread, what in lines if thread == thread_id)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_run_that_is_killed_at_any_step_goes_on_with_the_same_answer(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    options: Json = {}
    if kind == "postgres":
        schema = request.getfixturevalue("postgres_schema")
        options = {"postgres": {"dsn": request.getfixturevalue("postgres"), "schema": schema}}
    survivor = ModelWorker(tmp_path, **options)
    work = Work(tmp_path)
    kills = unknown = 0
    try:
        answers = ask(survivor, "whole")
        check_valid(survivor.events(thread_id="whole", run_id="r2", resume=answers))
        whole = seen(messages_of(survivor, "whole"))
        tools = work.of("whole", "entered")
        assert set(tools) == {"pay 7", "add shirt M", *(f"look {at + 1}" for at in range(LOOKS))}
        for step in itertools.count(1, scaled(30, 1)):
            thread_id = f"at{step}"
            answers = ask(survivor, thread_id)
            if not is_killed_while_answering(tmp_path, step, thread_id, answers, options):
                break
            kills += 1
            entered, asked = work.of(thread_id, "entered"), work.of(thread_id, "model")
            answer_again(survivor, thread_id, answers)
            # No tool that was called is called again, and no model is asked again for an answer whose calls were made.
            assert work.of(thread_id, "entered") <= tools
            answered = {0} | {at + 1 for at in range(1, LOOKS + 1) if entered[f"look {at}"]}
            assert all(work.of(thread_id, "model")[str(number)] == 1 for number in answered), (step, asked)
            messages = messages_of(survivor, thread_id)
            assert seen(messages) == whole, json.dumps(messages, indent=1)
            unknown += sum(UNKNOWN in str(one.get("content")) for one in messages)
    finally:
        survivor.stop()
    assert kills >= 3
    report(f"kills of a model's run on {kind}", kills=kills, unknown_outcomes=unknown)


LOST = """
import asyncio
from pathlib import Path
from pydantic_ai import Agent
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from aguila import App
from aguila.frameworks import pydantic_ai
from aguila.server import Timing

async def answer(messages, info):
    results = [part.content for one in messages for part in one.parts if isinstance(part, ToolReturnPart)]
    if results:
        yield "; ".join(results)
    else:
        yield {{0: DeltaToolCall("pay", "{{}}", tool_call_id="call-pay")}}

shop = Agent(FunctionModel(stream_function=answer))
begun = Path("{folder}") / "begun"

@shop.tool_plain
async def pay() -> str:
    if not begun.exists():  # until the process is killed
        begun.touch()
        await asyncio.sleep(600)
    return "paid"

store = begun.with_name("threads.db")
app = App(pydantic_ai.agent(shop), store=store, history="{history}", timing=Timing(lease=0.5), drain=0.1)
"""


@pytest.mark.parametrize("history", ["client", "server"])
def test_the_model_is_told_of_a_call_that_the_process_of_a_first_run_died_in(tmp_path: Path, history: str) -> None:
    (tmp_path / "lost.py").write_text(LOST.format(folder=tmp_path, history=history))
    said = [user_json("u1", "Pay")]
    with server_process("lost:app", tmp_path) as server, server.run(run_id="r1", messages=said) as stream:
        stream.read_until("TOOL_CALL_END")
        wait_until((tmp_path / "begun").exists)
        server.process.kill()
        server.process.wait()
    with server_process("lost:app", tmp_path) as server:
        wait_until(lambda: server.status_of("thread", "r1") == "error")
        for number in (2, 3):  # the result stays in the thread
            sent = [*server.get("/threads/thread").json()["messages"], user_json(f"u{number}", "Go on")]
            events = server.events(run_id=f"r{number}", messages=sent)
            check_valid(events)
            assert text_of(events).count(f"{UNKNOWN} 'pay' was executed") == 1
            assert len([event for event in events if event["type"] == "TOOL_CALL_RESULT"]) == (number == 2)
