"""Random runs of a client that keeps the history, and a model of the merge over plain lists."""

from __future__ import annotations

import random

from builders import text_message, user

from aguila.protocol import (
    ActivityMessage,
    ActivitySnapshotEvent,
    AssistantMessage,
    Event,
    FunctionCall,
    Message,
    ReasoningMessage,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    SystemMessage,
    ToolCall,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
    replace,
)


def thought(message_id: str, text: str) -> list[Event]:
    return [
        ReasoningMessageStartEvent(message_id=message_id, role="reasoning"),
        ReasoningMessageContentEvent(message_id=message_id, delta=text),
        ReasoningMessageEndEvent(message_id=message_id),
    ]


def activity_events(message_id: str) -> list[Event]:
    return [ActivitySnapshotEvent(message_id=message_id, activity_type="plan", content={})]


def tool_call_events(call_id: str, result_id: str) -> list[Event]:
    return [
        ToolCallStartEvent(tool_call_id=call_id, tool_call_name="look"),
        ToolCallArgsEvent(tool_call_id=call_id, delta="{}"),
        ToolCallEndEvent(tool_call_id=call_id),
        ToolCallResultEvent(message_id=result_id, tool_call_id=call_id, content="seen"),
    ]


def answer(message_id: str, text: str) -> AssistantMessage:
    return AssistantMessage(id=message_id, content=text)


UNSENT = ("activity", "reasoning")


class Model:
    """The same rules over plain lists, of pairs of a message and the run whose agent made it."""

    def __init__(self) -> None:
        self.ends: dict[str, list[tuple[Message, str | None]]] = {}
        self.results: dict[str, dict[str, Message]] = {}  # on the path to each run, by call

    def keep_results(self, run_id: str | None, sent: list[Message]) -> list[Message]:
        """Put the server's result in the place of a tool message that a client sent for the same call."""
        results = self.results.get(run_id or "", {})
        there = {one.id for one in sent}
        kept: list[Message] = []
        for one in sent:
            result = results.get(one.tool_call_id) if isinstance(one, ToolMessage) else None
            if result is None:
                kept.append(one)
            elif one.id == result.id or result.id not in there:
                kept.append(result)
                there.add(result.id)
        return kept

    def name(
        self, base: list[tuple[Message, str | None]], sent: list[Message], unnamed: set[int], run_id: str
    ) -> list[Message]:
        """Give ids to the messages at these places, which came without: the thread's, for what it begins with."""
        if not unnamed:
            return sent
        left = [held for held, _ in base]
        named = {one.id for at, one in enumerate(sent) if at not in unnamed}
        known: list[Message] = []
        for at, one in enumerate(sent):
            while left and left[0].role in UNSENT and left[0].role != one.role:
                del left[0]
            if not left or replace(one, id=left[0].id) != left[0]:
                break
            if left[0].id in named if at in unnamed else one.id != left[0].id:
                break
            known.append(left.pop(0))
        has_answer = any(one.role == "assistant" for one in known)
        if not has_answer and (left or len(sent) == len(known)):
            known = []  # it may be a coincidence
        return [
            known[at] if at < len(known) else replace(one, id=f"{run_id}-message-{at + 1}") if at in unnamed else one
            for at, one in enumerate(sent)
        ]

    def begin(self, base: list[tuple[Message, str | None]], sent: list[Message]) -> list[tuple[Message, str | None]]:
        by_id = {one.id: one for one in sent}
        shared = [i for i, (held, _) in enumerate(base) if held.role != "system" and held.id in by_id]
        cut = shared[0] if shared else len(base)
        before = [(by_id.get(held.id, held), maker) for held, maker in base[:cut]]
        there = {held.id for held, _ in before}
        makers = {held.id: maker for held, maker in base}
        view = [(one, makers.get(one.id)) for one in sent if one.id not in there]
        staying = there | set(by_id)
        for i in range(cut, len(base)):
            held, maker = base[i]
            if held.id in by_id or held.role not in UNSENT or maker is None:
                continue
            others = [one.id for one, run in base if run == maker and one.role not in UNSENT]
            if not others:
                earlier = [one.id for one, _ in base[cut:i] if one.id in by_id or one.role not in UNSENT]
                others = earlier[-1:]
            if any(one in staying for one in others):
                present = [one.id for one, _ in view]
                last = [one.id for one, _ in base[cut:i] if one.id in present][-1]
                view.insert(present.index(last) + 1, (held, maker))
        return [*before, *view]


class Play:
    """Random runs on one thread, in a store and in the model."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.count = 0

    def new_id(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def sends(self, held: list[Message]) -> list[Message]:
        """Return the messages that a client sends if it holds these."""
        rng = self.rng
        sent = [one for one in held if one.role != "activity"]
        if rng.random() < 0.3:
            sent = [one for one in sent if one.role != "reasoning"]
        match rng.randrange(8):
            case 0:
                sent = []
            case 1 | 2 if sent:
                sent = sent[: rng.randrange(len(sent) + 1)]  # edit and resend, regenerate
            case 3 if sent:
                first = rng.randrange(len(sent))
                sent = [one for one in sent[:first] if one.role == "system"] + sent[first:]  # trimmed
            case 4:
                sent = [one for one in sent if rng.random() < 0.7]
            case 5:
                rng.shuffle(sent)
            case _:
                pass
        edited: list[Message] = []
        for one in sent:
            if rng.random() < 0.1 and isinstance(one.content, str):
                one = replace(one, content=f"{one.content}!")
            if rng.random() < 0.2 and isinstance(one, ToolMessage):  # a front end's own, beside the server's or not
                edited.append(replace(one, id=self.new_id("own"), content="approved"))
                if rng.random() < 0.5:
                    continue
            edited.append(one)
            if rng.random() < 0.05:
                edited.append(user(self.new_id("n"), "yes"))
        if rng.random() < 0.9:
            edited.append(user(self.new_id("u"), "yes"))
        if rng.random() < 0.1:
            edited.insert(0, SystemMessage(id=self.new_id("s"), content="be kind"))
        return edited

    def says(self) -> tuple[list[Event], list[Message]]:
        """Return the output of an agent in a run, as events and as messages."""
        events: list[Event] = []
        made: list[Message] = []
        for _ in range(self.rng.randrange(4)):
            kind = self.rng.choice(["text", "thought", "activity", "call"])
            one = self.new_id(kind)
            match kind:
                case "text":
                    events += text_message(one, "ok")
                    made.append(answer(one, "ok"))
                case "thought":
                    events += thought(one, "hm")
                    made.append(ReasoningMessage(id=one, content="hm"))
                case "activity":
                    events += activity_events(one)
                    made.append(ActivityMessage(id=one, activity_type="plan", content={}))
                case _:
                    result = self.new_id("result")
                    events += tool_call_events(one, result)
                    call = ToolCall(id=one, function=FunctionCall(name="look", arguments="{}"))
                    made += [
                        AssistantMessage(id=one, tool_calls=[call]),
                        ToolMessage(id=result, tool_call_id=one, content="seen"),
                    ]
        return events, made
