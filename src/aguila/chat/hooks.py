"""Layer: chat. What an application puts between chat contents and the events they would become by default.

Below: ``content``. Above: ``stream_out``, which asks; ``stream_in`` asks about interrupts only. A ``Hooks`` is a value:
every method gives a new one with one hook more, so a chain reads top to bottom, and the first hook that answers wins.

A hook answers with None ("not mine"), or with an event, a content, or a list of these, which take the place of what it
was asked about; an empty list says nothing at all. Contents in an answer are mapped by default, not by hooks again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from aguila.chat.content import Content, FunctionCallContent, FunctionResultContent
from aguila.codec.values import is_array
from aguila.protocol import Event, Interrupt, JsonPatch

Answer = Event | Content | Sequence[Event | Content] | None
"""What a hook may answer."""

ContentHook = Callable[[Content], Answer]
CallHook = Callable[[FunctionCallContent], Answer]
ResultHook = Callable[[FunctionResultContent], Answer]
InterruptHook = Callable[[Any], Interrupt | Content | None]
StateHook = Callable[[FunctionResultContent], Any]

T = TypeVar("T")


class Preview(msgspec.Struct, frozen=True):
    """Which argument of which tool is shown in the state, under which member, while it is streamed."""

    tool: str
    argument: str | None
    member: str


class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    """The hooks of a mapping. Start with ``Hooks()`` and chain."""

    contents: tuple[ContentHook, ...] = ()
    interrupts: tuple[InterruptHook, ...] = ()
    calls: tuple[tuple[str | None, CallHook], ...] = ()
    results: tuple[tuple[str | None, ResultHook], ...] = ()
    snapshots: tuple[tuple[str | None, StateHook], ...] = ()
    deltas: tuple[tuple[str | None, StateHook], ...] = ()
    previews: tuple[Preview, ...] = ()

    def map_content(self, hook: ContentHook) -> Hooks:
        """Ask ``hook`` about every content before anything else is done with it."""
        return msgspec.structs.replace(self, contents=(*self.contents, hook))

    def map_interrupt(self, hook: InterruptHook) -> Hooks:
        """Ask ``hook`` about every question.

        On the way out it is given a content of any kind and answers with the ``Interrupt`` that the run ends with; on
        the way in it is given an ``Interrupt`` and answers with the content to show.
        """
        return msgspec.structs.replace(self, interrupts=(*self.interrupts, hook))

    def map_call(self, hook: CallHook, tool: str | None = None) -> Hooks:
        """Ask ``hook`` about complete calls, of one tool or of all. Calls that come in pieces were sent by then.

        The result of a call that was answered for, and so not sent, is not sent either.
        """
        return msgspec.structs.replace(self, calls=(*self.calls, (tool, hook)))

    def map_result(self, hook: ResultHook, tool: str | None = None) -> Hooks:
        """Ask ``hook`` about results, of one tool or of all.

        A call that was sent is always answered: if the hook's answer has no result for it, an empty one is sent.
        """
        return msgspec.structs.replace(self, results=(*self.results, (tool, hook)))

    def map_result_as_state_snapshot(self, tool: str | None = None, hook: StateHook | None = None) -> Hooks:
        """After a result, send the state that it is: its JSON value, or what ``hook`` makes of it, unless that is None.

        A result that is no JSON is left alone. The result itself is sent as ever.
        """
        return msgspec.structs.replace(
            self, snapshots=(*self.snapshots, (tool, _json_object if hook is None else hook))
        )

    def map_result_as_state_delta(self, tool: str | None = None, hook: StateHook | None = None) -> Hooks:
        """After a result, send the JSON Patch that it is, or that ``hook`` makes of it, unless that is None.

        A result that is no list is left alone; a patch that is malformed or does not apply is a notice.
        """
        return msgspec.structs.replace(self, deltas=(*self.deltas, (tool, _json_array if hook is None else hook)))

    def preview_arguments(self, tool: str, argument: str | None, member: str) -> Hooks:
        """While a call of ``tool`` is streamed, show its ``argument`` (None: all) in ``member`` of the state."""
        return msgspec.structs.replace(self, previews=(*self.previews, Preview(tool, argument, member)))


NO_HOOKS = Hooks()


def first_answer(hooks: Sequence[tuple[str | None, Callable[[Any], T]]], tool: str | None, asked: Any) -> T | None:
    """The answer of the first hook for this tool that has one."""
    for wanted, hook in hooks:
        if wanted is None or wanted == tool:
            answer = hook(asked)
            if answer is not None:
                return answer
    return None


def _json_object(result: FunctionResultContent) -> Any:
    value = result.parsed_result
    return None if isinstance(value, str) else value


def _json_array(result: FunctionResultContent) -> JsonPatch | None:
    value: Any = result.parsed_result
    return value if is_array(value) else None
