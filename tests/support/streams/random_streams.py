"""Random valid streams, from a seed or as a hypothesis strategy.

``random_stream(rng, size)`` writes a stream that a consumer must accept: all 31 event types, chunks in several lanes,
subagents announced and not, several runs and branches, every outcome, snapshots, patches that fail, metadata, items
that a snapshot drops while they are open, items opened again. Every id has one owner throughout a stream, so that
attribution is always right. ``collisions=True`` also lets things of different kinds share ids, which is legal and
rarely meant; ``surrogates=True`` cuts emojis in half. Streams need not end: the last run may be cut off.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any

from hypothesis import strategies as st

from aguila.protocol import (
    ActivityDeltaEvent,
    ActivityMessage,
    ActivitySnapshotEvent,
    AssistantMessage,
    CustomEvent,
    DeveloperMessage,
    Event,
    FunctionCall,
    Interrupt,
    Message,
    MessagesSnapshotEvent,
    RawEvent,
    ReasoningEncryptedValueEvent,
    ReasoningEndEvent,
    ReasoningMessage,
    ReasoningMessageChunkEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentFinishedSuccessOutcome,
    SubagentFinishedSuspendedOutcome,
    SubagentStartedEvent,
    SystemMessage,
    TextMessageChunkEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TextPart,
    TokenUsage,
    ToolCall,
    ToolCallArgsEvent,
    ToolCallChunkEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
    UserMessage,
)

TAGS = (None, None, "sub-1", "sub-2", "")
WORDS = ("Hello", " ", "wörld", "", "\n", "{", '"a": 1', "}", "日本", "🙂", "x" * 30)
HALVES = ("\ud83d", "\ude42", "a\ud83d", "\ude42b")
KEYS = ("a", "b", "c~", "d/e", "list")
EXPLICIT = {
    "text": (TextMessageStartEvent, TextMessageContentEvent, TextMessageEndEvent, TextMessageChunkEvent),
    "reasoning": (
        ReasoningMessageStartEvent,
        ReasoningMessageContentEvent,
        ReasoningMessageEndEvent,
        ReasoningMessageChunkEvent,
    ),
    "call": (ToolCallStartEvent, ToolCallArgsEvent, ToolCallEndEvent, ToolCallChunkEvent),
}


def random_stream(
    rng: random.Random,
    size: int = 60,
    *,
    collisions: bool = True,
    surrogates: bool = True,
    without: Collection[str] = (),
) -> list[Event]:
    """Return a valid stream of about ``size`` events, the same for the same ``rng``.

    ``without`` leaves things out: ``"failures"`` (RUN_ERROR), or any method of ``_Scribe.step_forward`` by its name,
    such as ``"messages_snapshot"``.
    """
    return _Scribe(rng, size, collisions=collisions, surrogates=surrogates, without=without).write()


def streams(max_size: int = 80, **options: Any) -> st.SearchStrategy[list[Event]]:
    """Random valid streams, with the options of ``random_stream``. Shrinks in size; each is rebuilt from a seed."""
    return st.builds(
        lambda seed, size: random_stream(random.Random(seed), size, **options),
        st.integers(0, 2**32 - 1),
        st.integers(1, max_size),
    )


class _Scribe:
    def __init__(
        self, rng: random.Random, size: int, *, collisions: bool, surrogates: bool, without: Collection[str]
    ) -> None:
        self.rng = rng
        self.size = size
        self.collisions = collisions
        self.without = without
        self.words = WORDS + HALVES if surrogates else WORDS
        self.events: list[Event] = []
        self.owners: dict[str, str | None] = {}
        self.run_ids: list[str] = []
        self.clock = 1_700_000_000_000
        self.fresh = 0
        self.in_run = False
        self._new_run()

    def _new_run(self) -> None:
        self.open: dict[tuple[str, str], dict[str, Any]] = {}  # kind and id -> the opener's fields
        self.lanes: dict[str | None, tuple[str, str]] = {}
        self.spans: set[str] = set()
        self.steps: set[tuple[str | None, str]] = set()
        self.active: set[str] = set()
        self.seen_subagents: set[str] = set()

    def write(self) -> list[Event]:
        rng = self.rng
        if rng.random() < 0.03 and "failures" not in self.without:
            self.emit(RunErrorEvent(message="refused", code="E_FIRST"))
        while len(self.events) < self.size:
            if not self.in_run:
                self.start_run()
            elif rng.random() < 1.5 / max(self.size / rng.choice((1, 2, 4)), 4):
                self.end_run()
            else:
                self.step_forward()
        if self.in_run and rng.random() < 0.85:
            self.end_run()
        return self.events

    # pieces

    def emit(self, event: Any) -> None:
        self.events.append(event)

    def common(self, metadata: float = 0.2) -> dict[str, Any]:
        rng = self.rng
        fields: dict[str, Any] = {}
        if rng.random() < 0.3:
            self.clock += rng.randrange(50)
            fields["timestamp"] = self.clock
        if rng.random() < 0.1:
            fields["raw_event"] = rng.choice(({"provider": "x"}, "raw", 0, False, [1]))
        if rng.random() < metadata:
            fields["metadata"] = self.metadata()
        return fields

    def metadata(self) -> dict[str, Any]:
        rng = self.rng
        return {rng.choice(KEYS): self.value(1) for _ in range(rng.randrange(3))}

    def value(self, depth: int = 2) -> Any:
        rng = self.rng
        kind = rng.randrange(8 if depth else 6)
        if kind == 6:
            return {rng.choice(KEYS): self.value(depth - 1) for _ in range(rng.randrange(3))}
        if kind == 7:
            return [self.value(depth - 1) for _ in range(rng.randrange(3))]
        return (None, True, False, rng.randrange(-3, 100), 1.5, "text")[kind]

    def delta(self) -> str:
        return self.rng.choice(self.words)

    def id(self, pool: str) -> str:
        """Return an id of the pool, often one used before; with collisions sometimes one that every pool has."""
        rng = self.rng
        if self.collisions and rng.random() < 0.12:
            chosen = f"shared-{rng.randrange(2)}"
        elif rng.random() < 0.5:
            self.fresh += 1
            chosen = f"{pool}-new-{self.fresh}"
        else:
            chosen = f"{pool}-{rng.randrange(4)}"
        self.owner(chosen)
        return chosen

    def owner(self, id: str) -> str | None:
        return self.owners.setdefault(id, self.rng.choice(TAGS))

    def tag(self, id: str, *, opener: bool = False) -> dict[str, Any]:
        """Return the owner of an id, which a continuation may leave out (SUB-9)."""
        if not opener and self.rng.random() < 0.2:
            return {}
        owner = self.owner(id)
        return {} if owner is None else {"subagent_run_id": owner}

    def any_tag(self) -> dict[str, Any]:
        tag = self.rng.choice(TAGS)
        return {} if tag is None else {"subagent_run_id": tag}

    def patch(self) -> list[dict[str, Any]]:
        rng = self.rng
        operations: list[dict[str, Any]] = []
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
            key = rng.choice(("/a", "/b", "/c~0", "/d~1e", "/list", "/list/-", "/list/0", "/a/b", "/missing/x", ""))
            op = rng.choice(("add", "add", "add", "replace", "remove", "test", "move", "copy"))
            if key == "" and op in ("add", "replace", "remove"):
                operations.append({"op": "replace", "path": "", "value": {"list": [], "a": self.value()}})
            elif op in ("add", "replace", "test"):
                operations.append({"op": op, "path": key, "value": self.value(), **self.rng.choice(({}, {"by": "us"}))})
            elif op == "remove":
                operations.append({"op": op, "path": key})
            else:
                operations.append({"op": op, "from": rng.choice(("/a", "/b", "/list")), "path": key})
        return operations

    def messages(self, limit: int = 5) -> list[Message]:
        pools = ("text", "text", "reasoning", "activity", "answer", "call" if self.collisions else "text")
        ids = [self.id(self.rng.choice(pools)) for _ in range(limit)]
        count = self.rng.randrange(limit + 1)
        if not (self.collisions and self.rng.random() < 0.2):
            ids = list(dict.fromkeys(ids))
        return [self.message(id) for id in ids[:count]]

    def message(self, id: str) -> Message:
        rng = self.rng
        owner = self.owner(id)
        base: dict[str, Any] = {"id": id} if owner is None else {"id": id, "subagent_run_id": owner}
        if rng.random() < 0.2:
            base["metadata"] = self.metadata()
        pool = id.partition("-")[0]
        if pool == "activity":
            return ActivityMessage(activity_type="plan", content={"list": [], "n": 1}, **base)
        if rng.random() < 0.2:
            base["encrypted_value"] = "sealed"
            if rng.random() < 0.5:
                base["encrypted_value_type"] = "vendor.x"
        if pool == "reasoning":
            return ReasoningMessage(content=self.delta(), **base)
        if pool == "answer":
            return ToolMessage(content=self.content(), tool_call_id=self.call_of(owner), **base)
        role = rng.randrange(6)
        if role == 0:
            return UserMessage(content=self.content(), **base)
        if role == 1:
            return SystemMessage(content=self.delta(), **base)
        if role == 2:
            return DeveloperMessage(content=self.delta(), name="dev", **base)
        if rng.random() < 0.4:
            calls = dict.fromkeys(self.call_of(owner) for _ in range(rng.randrange(1, 3)))
            base["tool_calls"] = [ToolCall(id=c, function=FunctionCall(name="search", arguments="{")) for c in calls]
        return AssistantMessage(content=rng.choice((None, self.delta())), **base)

    def call_of(self, owner: str | None) -> str:
        """Return a call that this owner may make."""
        call_id = self.id("call")
        if self.owner(call_id) == owner:
            return call_id
        call_id = f"call-of-{owner!r}"
        self.owners[call_id] = owner
        return call_id

    def content(self) -> Any:
        return (
            self.delta()
            if self.rng.random() < 0.6
            else [TextPart(text=self.delta(), **self.rng.choice(({}, {"id": "p"})))]
        )

    def usage(self) -> dict[str, Any]:
        rng = self.rng
        if rng.random() < 0.5:
            return {}
        return {
            "usage": [
                TokenUsage(
                    model=rng.choice((None, "big", "small")), input_tokens=rng.choice((None, 0, 7)), output_tokens=3
                )
                for _ in range(rng.randrange(3))
            ]
        }

    # runs

    def start_run(self) -> None:
        rng = self.rng
        run_id = f"run-{len(self.run_ids)}"
        fields: dict[str, Any] = {}
        if self.run_ids and rng.random() < 0.3:
            fields["parent_run_id"] = rng.choice([*self.run_ids, self.run_ids[-1]])
        if rng.random() < 0.5:
            fields["input"] = RunAgentInput(thread_id="thread", run_id=run_id, messages=self.messages(), tools=[])
        self.run_ids.append(run_id)
        self._new_run()
        self.in_run = True
        self.emit(RunStartedEvent(thread_id="thread", run_id=run_id, protocol_version="1.1", **fields, **self.common()))

    def end_run(self) -> None:
        rng = self.rng
        self.in_run = False
        if rng.random() < 0.15 and "failures" not in self.without:
            self.emit(RunErrorEvent(message="broke", **self.usage(), **self.common()))
            return
        closers = [self.close_item, self.close_span, self.close_step, self.close_subagent]
        while any(key not in self.lanes.values() for key in self.open) or self.spans or self.steps or self.active:
            rng.choice(closers)()
        fields: dict[str, Any] = rng.choice(
            (
                {},
                {"result": {"ok": True}},
                {"outcome": RunFinishedSuccessOutcome()},
                {"outcome": RunFinishedSuccessOutcome(pending_tool_call_ids=[])},
                {"outcome": RunFinishedSuccessOutcome(pending_tool_call_ids=["call-0", "call-1"])},
                {"outcome": RunFinishedInterruptOutcome(interrupts=[Interrupt(id="i-1", reason="confirm")])},
                {"outcome": RunFinishedCancelledOutcome()},
            )
        )
        self.emit(
            RunFinishedEvent(thread_id="thread", run_id=self.run_ids[-1], **fields, **self.usage(), **self.common())
        )
        if rng.random() < 0.1 and "failures" not in self.without:
            self.emit(RunErrorEvent(message="too late", **self.usage()))

    # inside a run

    def step_forward(self) -> None:
        rng = self.rng
        choices = (
            (10, self.open_item),
            (30, self.grow_item),
            (8, self.close_item),
            (14, self.chunk),
            (6, self.answer),
            (2, self.open_span),
            (2, self.close_span),
            (2, self.open_step),
            (2, self.close_step),
            (2, self.open_subagent),
            (2, self.close_subagent),
            (3, self.encrypted_value),
            (3, self.state_snapshot),
            (8, self.state_delta),
            (2, self.messages_snapshot),
            (4, self.activity_snapshot),
            (5, self.activity_delta),
            (2, self.passthrough),
        )
        choices = [(weight, step) for weight, step in choices if step.__name__ not in self.without]
        rng.choices([step for _, step in choices], [weight for weight, _ in choices])[0]()

    def in_lane(self, event: Any) -> None:
        """Emit an event that ends the chunked item of its lane (CHK-7)."""
        item = self.lanes.pop(event.subagent_run_id, None)
        if item is not None:
            del self.open[item]
        self.emit(event)

    def opener_fields(self, kind: str, id: str) -> dict[str, Any]:
        rng = self.rng
        if kind == "text":
            fields = rng.choice(({}, {"role": "assistant"}, {"role": "user"}, {"role": "system", "name": "n"}))
            return dict(fields)
        if kind == "call":
            fields = {"tool_call_name": rng.choice(("search", "search", "lookup"))}
            parent = self.id(rng.choice(("text", "text", "parent")))
            if rng.random() < 0.6 and self.owner(parent) == self.owner(id):
                fields["parent_message_id"] = parent
            return fields
        return {}

    def key(self, kind: str, id: str) -> dict[str, str]:
        return {"tool_call_id" if kind == "call" else "message_id": id}

    def open_item(self) -> None:
        kind = self.rng.choice(("text", "text", "call", "reasoning"))
        id = self.id(kind)
        if (kind, id) in self.open:
            return
        fields = self.opener_fields(kind, id)
        event = EXPLICIT[kind][0](**self.key(kind, id), **fields, **self.tag(id, opener=True), **self.common())
        self.in_lane(event)
        self.open[kind, id] = fields

    def explicit_items(self) -> list[tuple[str, str]]:
        chunked = set(self.lanes.values())
        return [key for key in self.open if key not in chunked]

    def grow_item(self) -> None:
        items = self.explicit_items()
        if items:
            kind, id = self.rng.choice(items)
            event = EXPLICIT[kind][1](**self.key(kind, id), delta=self.delta(), **self.tag(id), **self.common(0.1))
            self.in_lane(event)

    def close_item(self) -> None:
        items = self.explicit_items()
        if items:
            kind, id = self.rng.choice(items)
            del self.open[kind, id]
            self.in_lane(EXPLICIT[kind][2](**self.key(kind, id), **self.tag(id), **self.common()))

    def chunk(self) -> None:
        rng = self.rng
        if self.lanes and rng.random() < 0.7:
            lane = rng.choice(list(self.lanes))
            kind, id = self.lanes[lane]
            fields = self.key(kind, id) if rng.random() < 0.5 else {}
            if rng.random() < 0.2:
                fields |= self.open[kind, id]
            named = bool(fields.keys() & {"message_id", "tool_call_id"})  # then the tag may be left out (CHK-8)
            tag = {} if lane is None or (named and rng.random() < 0.3) else {"subagent_run_id": lane}
        else:
            kind = rng.choice(("text", "text", "call", "reasoning"))
            id = self.id(kind)
            if (kind, id) in self.open:
                return
            lane = self.owner(id)
            closed = self.lanes.pop(lane, None)
            if closed is not None:
                del self.open[closed]
            fields = self.opener_fields(kind, id)
            self.open[kind, id] = fields
            self.lanes[lane] = (kind, id)
            fields = {**self.key(kind, id), **fields}
            tag = self.tag(id, opener=True)
        if rng.random() < 0.85:
            fields = {**fields, "delta": self.delta()}
        self.emit(EXPLICIT[kind][3](**fields, **tag, **self.common()))

    def answer(self) -> None:
        message_id = self.id("answer")
        if not self.collisions:  # delivered once
            self.fresh += 1
            message_id = f"answer-new-{self.fresh}"
        event = ToolCallResultEvent(
            message_id=message_id,
            tool_call_id=self.id("call"),
            content=self.content(),
            **self.tag(message_id, opener=True),
            **self.common(),
        )
        self.in_lane(event)

    def open_span(self) -> None:
        id = self.id("reasoning")
        if id not in self.spans:
            self.spans.add(id)
            self.in_lane(ReasoningStartEvent(message_id=id, **self.tag(id, opener=True), **self.common()))

    def close_span(self) -> None:
        if self.spans:
            id = self.rng.choice(sorted(self.spans))
            self.spans.remove(id)
            self.in_lane(ReasoningEndEvent(message_id=id, **self.tag(id), **self.common()))

    def open_step(self) -> None:
        tag, name = self.rng.choice(TAGS), self.rng.choice(("plan", "act"))
        if (tag, name) not in self.steps:
            self.steps.add((tag, name))
            self.in_lane(StepStartedEvent(step_name=name, subagent_run_id=tag, **self.common()))

    def close_step(self) -> None:
        if self.steps:
            tag, name = self.rng.choice(sorted(self.steps, key=repr))
            self.steps.remove((tag, name))
            self.in_lane(StepFinishedEvent(step_name=name, subagent_run_id=tag, **self.common()))

    def open_subagent(self) -> None:
        rng = self.rng
        id = rng.choice(("sub-1", "sub-2", "", "sub-9"))
        if id in self.seen_subagents:
            return
        fields: dict[str, Any] = {}
        if self.seen_subagents and rng.random() < 0.3:
            fields["parent_subagent_run_id"] = rng.choice(sorted(self.seen_subagents))
        self.seen_subagents.add(id)
        self.active.add(id)
        self.emit(SubagentStartedEvent(subagent_run_id=id, name="helper", **fields, **self.common()))

    def close_subagent(self) -> None:
        if not self.active:
            return
        rng = self.rng
        id = rng.choice(sorted(self.active))
        self.active.remove(id)
        item = self.lanes.pop(id, None)
        if item is not None:
            del self.open[item]
        if rng.random() < 0.3:
            self.emit(SubagentErrorEvent(subagent_run_id=id, message="gave up", **self.common()))
            return
        outcome = rng.choice(
            (None, SubagentFinishedSuccessOutcome(), SubagentFinishedSuspendedOutcome(interrupt_ids=["i-1"]))
        )
        self.emit(SubagentFinishedEvent(subagent_run_id=id, outcome=outcome, **self.common()))

    def encrypted_value(self) -> None:
        subtype = self.rng.choice(("message", "tool-call"))
        id = self.id(self.rng.choice(("text", "reasoning", "activity")) if subtype == "message" else "call")
        self.emit(
            ReasoningEncryptedValueEvent(
                subtype=subtype,  # type: ignore[arg-type]
                entity_id=id,
                encrypted_value=f"sealed-{self.rng.randrange(9)}",
                encrypted_value_type=self.rng.choice((None, "vendor.x")),
                **self.common(),
            )
        )

    def state_snapshot(self) -> None:
        snapshot = {"list": [1], "a": self.value()} if self.rng.random() < 0.7 else self.value()
        self.in_lane(StateSnapshotEvent(snapshot=snapshot, **self.any_tag(), **self.common()))

    def state_delta(self) -> None:
        self.in_lane(StateDeltaEvent(delta=self.patch(), **self.any_tag(), **self.common()))

    def messages_snapshot(self) -> None:
        common = self.common()
        if self.rng.random() < 0.2:
            scope = self.rng.choice((None, [], ["plan"], ["other"], 5))
            common["metadata"] = {"@ag-ui/client": {"authoritativeActivityTypes": scope}}
        for item in self.lanes.values():
            del self.open[item]
        self.lanes.clear()
        self.emit(MessagesSnapshotEvent(messages=self.messages(7), **common))

    def activity_snapshot(self) -> None:
        # Any owner will do, as activity deltas are left untagged: each snapshot owns the activity anew (ACT-5).
        content: dict[str, Any] = {"list": [], "a": self.value()}
        self.emit(
            ActivitySnapshotEvent(
                message_id=self.id("activity"),
                activity_type=self.rng.choice(("plan", "other")),
                content=content,
                replace=self.rng.choice((None, None, True, False)),
                **self.any_tag(),
                **self.common(),
            )
        )

    def activity_delta(self) -> None:
        self.emit(
            ActivityDeltaEvent(
                message_id=self.id("activity"),
                activity_type=self.rng.choice(("plan", "other")),
                patch=self.patch(),
                **self.common(),
            )
        )

    def passthrough(self) -> None:
        if self.rng.random() < 0.5:
            self.emit(RawEvent(event=self.value(), source="other", **self.any_tag(), **self.common()))
        else:
            self.in_lane(CustomEvent(name="vendor.thing", value=self.value(), **self.any_tag(), **self.common()))
