"""The type tables of document 004, as executable cases: members, JSON names, and which of them are optional."""

from __future__ import annotations

import json
from typing import Any

import pytest
from protobuf_losses import after_protobuf
from serving import serving

from aguila import App
from aguila.chat import tool
from aguila.codec import Notice, decode, decode_event, encode
from aguila.codec.protobuf import ProtobufDecoder, ProtobufEncoder
from aguila.errors import DecodeError
from aguila.protocol import (
    AgentCapabilities,
    Event,
    ExecutionCapabilities,
    MessagesSnapshotEvent,
    RunAgentInput,
    RunStartedEvent,
    SystemMessage,
    Tool,
    UserMessage,
)
from aguila.providers import anthropic, gemini, openai

INPUT: dict[str, Any] = {"threadId": "t", "runId": "r", "messages": []}


# Optional members


def test_a_message_without_id_is_given_one_by_its_constructor() -> None:
    first, second = UserMessage(content="Hello!"), SystemMessage(content="Be brief.")
    assert first.id != second.id != ""
    assert UserMessage(id="m", content="Hello!").id == "m"
    assert decode(encode(first), UserMessage, strict=True) == first


def test_a_tool_without_description_has_an_empty_one() -> None:
    assert Tool(name="count") == Tool(name="count", description="")
    assert json.loads(encode(Tool(name="count"))) == {"name": "count", "description": ""}


def test_ids_and_descriptions_may_be_absent_in_an_input() -> None:
    raw = {**INPUT, "messages": [{"role": "user", "content": "Hi"}], "tools": [{"name": "count"}]}
    notices: list[Notice] = []
    given = decode(json.dumps(raw), RunAgentInput, warn=notices.append)
    assert given.messages[0].id != ""
    assert given.tools == [Tool(name="count")]
    assert [notice.rule for notice in notices] == ["message-id", "tool-description"]
    again = decode(json.dumps(raw), RunAgentInput, warn=notices.append)
    assert again == given  # the same history gets the same ids
    with pytest.raises(DecodeError):
        decode(json.dumps(raw), RunAgentInput, strict=True)
    echoed = decode_event(
        json.dumps({"type": "RUN_STARTED", "threadId": "t", "runId": "r", "input": raw}), warn=notices.append
    )
    assert isinstance(echoed, RunStartedEvent)
    assert echoed.input == given


def test_in_a_snapshot_an_absent_id_is_fatal() -> None:
    raw = {"type": "MESSAGES_SNAPSHOT", "messages": [{"role": "user", "content": "Hi"}]}
    for strict in (False, True):
        with pytest.raises(DecodeError, match="/messages/0/id"):
            decode_event(json.dumps(raw), strict=strict)
    snapshot = MessagesSnapshotEvent(messages=[UserMessage(content="Hi")])
    assert decode_event(encode(snapshot), strict=True) == snapshot


# Protobuf


@pytest.mark.parametrize("member", ["tools", "context", "resume"])
def test_an_absent_list_of_an_echoed_input_stays_absent_in_protobuf(member: str) -> None:
    given = RunAgentInput(thread_id="t", run_id="r", messages=[UserMessage(id="u", content="Hi")])
    event: Event = RunStartedEvent(thread_id="t", run_id="r", input=given)
    (read,) = ProtobufDecoder().feed(ProtobufEncoder().encode(event))
    assert read == event
    assert isinstance(read, RunStartedEvent)
    assert getattr(read.input, member) is None
    assert after_protobuf(event) == event


# Capabilities


@tool
def count(animal: str) -> int:
    """Count animals."""
    return len(animal)


@tool(needs_approval=lambda animal: True)
def release(animal: str) -> str:
    """Release an animal."""
    return animal


class Client:
    """As much of an SDK's client as is looked at."""

    aio = None

    async def close(self) -> None: ...


MAKERS: dict[str, Any] = {
    "anthropic": lambda **options: anthropic.agent(model="m", client=Client(), **options),
    "gemini": lambda **options: gemini.agent(model="m", client=Client(), **options),
    "chat": lambda **options: openai.agent(model="m", client=Client(), api="chat", **options),
    "responses": lambda **options: openai.agent(model="m", client=Client(), api="responses", **options),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_a_provider_agent_declares_what_it_can_do(maker: str) -> None:
    declared: AgentCapabilities = MAKERS[maker](tools=[count]).capabilities
    assert declared.tools is not None
    assert declared.tools.items == [count.declaration]
    assert (declared.tools.supported, declared.tools.parallel_calls, declared.tools.client_provided) == (True,) * 3
    assert declared.multimodal is not None
    assert declared.multimodal.input is not None
    assert declared.multimodal.output is not None
    assert (declared.multimodal.input.image, declared.multimodal.input.pdf) == (True, True)
    assert declared.multimodal.input.video is (maker == "gemini")
    assert declared.multimodal.input.audio is (maker in ("gemini", "chat"))
    assert declared.multimodal.output.image is (maker != "anthropic")
    assert declared.reasoning is not None
    assert declared.reasoning.supported is True
    assert declared.state is not None
    assert declared.state.deltas is True
    assert declared.human_in_the_loop is not None
    assert declared.human_in_the_loop.approvals is False
    asking: AgentCapabilities = MAKERS[maker](tools=[count, release]).capabilities
    assert asking.human_in_the_loop is not None
    assert (asking.human_in_the_loop.approvals, asking.human_in_the_loop.interrupts) == (True, True)


def test_app_adds_the_rest() -> None:
    class Agent:
        capabilities = AgentCapabilities(execution=ExecutionCapabilities(max_iterations=3), custom={"a": 1})

        async def __call__(self, run: Any) -> None: ...

    app = App(Agent(), name="ranger", capabilities={"identity": {"version": "2"}, "custom": {"a": 2}})
    with serving(app) as server:
        declared = server.get("/capabilities").json()
    assert declared["identity"] == {"name": "ranger", "version": "2"}
    assert declared["execution"] == {"maxIterations": 3}
    assert declared["custom"] == {"a": 2}
    assert declared["transport"]["streaming"] is True
