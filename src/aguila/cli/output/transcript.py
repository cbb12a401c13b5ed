"""Print the events of a run for ``aguila chat``: text as it arrives, and one line for everything else.

Text of the agent goes to one console, everything else to another, so that a pipe gets only the answer. The agent's
output is not trusted: control characters are printed as escapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET
from rich.console import Console

from aguila.protocol import (
    ActivityDeltaEvent,
    ActivityMessage,
    ActivitySnapshotEvent,
    AssistantMessage,
    CustomEvent,
    Event,
    Message,
    ReasoningMessage,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TextPart,
    ToolCall,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
    UserMessage,
)
from aguila.protocol.messages import parts_of
from aguila.stream.steps import step_details

_WIDTH = 160
"""Characters of a value that are printed."""

# Characters that move the cursor or change the terminal: C0 without tab and line feed, DEL, C1. And those that reorder
# text or break lines invisibly: bidirectional marks, embeddings, overrides and isolates, U+2028 and U+2029.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def escape_controls(text: str) -> str:
    """Return text with its control characters as escapes."""
    return _CONTROL.sub(lambda found: _spelled(ord(found[0])), text)


def _spelled(code: int) -> str:
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def short(value: Any) -> str:
    """Format a value on one line, cut to a maximum length."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = escape_controls(text.replace("\n", " "))
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


class _Waiting(msgspec.Struct):
    owner: str | None
    style: str | None
    pieces: list[str] = []


