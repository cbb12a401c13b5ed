"""The type tables of document 004, as executable cases: members, JSON names, and which of them are optional."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from serving import serving
from streams.protobuf_losses import after_protobuf

from aguila import App, protocol
from aguila.chat import tool
from aguila.codec import Notice, decode, decode_event, encode
from aguila.codec.protobuf import ProtobufDecoder, ProtobufEncoder
from aguila.errors import DecodeError, EncodeError
from aguila.frameworks import pydantic_ai
from aguila.protocol import (
    AgentCapabilities,
    Event,
    ExecutionCapabilities,
    FunctionCall,
    MessagesSnapshotEvent,
    Role,
    RunAgentInput,
    RunFinishedEvent,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    SystemMessage,
    TextMessageStartEvent,
    TextPart,
    Tool,
    ToolCall,
    UserMessage,
)
from aguila.stream import consume

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"

INPUT: dict[str, Any] = {"threadId": "t", "runId": "r", "messages": []}


# The tables: every member with its JSON name; a question mark says that it is optional

TABLES = {
    "RunAgentInput": "threadId runId parentRunId? messages tools? state? resume? context? forwardedProps?",
    "DeveloperMessage": "id content name? encryptedValue?",
    "SystemMessage": "id content name? encryptedValue?",
    "AssistantMessage": "id content? name? encryptedValue? toolCalls?",
    "UserMessage": "id content name? encryptedValue?",
    "ToolMessage": "id content toolCallId error? encryptedValue?",
    "ActivityMessage": "id activityType content",
    "ReasoningMessage": "id content encryptedValue?",
    "ToolCall": "id function encryptedValue?",
    "FunctionCall": "name arguments",
    "Context": "description value",
    "Tool": "name description parameters? metadata?",
    "AgentCapabilities": "identity? transport? tools? output? state? multiAgent? reasoning? multimodal? execution? "
    "humanInTheLoop? custom?",
    "IdentityCapabilities": "name? version?",
    "TransportCapabilities": "streaming? websocket? httpBinary? pushNotifications? resumable?",
    "ToolsCapabilities": "supported? items? parallelCalls? clientProvided?",
    "OutputCapabilities": "structuredOutput? supportedMimeTypes?",
    "StateCapabilities": "snapshots? deltas? memory? persistentState?",
    "MultiAgentCapabilities": "delegation? handoffs? subagents?",
    "ReasoningCapabilities": "supported? streaming? encrypted?",
    "MultimodalCapabilities": "input? output?",
    "MultimodalInputCapabilities": "image? audio? pdf?",
    "ExecutionCapabilities": "codeExecution? maxIterations? maxExecutionTime?",
    "HumanInTheLoopCapabilities": "approvals? interventions? feedback? interrupts? approveWithEdits?",
}


@pytest.mark.parametrize("name", TABLES)
def test_a_type_has_the_members_of_its_table(name: str) -> None:
    cls = getattr(protocol, name)
    fields = {field.encode_name: not field.required for field in msgspec.structs.fields(cls)}
    for member in TABLES[name].split():
        assert fields[member.rstrip("?")] == member.endswith("?"), member


@pytest.mark.parametrize("name", TABLES)
def test_the_reference_lists_the_members_of_the_table(name: str) -> None:
    pages = [page.read_text() for page in REFERENCE.glob("*.md")]
    (section,) = [part for page in pages for part in page.split("\n## ") if part.startswith(f"{name}\n")]
    listed = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    assert {member.rstrip("?") for member in TABLES[name].split()} <= listed
    if name.endswith("Message"):
        assert f"| `role` | `role` | `{getattr(protocol, name).role}` |" in section
    # Optional in the document: our constructors and inputs may omit it, the wire may not.
    if name.endswith("Message") or name == "Tool":
        assert "if a constructor or a run input omits it" in section


@pytest.mark.parametrize("value", [{"draft": "hello"}, [1], "text", 5, True])
def test_the_state_is_any_json(value: Any) -> None:
    given = RunAgentInput(thread_id="t", run_id="r", messages=[], state=value)
    assert json.loads(encode(given))["state"] == value
    assert decode(encode(given), RunAgentInput, strict=True) == given
    snapshot = StateSnapshotEvent(snapshot=value)
    delta = StateDeltaEvent(delta=[{"op": "replace", "path": "", "value": value}])
    start, end = RunStartedEvent(thread_id="t", run_id="r"), RunFinishedEvent(thread_id="t", run_id="r")
    for event in (snapshot, delta):
        assert decode_event(encode(event), strict=True) == event
        assert consume([start, event, end], state={"old": 1}).state == value


def test_the_constants_of_the_tables() -> None:
    assert get_args(Role) == ("developer", "system", "assistant", "user", "tool", "activity", "reasoning")
    call = ToolCall(id="call-1", function=FunctionCall(name="get_weather", arguments="{}"), encrypted_value="eA==")
    assert json.loads(encode(call)) == {
        "id": "call-1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": "{}"},
        "encryptedValue": "eA==",
    }


def test_the_example_of_an_input() -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool = Tool(name="get_weather", description="Get the weather for a city", parameters=parameters)
    given = RunAgentInput(
        thread_id="thread-1", run_id="run-1", messages=[UserMessage(id="msg-1", content="Hello!")], tools=[tool]
    )
    assert json.loads(encode(given)) == {
        "threadId": "thread-1",
        "runId": "run-1",
        "messages": [{"id": "msg-1", "role": "user", "content": "Hello!"}],
        "tools": [{"name": "get_weather", "description": "Get the weather for a city", "parameters": parameters}],
    }


def test_the_examples_of_user_messages() -> None:
    image = protocol.ImageInputContent(
        source=protocol.InputContentUrlSource(value="https://example.com/screen.png", mime_type="image/png")
    )
    message = UserMessage(id="user-2", content=[protocol.TextInputContent(text="What is shown here?"), image])
    assert json.loads(encode(message)) == {
        "id": "user-2",
        "role": "user",
        "content": [
            {"type": "text", "text": "What is shown here?"},
            {
                "type": "image",
                "source": {"type": "url", "value": "https://example.com/screen.png", "mimeType": "image/png"},
            },
        ],
    }
    text = UserMessage(id="user-1", content="Summarize this image.")
    assert protocol.parts_of(text.content) == [protocol.TextPart(text="Summarize this image.")]


def test_the_example_of_capabilities() -> None:
    raw = {
        "identity": {"name": "Support Agent", "version": "1.0.0"},
        "transport": {"streaming": True, "resumable": True},
        "tools": {"supported": True, "clientProvided": True},
        "multimodal": {"input": {"image": True, "audio": True, "pdf": True}},
    }
    assert json.loads(encode(decode(json.dumps(raw), AgentCapabilities, strict=True))) == raw


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


def test_an_agent_declares_what_it_can_do() -> None:
    def look(at: str) -> str:
        """Look."""
        return at

    model = TestModel(profile={"supports_video_input": False, "supports_image_output": True})
    declared: AgentCapabilities = pydantic_ai.agent(Agent(model, tools=[look])).capabilities  # type: ignore[attr-defined]
    assert declared.tools is not None
    assert declared.tools.items is not None
    assert [(tool.name, tool.description) for tool in declared.tools.items] == [("look", "Look.")]
    assert (declared.tools.supported, declared.tools.parallel_calls, declared.tools.client_provided) == (True,) * 3
    assert declared.multimodal is not None
    assert declared.multimodal.input is not None
    assert declared.multimodal.output is not None
    assert (declared.multimodal.input.image, declared.multimodal.input.video) == (True, False)
    assert declared.multimodal.output.image is True
    assert declared.reasoning is not None
    assert declared.reasoning.supported is True
    assert declared.state is not None
    assert declared.state.deltas is True
    assert declared.human_in_the_loop is not None
    assert (declared.human_in_the_loop.approvals, declared.human_in_the_loop.interrupts) == (True, True)


def test_app_adds_the_rest() -> None:
    class Agent:
        capabilities = AgentCapabilities(execution=ExecutionCapabilities(max_iterations=3), custom={"a": 1})

        async def __call__(self, run: Any) -> None: ...

    app = App(Agent(), capabilities={"identity": {"name": "ranger", "version": "2"}, "custom": {"a": 2}})
    with serving(app) as server:
        declared = server.get("/capabilities").json()
    assert declared["identity"] == {"name": "ranger", "version": "2"}
    assert declared["execution"] == {"maxIterations": 3}
    assert declared["custom"] == {"a": 2}
    assert declared["transport"]["streaming"] is True


# What a request must say


CALL = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
MALFORMED = [
    ({"id": "u", "content": "hi"}, "/messages/0/role"),
    ({"id": "u", "role": None, "content": "hi"}, "/messages/0/role"),
    ({"id": "u", "role": "user", "content": [{"text": "hi"}]}, "/messages/0/content/0/type"),
    (
        {"id": "u", "role": "user", "content": [{"type": "image", "source": {"value": "x"}}]},
        "/messages/0/content/0/source/type",
    ),
]


@pytest.mark.parametrize("version", [None, "1.0", "1.1", "0.0.40"])
def test_a_message_without_role_or_a_part_without_type_is_answered_with_422_and_its_path(version: str | None) -> None:
    async def agent(run: Any) -> Any:
        raise AssertionError("the agent got less than was sent")

    declared = {} if version is None else {"protocolVersion": version}
    with serving(App(agent)) as server:
        for message, path in MALFORMED:
            answer = server.post("/", json={**INPUT, **declared, "messages": [message]})
            assert (answer.status_code, answer.json()["error"]["path"]) == (422, path)


def test_a_message_of_an_unknown_role_is_still_left_out() -> None:
    async def agent(run: Any) -> Any:
        return [message.id for message in run.messages]

    messages = [{"id": "n", "role": "narrator", "content": "x"}, {"id": "u", "role": "user", "content": "hi"}]
    with serving(App(agent)) as server:
        sent = server.post("/", json={**INPUT, "messages": messages}).text
    assert json.loads(sent.strip().splitlines()[-1].removeprefix("data: "))["result"] == ["u"]


def test_the_type_of_a_tool_call_is_function_unless_the_peer_declares_its_version() -> None:
    async def agent(run: Any) -> Any:
        return [call.type for call in run.messages[0].tool_calls]

    body = {**INPUT, "messages": [{"id": "a", "role": "assistant", "toolCalls": [CALL]}]}
    with serving(App(agent)) as server:
        sent = server.post("/", json=body).text
        assert json.loads(sent.strip().splitlines()[-1].removeprefix("data: "))["result"] == ["function"]
        refused = server.post("/", json={**body, "runId": "r2", "protocolVersion": "1.0"})
        assert (refused.status_code, refused.json()["error"]["path"]) == (422, "/messages/0/toolCalls/0/type")
    notices: list[Notice] = []
    decode(json.dumps(body), RunAgentInput, compat="wide", warn=notices.append)
    assert [notice.rule for notice in notices] == ["tool-call-type"]


# Values that a constructor does not check


def test_an_object_with_a_wrong_value_is_refused_when_it_is_encoded_with_a_check() -> None:
    wrong: Any = 5
    with pytest.raises(EncodeError, match="TextMessageStartEvent is not valid: Expected str, got int") as refused:
        encode(TextMessageStartEvent(message_id=wrong), check=True)
    assert refused.value.path == "/messageId"
    with pytest.raises(EncodeError) as refused:
        encode([UserMessage(content="hi"), UserMessage(content=[TextPart(text="a"), TextPart(text=wrong)])], check=True)
    assert refused.value.path == "/1/content/1/text"
    with pytest.raises(EncodeError) as refused:
        encode(StateDeltaEvent(delta=[{"op": "add", "path": "/a"}]), check=True)  # type: ignore[typeddict-item]
    assert refused.value.path == "/delta/0/value"
    message = UserMessage(id="u", content="hi")
    assert encode(message, check=True) == encode(message)
    assert encode({"any": ["JSON"]}, check=True) == b'{"any":["JSON"]}'


def test_messages_that_are_decoded_one_by_one_get_the_ids_of_new_id() -> None:
    ids = iter(["m-1", "m-2"])
    data = b'{"role":"user","content":"hi"}'
    read = [decode(data, UserMessage, new_id=lambda: next(ids), warn=[].append) for _ in range(2)]
    assert [message.id for message in read] == ["m-1", "m-2"]
    (message,) = decode(b"[%b]" % data, list[UserMessage], new_id=lambda: "m-3", warn=[].append)
    assert message.id == "m-3"
