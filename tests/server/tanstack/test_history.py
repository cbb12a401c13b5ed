"""TanStack AI sends answers back in other groups than the thread has them: the thread keeps its own."""

from __future__ import annotations

from typing import Any

import pytest
from serving import run_input, serving

from aguila import App
from aguila.protocol import (
    ActivityMessage,
    AssistantMessage,
    FunctionCall,
    Message,
    ReasoningMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from aguila.server.frontends.tanstack.history import restore_messages

CALL = ToolCall(id="c1", function=FunctionCall(name="look", arguments='{"at": 1}'))
OTHER = ToolCall(id="c2", function=FunctionCall(name="look", arguments='{"at": 2}'))
HELD: list[Message] = [
    UserMessage(id="u1", content="Look"),
    ReasoningMessage(id="r1", content="Hm", encrypted_value="x"),
    AssistantMessage(id="a1", tool_calls=[CALL]),
    AssistantMessage(id="a2", tool_calls=[OTHER]),
    ToolMessage(id="t1", tool_call_id="c1", content="seen"),
    ActivityMessage(id="p1", activity_type="PLAN", content={}),
    AssistantMessage(id="m1", content="Done", subagent_run_id="s"),
]
SENT: list[Message] = [
    UserMessage(id="u1", content="Look"),
    ReasoningMessage(id="m1-thinking", content="Hm", encrypted_value="x"),
    AssistantMessage(id="m1", content="Done", tool_calls=[CALL, OTHER], metadata={"tanstack": {}}),
    ToolMessage(id="tool-c1", tool_call_id="c1", content="seen"),
]
NEXT = UserMessage(id="u2", content="And now?")


def test_an_answer_that_says_the_same_is_the_threads_own() -> None:
    assert restore_messages([*SENT, NEXT], HELD) == [*HELD, NEXT]


def test_a_new_tool_result_is_kept() -> None:
    result = ToolMessage(id="tool-c2", tool_call_id="c2", content="by the page")
    assert restore_messages([*SENT, result], HELD) == [*HELD, result]


@pytest.mark.parametrize(
    "sent",
    [
        [SENT[0], AssistantMessage(id="m1", content="Edited", tool_calls=[CALL, OTHER])],
        [SENT[0], AssistantMessage(id="m1", content="Done", tool_calls=[CALL])],  # a call is missing
        [
            SENT[0],
            AssistantMessage(
                id="m1", content="Done", tool_calls=[CALL, OTHER, ToolCall(id="c3", function=CALL.function)]
            ),
        ],
        [
            SENT[0],
            AssistantMessage(id="m1", content="Done", tool_calls=[CALL, ToolCall(id="c2", function=CALL.function)]),
        ],
        [SENT[0]],  # to have it answered again
        [UserMessage(id="new", content="Look"), *SENT[1:]],
        [*SENT, ToolMessage(id="x", tool_call_id="unknown", content="")],
        [SENT[0], ReasoningMessage(id="x", content="Another"), *SENT[2:]],
    ],
)
def test_what_the_client_has_changed_stays_as_it_sent_it(sent: list[Message]) -> None:
    assert restore_messages([*sent, NEXT], HELD) == [*sent, NEXT]


@pytest.mark.parametrize("history", ["client", "server"])
def test_a_thread_has_each_call_once_and_keeps_its_state(history: Any) -> None:
    seen: list[list[str]] = []

    async def agent(run: Any) -> None:
        seen.append([message.role for message in run.messages])
        if len(seen) == 1:
            call = await run.tool_call("look", {"at": 1})
            await call.result("seen")
            run.state["count"] = 1
        await run.say(f"Answer {len(seen)}")

    with serving(App(agent, history=history)) as server:
        first = {"id": "u1", "role": "user", "content": "Look"}

        def post(run_id: str, *messages: dict[str, Any]) -> list[dict[str, Any]]:
            body = run_input(run_id=run_id, messages=[first, *messages], state={}, data={}, protocolVersion=...)
            answer = server.post("/", json=body, headers={"x-run-id": run_id})
            assert answer.status_code == 200
            again = server.post("/", json=body, headers={"x-run-id": run_id, "last-event-id": "1"})
            assert again.status_code == 200  # it is the same request
            return server.get("/threads/thread").json()["messages"]

        thread = post("r1")
        call = thread[1]["toolCalls"][0]
        copy = {"id": "msg-own", "role": "assistant", "toolCalls": [call], "metadata": {"tanstack": {}}}
        result = {"id": f"tool-{call['id']}", "role": "tool", "toolCallId": call["id"], "content": "seen"}
        second = {"id": "u2", "role": "user", "content": "And now?"}
        after = post("r2", copy, result, thread[-1], second)
        assert after[: len(thread)] == thread
        assert [message["role"] for message in after[len(thread) :]] == ["user", "assistant"]
        assert seen[1] == ["user", "assistant", "tool", "assistant", "user"]
        if history == "server":
            assert server.get("/threads/thread").json()["state"] == {"count": 1}