class Transcript:
    """Prints events. ``answer`` receives the agent's text, ``aside`` everything else."""

    def __init__(self, answer: Console, aside: Console) -> None:
        self._answer = answer
        self._aside = aside
        self.is_empty = True
        """Whether nothing has been written yet."""
        self._turn: str | None = None  # the message that is being printed; while it is open, others wait
        self._growing: str | None = None  # the message of the open line
        self._line_open: Console | None = None
        self._open: set[str] = set()
        self._held: dict[str, _Waiting] = {}  # text that waits until the line is free, by message
        self._calls: dict[str, tuple[str, list[str]]] = {}
        self._subagents: dict[str, str] = {}
        self._known_state: Any = {}  # as last printed; patches are not applied to it
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            TextMessageStartEvent: self._begun,
            TextMessageEndEvent: self._ended,
            ReasoningMessageStartEvent: self._begun,
            ReasoningMessageEndEvent: self._ended,
            TextMessageContentEvent: self._text,
            ReasoningMessageContentEvent: self._thought,
            ToolCallStartEvent: self._call,
            ToolCallArgsEvent: self._arguments,
            ToolCallEndEvent: self._called,
            ToolCallResultEvent: self._answered,
            StateSnapshotEvent: self._state,
            StateDeltaEvent: self._state_changed,
            ActivitySnapshotEvent: self._activity,
            ActivityDeltaEvent: self._activity_changed,
            StepStartedEvent: self._step,
            StepFinishedEvent: self._stepped,
            SubagentStartedEvent: self._subagent,
            SubagentFinishedEvent: self._subagent_ended,
            SubagentErrorEvent: self._subagent_failed,
            CustomEvent: self._custom,
            RunFinishedEvent: self._finished,
        }

    def show(self, event: Event) -> None:
        """Print one event; events that only mark a start or an end print nothing."""
        handler = self._handlers.get(event.__class__)
        if handler is not None:
            handler(event)

    def end(self) -> None:
        """End the open line, if there is one."""
        if self._line_open is not None:
            self._line_open.out("", highlight=False)
        self._line_open = self._growing = None

    def end_run(self) -> None:
        """Print the waiting texts, end the line, and forget the items that the run left open.

        A run that is cancelled, fails or loses its connection may not send the ends of its items. An item that stayed
        open would hold back the text of the next run.
        """
        self._open.clear()
        self._calls.clear()
        self._release()
        self._turn = None

    def line(self, text: str, style: str = "dim") -> None:
        """Print a line of its own beside the answer."""
        self.end()
        self.is_empty = False
        self._aside.out(text, style=style, highlight=False)

    def history(self, messages: list[Message]) -> None:
        """Print earlier messages. The line of the last one stays open: it may still grow."""
        for message in messages:
            if isinstance(message, UserMessage):
                parts = parts_of(message.content)
                said = " ".join(part.text if isinstance(part, TextPart) else f"[{part.type}]" for part in parts)
                self.line(f"> {escape_controls(said)}", style="bold")
            elif isinstance(message, AssistantMessage):
                if message.content:
                    self._grow(message.id, message.content, message.subagent_run_id, None)
                for call in message.tool_calls or ():
                    if isinstance(call, ToolCall):
                        self.line(f"→ {short(call.function.name)} {short(call.function.arguments)}")
            elif isinstance(message, ReasoningMessage):
                self._grow(message.id, message.content, message.subagent_run_id, "dim italic")
            elif isinstance(message, ToolMessage):
                self._result(message.content, message.error)
            elif isinstance(message, ActivityMessage):
                self.line(f"◆ {short(message.activity_type)} {short(message.content)}")

    def _grow(self, message_id: str, text: str, owner: str | None, style: str | None) -> None:
        if self._turn != message_id and self._turn in self._open:
            # Another message is open: parallel text is printed after it, not word by word in between.
            self._held.setdefault(message_id, _Waiting(owner, style)).pieces.append(text)
            return
        self._turn = message_id
        held = self._held.pop(message_id, None)
        self._write(message_id, text if held is None else "".join([*held.pieces, text]), owner, style)

    def _write(self, message_id: str, text: str, owner: str | None, style: str | None) -> None:
        console = self._answer if style is None else self._aside
        if self._growing != message_id:
            self.end()
            self._growing = message_id
            if owner is not None:
                console.out(
                    f"[{escape_controls(self._subagents.get(owner, owner))}] ", style="dim", end="", highlight=False
                )
        self._line_open = console
        self.is_empty = False
        console.out(escape_controls(text), style=style, end="", highlight=False)
        console.file.flush()

    def _begun(self, event: TextMessageStartEvent | ReasoningMessageStartEvent) -> None:
        self._open.add(event.message_id)

    def _ended(self, event: TextMessageEndEvent | ReasoningMessageEndEvent) -> None:
        self._open.discard(event.message_id)
        if self._turn == event.message_id:
            self._release()

    def _release(self) -> None:
        """Print the waiting texts, up to a message that is still open."""
        self.end()
        while self._held:
            message_id = next(iter(self._held))
            held = self._held.pop(message_id)
            self._turn = message_id
            self._write(message_id, "".join(held.pieces), held.owner, held.style)
            if message_id in self._open:
                return
            self.end()

    def _text(self, event: TextMessageContentEvent) -> None:
        self._grow(event.message_id, event.delta, event.subagent_run_id, None)

    def _thought(self, event: ReasoningMessageContentEvent) -> None:
        self._grow(event.message_id, event.delta, event.subagent_run_id, "dim italic")

    def _call(self, event: ToolCallStartEvent) -> None:
        self._calls[event.tool_call_id] = (event.tool_call_name, [])

    def _arguments(self, event: ToolCallArgsEvent) -> None:
        if event.tool_call_id in self._calls:
            self._calls[event.tool_call_id][1].append(event.delta)

    def _called(self, event: ToolCallEndEvent) -> None:
        name, pieces = self._calls.pop(event.tool_call_id, ("", []))
        self.line(f"→ {short(name)} {short(''.join(pieces))}", style="cyan")

    def _answered(self, event: ToolCallResultEvent) -> None:
        self._result(event.content, None)

    def _result(self, content: Any, error: str | None) -> None:
        parts = parts_of(content)
        text = " ".join(part.text if isinstance(part, TextPart) else f"[{part.type}]" for part in parts)
        self.line(f"← {short(text)}" if error is None else f"← failed: {short(error)}", style="cyan")

    def _state(self, event: StateSnapshotEvent) -> None:
        if event.snapshot != self._known_state:  # joining a run sends the state, which is mostly empty
            self.line(f"state {short(event.snapshot)}")
        self._known_state = event.snapshot

    def _state_changed(self, event: StateDeltaEvent) -> None:
        self._known_state = UNSET
        self._operations("state", event.delta)

    def _activity(self, event: ActivitySnapshotEvent) -> None:
        self.line(f"◆ {short(event.activity_type)} {short(event.content)}", style="magenta")

    def _activity_changed(self, event: ActivityDeltaEvent) -> None:
        self._operations(f"◆ {short(event.activity_type)}", event.patch)

    def _operations(self, what: str, patch: Any) -> None:
        for operation in patch:
            kind, path = operation["op"], short(operation["path"])
            if kind in ("add", "replace"):
                self.line(f"{what} {path} = {short(operation['value'])}")
            elif kind == "remove":
                self.line(f"{what} {path} removed")
            elif kind in ("move", "copy"):
                self.line(f"{what} {path} {'moved' if kind == 'move' else 'copied'} from {short(operation['from'])}")

    def _step(self, event: StepStartedEvent) -> None:
        self.line(f"• {short(event.step_name)}")

    def _stepped(self, event: StepFinishedEvent) -> None:
        status = step_details(event).status
        self.line(f"• {short(event.step_name)} {'done' if status in (None, 'completed') else short(status)}")

    def _subagent(self, event: SubagentStartedEvent) -> None:
        self._subagents[event.subagent_run_id] = event.name
        self.line(f"• [{short(event.name)}] begins")

    def _subagent_ended(self, event: SubagentFinishedEvent) -> None:
        self.line(f"• [{short(self._subagents.get(event.subagent_run_id, event.subagent_run_id))}] is done")

    def _subagent_failed(self, event: SubagentErrorEvent) -> None:
        name = self._subagents.get(event.subagent_run_id, event.subagent_run_id)
        self.line(f"• [{short(name)}] failed: {short(event.message)}", style="red")

    def _custom(self, event: CustomEvent) -> None:
        self.line(f"{short(event.name)} {short(event.value)}")

    def _finished(self, event: RunFinishedEvent) -> None:
        self.end_run()
        if isinstance(event.outcome, RunFinishedCancelledOutcome):
            self.line("cancelled", style="yellow")
        if event.result is not None:
            self.line(f"= {short(event.result)}")
