"""Each compatibility rule alone: old shape, new shape, level, notice."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from builders import UNVERSIONED_RUN_STARTED, run_finished_json

from aguila.codec import Notice
from aguila.codec.compat import RULES, Compat, Level
from aguila.protocol import RunStartedEvent


class Case:
    """An old shape, alone: an event unless ``kind`` says otherwise; ``after`` None means that it is dropped."""

    def __init__(self, rule: str, before: Any, after: Any, path: str, *, kind: str = "Event") -> None:
        self.rule, self.before, self.after, self.path, self.kind = rule, before, after, path, kind

    def upgraded(self, compat: Compat) -> Any:
        if self.kind != "Event":
            return compat.upgrade_document(self.before, self.kind)
        if self.before.get("type") == "META":  # translated in a run
            compat.observe(RunStartedEvent(thread_id="t", run_id="r"))
        events = compat.upgrade(self.before)
        return events[0] if len(events) == 1 else events


def step(name: str, **members: Any) -> dict[str, Any]:
    return {"type": f"STEP_{name}", **members}


def kept(**members: Any) -> dict[str, Any]:
    return {"aguila": members}


def part(**members: Any) -> dict[str, Any]:
    return {"type": "binary", **members}


def media(kind: str, source: str, value: str, mime: str, **members: Any) -> dict[str, Any]:
    return {"type": kind, "source": {"type": source, "value": value, "mimeType": mime}, **members}


def asking(**interrupt: Any) -> dict[str, Any]:
    return {**run_finished_json(), "outcome": {"type": "interrupt", "interrupts": [interrupt]}}


INPUT = {"threadId": "t", "runId": "r", "messages": []}

CASES = [
    # rows 1-3: steps and activities that had ids
    Case(
        "step-by-id",
        step("STARTED", stepId="s1", stepName="plan", parentStepId="s0", metadata={"a": None}),
        step("STARTED", stepName="plan", metadata={"a": None, **kept(stepId="s1", parentStepId="s0")}),
        "/stepId",
    ),
    Case(
        "step-by-id",
        step("FINISHED", stepId="s1", status="failed", result={"why": None}),
        step("FINISHED", stepName="s1", metadata=kept(stepId="s1", status="failed", result={"why": None})),
        "/stepId",
    ),
    Case(
        "activity-id",
        {"type": "ACTIVITY_SNAPSHOT", "activityId": "a", "activityType": "PLAN", "state": {"n": 1}},
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "PLAN", "content": {"n": 1}},
        "/activityId",
    ),
    Case(
        "activity-id",
        {"type": "ACTIVITY_SNAPSHOT", "activityId": "a", "activityType": "PLAN", "state": ["x"]},
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "PLAN", "content": {"value": ["x"]}},
        "/activityId",
    ),
    Case(
        "activity-id",
        {"type": "ACTIVITY_DELTA", "activityId": "a", "delta": [{"op": "remove", "path": "/n"}]},
        {
            "type": "ACTIVITY_DELTA",
            "messageId": "a",
            "activityType": "unknown",
            "patch": [{"op": "remove", "path": "/n"}],
        },
        "/activityId",
    ),
    # row 4: thinking
    Case(
        "thinking-events",
        {"type": "THINKING_START", "timestamp": 5},
        {"type": "REASONING_START", "messageId": "legacy-reasoning-1", "timestamp": 5},
        "/type",
    ),
    Case(
        "thinking-events",
        {"type": "THINKING_TEXT_MESSAGE_START", "messageId": "m"},
        {"type": "REASONING_MESSAGE_START", "messageId": "m", "role": "reasoning"},
        "/type",
    ),
    # rows 5, 6: a draft of reasoning
    Case(
        "reasoning-role",
        {"type": "REASONING_MESSAGE_START", "messageId": "m", "role": "assistant"},
        {"type": "REASONING_MESSAGE_START", "messageId": "m", "role": "reasoning"},
        "/role",
    ),
    Case(
        "reasoning-encrypted-content",
        {"type": "REASONING_START", "messageId": "m", "encryptedContent": "c2VhbA==", "timestamp": 3, "metadata": {}},
        {"type": "REASONING_START", "messageId": "m", "timestamp": 3, "metadata": {}},
        "/encryptedContent",
    ),
    # rows 7, 8: outcomes and interrupts
    Case(
        "string-outcome",
        {**run_finished_json(), "outcome": "success"},
        {**run_finished_json(), "outcome": {"type": "success"}},
        "/outcome",
    ),
    Case(
        "string-outcome",
        {**run_finished_json(), "outcome": "cancelled"},
        {**run_finished_json(), "outcome": {"type": "cancelled"}},
        "/outcome",
    ),
    Case("string-outcome", "success", {"type": "success"}, "", kind="Outcome"),
    Case(
        "sibling-interrupt",
        {**run_finished_json(), "outcome": "interrupt", "interrupt": {"id": "i"}},
        asking(id="i", reason="input_required"),
        "/interrupt",
    ),
    Case(
        "sibling-interrupt",
        {**run_finished_json(), "interrupts": [{"id": "i", "reason": "review"}]},
        asking(id="i", reason="review"),
        "/interrupts",
    ),
    Case(
        "sibling-interrupt",
        {**run_finished_json(), "outcome": {"type": "interrupt"}, "interrupt": [{"id": "i", "reason": "review"}]},
        asking(id="i", reason="review"),
        "/interrupt",
    ),
    Case(
        "interrupt-payload",
        {"id": "c1", "payload": {"functionName": "rm", "functionArguments": {"path": "/"}}},
        {
            "id": "c1",
            "reason": "tool_call",
            "toolCallId": "c1",
            "metadata": kept(payload={"functionName": "rm", "functionArguments": {"path": "/"}}),
        },
        "/payload",
        kind="Interrupt",
    ),
    Case(
        "interrupt-payload",
        {"id": "i", "payload": {"prompt": "Which one?", "inputType": "text"}},
        {
            "id": "i",
            "reason": "input_required",
            "message": "Which one?",
            "metadata": kept(payload={"prompt": "Which one?", "inputType": "text"}),
        },
        "/payload",
        kind="Interrupt",
    ),
    Case(
        "interrupt-payload",
        {"id": "i", "value": [1, 2]},
        {"id": "i", "reason": "input_required", "metadata": kept(payload=[1, 2])},
        "/value",
        kind="Interrupt",
    ),
    Case(
        "interrupt-payload",
        {"id": "i", "reason": "human_approval", "payload": {"functionName": "rm"}},
        {
            "id": "i",
            "reason": "tool_call",
            "toolCallId": "i",
            "metadata": kept(payload={"functionName": "rm"}, reason="human_approval"),
        },
        "/payload",
        kind="Interrupt",
    ),
    Case(
        "interrupt-payload",
        {"id": "i", "reason": "tool_call", "toolCallId": "c", "payload": {"functionName": "rm"}},
        {"id": "i", "reason": "tool_call", "toolCallId": "c", "metadata": kept(payload={"functionName": "rm"})},
        "/payload",
        kind="Interrupt",
    ),
    Case(
        "interrupt-payload",
        {"id": "i", "reason": "which_one", "payload": {"prompt": "Which one?"}},
        {
            "id": "i",
            "reason": "which_one",
            "message": "Which one?",
            "metadata": kept(payload={"prompt": "Which one?"}),
        },
        "/payload",
        kind="Interrupt",
    ),
    # row 9: resume
    Case(
        "single-resume-object",
        {**INPUT, "resume": {"interruptId": "i", "status": "cancelled"}},
        {**INPUT, "resume": [{"interruptId": "i", "status": "cancelled"}]},
        "/resume",
        kind="RunAgentInput",
    ),
    Case(
        "single-resume-object",
        {**INPUT, "resume": {"interrupts": [{"interruptId": "i", "status": "cancelled"}]}},
        {**INPUT, "resume": [{"interruptId": "i", "status": "cancelled"}]},
        "/resume",
        kind="RunAgentInput",
    ),
    Case(
        "resume-aliases",
        {"id": "i", "status": "resolved", "value": False},
        {"interruptId": "i", "status": "resolved", "payload": False},
        "/id",
        kind="ResumeEntry",
    ),
    Case(
        "resume-aliases",
        {"toolCallId": "c", "status": "resolved", "response": "yes"},
        {"interruptId": "c", "status": "resolved", "payload": "yes"},
        "/toolCallId",
        kind="ResumeEntry",
    ),
    Case(
        "resume-status",
        {"interruptId": "i", "payload": {"approved": True}},
        {"interruptId": "i", "payload": {"approved": True}, "status": "resolved"},
        "/status",
        kind="ResumeEntry",
    ),
    # rows 11-13: binary parts
    Case(
        "binary-part",
        part(mimeType="image/png", data="QUJD"),
        media("image", "data", "QUJD", "image/png"),
        "",
        kind="ContentPart",
    ),
    Case(
        "binary-part",
        part(mimeType="audio/wav", url="https://host/a.wav", id="u1", filename="a.wav"),
        media("audio", "url", "https://host/a.wav", "audio/wav", id="u1", metadata={"filename": "a.wav"}),
        "",
        kind="ContentPart",
    ),
    Case(
        "binary-part",
        part(mimeType="video/mp4", id="u2", url=None),
        media("video", "file", "u2", "video/mp4"),
        "",
        kind="ContentPart",
    ),
    Case(
        "binary-part",
        part(mimeType="imagery", data="", url="https://host/x"),
        media("document", "url", "https://host/x", "imagery", metadata=kept(data="")),
        "",
        kind="ContentPart",
    ),
    Case(
        "part-type-case",
        {"type": "Text", "text": "hi"},
        {"type": "text", "text": "hi"},
        "/type",
        kind="ContentPart",
    ),
    # rows 17, 20, 23, 25, 26, 33
    Case(
        "message-id",
        {"role": "user", "content": "hi"},
        {"role": "user", "content": "hi", "id": "legacy-message-1"},
        "/id",
        kind="Message",
    ),
    Case(
        "message-id",
        {**INPUT, "messages": [{"id": "m", "role": "user", "content": "a"}, {"role": "user", "content": "b"}]},
        {
            **INPUT,
            "messages": [
                {"id": "m", "role": "user", "content": "a"},
                {"role": "user", "content": "b", "id": "legacy-message-2"},
            ],
        },
        "/messages/1/id",
        kind="RunAgentInput",
    ),
    Case(
        "custom-value", {"type": "CUSTOM", "name": "beat"}, {"type": "CUSTOM", "name": "beat", "value": None}, "/value"
    ),
    Case(
        "meta-event",
        {"type": "META", "metaType": "tag", "payload": {}},
        {"type": "RAW", "event": {"type": "META", "metaType": "tag", "payload": {}}, "source": "meta"},
        "/type",
    ),
    Case(
        "iso-timestamp",
        {"type": "TEXT_MESSAGE_END", "messageId": "m", "timestamp": "2025-01-02T03:04:05.678Z"},
        {"type": "TEXT_MESSAGE_END", "messageId": "m", "timestamp": 1735787045678},
        "/timestamp",
    ),
    Case(
        "tool-description",
        {**INPUT, "tools": [{"name": "f"}]},
        {**INPUT, "tools": [{"name": "f", "description": ""}]},
        "/tools/0/description",
        kind="RunAgentInput",
    ),
    Case(
        "subagents-alias",
        {"multiAgent": {"subAgents": [{"name": "r"}], "handoffs": True}},
        {"multiAgent": {"subagents": [{"name": "r"}], "handoffs": True}},
        "/multiAgent/subAgents",
        kind="AgentCapabilities",
    ),
    Case(
        "tool-call-type",
        {"id": "a", "role": "assistant", "toolCalls": [{"id": "c", "function": {"name": "f", "arguments": ""}}]},
        {
            "id": "a",
            "role": "assistant",
            "toolCalls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}],
        },
        "/toolCalls/0/type",
        kind="Message",
    ),
    # rows 31, 32: names and nulls
    Case(
        "snake-case",
        {"thread_id": "t", "run_id": "r", "messages": [], "forwarded_props": {"keep_me": 1}},
        {"threadId": "t", "runId": "r", "messages": [], "forwardedProps": {"keep_me": 1}},
        "/thread_id",
        kind="RunAgentInput",
    ),
    Case("null-raw-event", {**UNVERSIONED_RUN_STARTED, "rawEvent": None}, UNVERSIONED_RUN_STARTED, "/rawEvent"),
    Case("null-result", {**run_finished_json(), "result": None}, run_finished_json(), "/result"),
    Case(
        "null-result",
        {"type": "SUBAGENT_FINISHED", "subagentRunId": "s", "result": None},
        {"type": "SUBAGENT_FINISHED", "subagentRunId": "s"},
        "/result",
    ),
    Case("null-outcome", {**run_finished_json(), "outcome": None}, run_finished_json(), "/outcome"),
    Case(
        "null-parent-message-id",
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "f", "parentMessageId": None},
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "f"},
        "/parentMessageId",
    ),
    Case(
        "null-parent-message-id",
        {"type": "TOOL_CALL_CHUNK", "parentMessageId": None},
        {"type": "TOOL_CALL_CHUNK"},
        "/parentMessageId",
    ),
    Case(
        "null-error-code",
        {"type": "RUN_ERROR", "message": "no model", "code": None},
        {"type": "RUN_ERROR", "message": "no model"},
        "/code",
    ),
    Case(
        "null-parent-run-id", {**UNVERSIONED_RUN_STARTED, "parentRunId": None}, UNVERSIONED_RUN_STARTED, "/parentRunId"
    ),
    Case(
        "null-part-metadata",
        media("image", "data", "QUJD", "image/png", metadata=None),
        media("image", "data", "QUJD", "image/png"),
        "/metadata",
        kind="ContentPart",
    ),
    Case("null-forwarded-props", {**INPUT, "forwardedProps": None}, INPUT, "/forwardedProps", kind="RunAgentInput"),
    Case("null-state", {**INPUT, "state": None}, INPUT, "/state", kind="RunAgentInput"),
    Case(
        "null-tool-parameters",
        {
            **UNVERSIONED_RUN_STARTED,
            "input": {**INPUT, "tools": [{"name": "f", "description": "d", "parameters": None}]},
        },
        {**UNVERSIONED_RUN_STARTED, "input": {**INPUT, "tools": [{"name": "f", "description": "d"}]}},
        "/input/tools/0/parameters",
    ),
    Case(
        "null-resume-payload",
        {"interruptId": "i", "status": "cancelled", "payload": None},
        {"interruptId": "i", "status": "cancelled"},
        "/payload",
        kind="ResumeEntry",
    ),
    Case(
        "null-optional",
        {"type": "TEXT_MESSAGE_START", "messageId": "m", "name": None, "metadata": None},
        {"type": "TEXT_MESSAGE_START", "messageId": "m"},
        "/name",
    ),
]

LEVELS = {rule.name: rule.level for rule in RULES}
IDS = [f"{i}-{case.rule}" for i, case in enumerate(CASES)]


def test_every_rule_has_a_case_and_a_name_of_its_own() -> None:
    assert {case.rule for case in CASES} == set(LEVELS)
    assert len(RULES) == len(LEVELS)


def test_the_wide_rules_are_exactly_those_that_soften_a_known_value() -> None:
    wide = {row for rule in RULES if rule.level == "wide" for row in rule.rows}
    assert wide == {20, 25, 31, 32}


def test_every_row_with_a_rule_for_the_decoder_is_implemented() -> None:
    rows = {row for rule in RULES for row in rule.rows}
    assert rows == {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 17, 20, 23, 25, 26, 31, 32, 33, 36}


def test_the_title_of_thinking_is_kept_and_the_notice_names_it() -> None:
    notices: list[Notice] = []
    (event,) = Compat("standard", notices.append).upgrade({"type": "THINKING_START", "title": "Weighing"})
    assert event["metadata"] == kept(title="Weighing")
    assert [(notice.rule, notice.path) for notice in notices] == [
        ("thinking-events", "/type"),
        ("thinking-events", "/title"),
    ]
    assert "title" in notices[1].message


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_rule_translates_its_shape_at_its_level_and_above_and_says_so_once(case: Case) -> None:
    original = copy.deepcopy(case.before)
    levels: list[Level] = ["standard", "wide"] if LEVELS[case.rule] == "standard" else ["wide"]
    for level in levels:
        notices: list[Notice] = []
        compat = Compat(level, notices.append)
        assert case.upgraded(compat) == case.after
        said = [notice for notice in notices if notice.rule == case.rule]
        assert [notice.path for notice in said] == [case.path]
        assert said[0].event_type == (case.before["type"] if case.kind == "Event" else None)
        case.upgraded(compat)
        assert [notice for notice in notices if notice.rule == case.rule] == said
        assert case.before == original


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_below_its_level_a_rule_leaves_its_shape_alone(case: Case) -> None:
    levels: list[Level] = ["off"] if LEVELS[case.rule] == "standard" else ["off", "standard"]
    for level in levels:
        notices: list[Notice] = []
        upgraded = case.upgraded(Compat(level, notices.append))
        assert upgraded is case.before
        assert notices == []
