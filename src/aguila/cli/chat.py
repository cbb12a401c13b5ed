"""``aguila chat``: chat with any AG-UI agent, in a terminal or through a pipe.

In a terminal it prompts for messages and for answers to questions. In a pipe, standard input is the one message.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.console import Console

from aguila.cli.edited_arguments import edit_arguments, load_readline
from aguila.cli.http_caller import CannotRun, headers_of
from aguila.cli.output.transcript import Transcript, escape_controls, short
from aguila.cli.record import refuse_existing
from aguila.client import GIVE_UP, Client, ClientRun, Record, Thread, approve, deny, part
from aguila.codec.json.bounded_floats import decode_json
from aguila.codec.json.values import is_array, is_object
from aguila.codec.notices import Notice
from aguila.errors import AguilaError, HTTPRejected, IllegalStep, TransportFailed
from aguila.protocol import AssistantMessage, Interrupt, MessagesSnapshotEvent, ToolCall
from aguila.protocol.parts import MediaPart

OK: Final = 0
FAILED: Final = 1
UNREACHABLE: Final = 2
ASKED: Final = 3
"""Exit status in a pipe: the agent asks a question, and there is no terminal to answer it."""

_HELP = """/file PATH  attach a file to the next message
/state      show the state shared with the agent
/thread     show the id of this thread; aguila chat URL --thread ID opens it again
/quit       exit, as Ctrl-D does; Ctrl-C cancels the run
//text      send a message that begins with a slash: /text
Anything else is sent to the agent."""


def chat(
    url: str,
    *,
    message: str | None,
    thread_id: str | None,
    attach: str | None,
    headers: Sequence[str],
    protobuf: bool,
    recording: Path | None,
    append: bool,
    force: bool,
    color: bool,
) -> int:
    """Chat until the user leaves, or once in a pipe. Return the exit status."""
    # None leaves the choice to the terminal and NO_COLOR.
    no_color = None if color else True
    answer = Console(no_color=no_color, soft_wrap=True, highlight=False)
    aside = answer if answer.is_terminal else Console(stderr=True, no_color=no_color, soft_wrap=True, highlight=False)
    transcript = Transcript(answer, aside)

    def warn(notice: Notice) -> None:
        transcript.line(f"! {escape_controls(str(notice))}", style="yellow")

    middleware = [] if recording is None else [_record(recording, append=append, force=force)]
    with Client(url, headers=headers_of(headers), protobuf=protobuf, middleware=middleware, warn=warn) as client:
        thread = client.thread(attach if attach is not None else thread_id)
        conversation = _Conversation(thread, transcript)
        status = OK
        if attach is not None:
            status = conversation.attach()
            if status == OK and transcript.is_empty:
                conversation.report_missing()
                return UNREACHABLE  # also in a terminal: a message would create the thread
        elif thread_id is not None:
            conversation.recall(is_shown=answer.is_terminal)
        if message is not None:
            return conversation.say(message)
        if not sys.stdin.isatty():
            if attach is not None:
                return status
            text = sys.stdin.read().strip()
            if not text:
                raise CannotRun("there is nothing to send: standard input is empty, and there is no --message")
            return conversation.say(text)
        return conversation.converse()


def _record(path: Path, *, append: bool, force: bool) -> Record:
    refuse_existing(path, "jsonl", append=append, force=force)
    try:
        return Record(path, existing="replace" if force else "append")
    except ValueError as error:
        raise CannotRun(str(error)) from None


class _Conversation:
    """One conversation and its transcript."""

    def __init__(self, thread: Thread, transcript: Transcript) -> None:
        self._thread = thread
        self._transcript = transcript
        self._is_interactive = sys.stdin.isatty()
        self._attached: list[MediaPart] = []

    def converse(self) -> int:
        """Read messages from the terminal until the user leaves."""
        load_readline()
        self._transcript.line(f"thread {self._thread.id}; /help lists the commands")
        if self._thread.interrupts:
            self._settle()
        while True:
            try:
                text = input("> ").strip()
            except (EOFError, KeyboardInterrupt):
                self._transcript.line("")
                return OK
            if text in ("/quit", "/exit"):
                return OK
            if text.startswith("/") and not text.startswith("//"):
                self._command(text)
            elif text:
                self.say(text.removeprefix("/"))

    def _command(self, text: str) -> None:
        """Run a slash command. A misspelled one is reported, not sent to the agent."""
        command, _, argument = text.partition(" ")
        if text == "/help":
            self._transcript.line(_HELP)
        elif command == "/file":
            self._attach_file(argument.strip())
        elif text == "/state":
            self._transcript.line(escape_controls(msgspec.json.encode(self._thread.state).decode()))
        elif text == "/thread":
            self._transcript.line(self._thread.id)
        else:
            shown = escape_controls(text)
            problem = f"unknown command {shown}; /help lists the commands, /{shown} sends it as text"
            self._transcript.line(problem, style="yellow")

    def _attach_file(self, path: str) -> None:
        """Keep a file for the next message. It is sent inline, which every agent can read."""
        if not path:
            self._transcript.line("give the path of a file: /file PATH", style="yellow")
            return
        try:
            self._attached.append(part(Path(path).expanduser()))
        except OSError as error:
            self._transcript.line(f"cannot read {escape_controls(path)}: {error.strerror}", style="red")
        else:
            self._transcript.line(f"{escape_controls(path)} is sent with the next message")

    def say(self, text: str) -> int:
        """Send a message, show the answer, and ask for the answers to any questions. Return the exit status.

        An open question has to be answered first: it is shown again, and the message is not sent.
        """
        if self._thread.interrupts:
            self._transcript.line("not sent: the agent waits for an answer to its question", style="yellow")
            return self._settle()
        try:
            status = self.follow(self._thread.run([text, *self._attached] if self._attached else text))
        except IllegalStep as error:
            self._transcript.line(f"error: {escape_controls(str(error))}", style="red")
            return FAILED
        if status != UNREACHABLE:
            self._attached = []
        return self._settle() if status == OK and self._thread.interrupts else status

    def attach(self) -> int:
        """Join the run in progress, or show the thread. Return the exit status."""
        return self.follow(self._thread.attach())

    def report_missing(self) -> None:
        """Report that the thread does not exist. The server answers for such a thread as for an empty one."""
        problem = f"thread {escape_controls(self._thread.id)!r} does not exist on this server, or is empty"
        self._transcript.line(f"error: {problem}", style="red")

    def recall(self, *, is_shown: bool) -> None:
        """Load the thread if the server stores it. Print its messages in a terminal; a pipe gets answers only."""
        try:
            self._thread.refresh()
        except HTTPRejected as error:
            if error.status != 404:
                self._transcript.line(f"cannot look up the thread: {escape_controls(str(error))}", style="yellow")
        except AguilaError as error:
            self._transcript.line(f"cannot look up the thread: {escape_controls(str(error))}", style="yellow")
        else:
            if is_shown:
                self._transcript.history(self._thread.messages)
                self._transcript.end()

    def follow(self, run: ClientRun) -> int:
        """Print the events of a run. Return the exit status."""
        try:
            self._show_events(run)
        except KeyboardInterrupt:
            self._cancel()
            return FAILED
        except IllegalStep:
            raise
        except (TransportFailed, HTTPRejected) as error:
            self._transcript.line(f"error: {escape_controls(str(error))}", style="red")
            return UNREACHABLE
        except AguilaError as error:
            self._transcript.line(f"error: {escape_controls(str(error))}", style="red")
            return FAILED
        return OK

    def _show_events(self, run: ClientRun) -> None:
        known = {message.id for message in self._thread.messages}
        try:
            with run:
                for event in run:
                    if isinstance(event, MessagesSnapshotEvent):
                        self._transcript.history([one for one in event.messages if one.id not in known])
                        known |= {one.id for one in event.messages}
                    self._transcript.show(event)
        finally:
            self._transcript.end_run()

    def _cancel(self) -> None:
        try:
            was_on = self._thread.cancel()
        except AguilaError as error:
            self._transcript.line(
                f"disconnected; the run could not be cancelled: {escape_controls(str(error))}", style="yellow"
            )
        else:
            self._transcript.line("cancelled" if was_on else "the run had already ended", style="yellow")

    def _settle(self) -> int:
        """Prompt for answers as long as questions are open. Return the exit status."""
        while self._thread.interrupts:
            if not self._is_interactive:
                for interrupt in self._thread.interrupts:
                    self._transcript.line(f"? {_question(interrupt)}", style="bold yellow")
                self._transcript.line(f"answer in a terminal with --thread {self._thread.id}")
                return ASKED
            try:
                answers = {interrupt.id: self._ask(interrupt) for interrupt in self._thread.interrupts}
            except (EOFError, KeyboardInterrupt):
                self._transcript.line("\nthe question stays open", style="yellow")
                return FAILED
            try:
                status = self.follow(self._thread.resume(answers))
            except IllegalStep as error:
                self._transcript.line(escape_controls(str(error)), style="red")
                continue
            if status != OK:
                return status
        return OK

    def _ask(self, interrupt: Interrupt) -> Any:
        self._transcript.line(f"? {_question(interrupt)}", style="bold yellow")
        if interrupt.reason == "tool_call":
            return self._approval(interrupt)
        self._transcript.line("  an empty line cancels the question")
        return ask_for(interrupt.response_schema, "  ", input)

    def _approval(self, interrupt: Interrupt) -> Any:
        arguments = self._arguments(interrupt.tool_call_id)
        while True:
            chosen = input("  [y]es, [n]o, [e]dit the arguments, [g]ive up: ").strip().lower()
            if chosen in ("y", "yes"):
                return approve()
            if chosen in ("n", "no"):
                reason = input("  why not (may be empty): ").strip()
                return deny(reason or None)
            if chosen in ("g", "give up"):
                return GIVE_UP
            if chosen in ("e", "edit"):
                return approve(edit_arguments(arguments, self._complain))
            self._complain(f"  {escape_controls(chosen)!r} is not an answer; type y, n, e or g")

    def _complain(self, problem: str) -> None:
        self._transcript.line(problem, style="red")

    def _arguments(self, call_id: str | None) -> str:
        for message in reversed(self._thread.messages):
            if isinstance(message, AssistantMessage):
                for call in message.tool_calls or ():
                    if isinstance(call, ToolCall) and call.id == call_id:
                        return call.function.arguments
        return "{}"


def _question(interrupt: Interrupt) -> str:
    return short(interrupt.reason if interrupt.message is None else interrupt.message)


def ask_for(schema: Any, indent: str, read: Callable[[str], str]) -> Any:
    """Prompt for a value of a JSON Schema: member by member for a flat object, else as JSON or text.

    An empty answer is ``GIVE_UP``. The client checks the value against the schema.
    """
    members: Any = schema.get("properties") if is_object(schema) else None
    if not is_object(members) or not members or not all(map(_is_simple, members.values())):
        text = read(f"{indent}answer: ").strip()
        return _value(text, schema) if text else GIVE_UP
    required: Any = schema.get("required", [])
    given: dict[str, Any] = {}
    for name, member in members.items():
        is_required = is_array(required) and name in required
        text = read(
            f"{indent}{escape_controls(name)}{_hint(member)}{'' if is_required else ', may be empty'}: "
        ).strip()
        if text:
            given[name] = _value(text, member)
        elif is_required:
            return GIVE_UP
    return given or GIVE_UP


def _is_simple(schema: Any) -> bool:
    return is_object(schema) and ("enum" in schema or schema.get("type") in ("string", "number", "integer", "boolean"))


def _hint(schema: Any) -> str:
    if "enum" in schema:
        return f" ({short(' | '.join(str(one) for one in schema['enum']))})"
    return " (y/n)" if schema["type"] == "boolean" else f" ({schema['type']})"


def _value(text: str, schema: Any) -> Any:
    """Convert typed text to the type of the schema; text that cannot be converted stays text."""
    kind: Any = schema.get("type") if is_object(schema) else None
    if kind == "string":
        return text
    if kind == "boolean" and text.lower() in ("y", "yes", "n", "no"):
        return text.lower() in ("y", "yes")
    try:
        return decode_json(text)
    except msgspec.DecodeError:
        return text
