"""``Hooks``: replace the default mapping of chat contents to events, and of interrupts to contents.

``Hooks`` is immutable: every method returns a copy with one more hook, so that calls can be chained. The first hook
that returns a value wins.

A hook returns None to leave the content to the next hook, or the replacement: an event, a content, or a list of these.
An empty list sends nothing. Contents in a replacement are mapped by default, without hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from aguila.chat.types import Content, FunctionCallContent, FunctionResultContent
from aguila.codec.json.values import is_array
from aguila.protocol import Event, Interrupt, JsonPatch

Answer = Event | Content | Sequence[Event | Content] | None
"""The values that a hook may return."""

ContentHook = Callable[[Content], Answer]
CallHook = Callable[[FunctionCallContent], Answer]
ResultHook = Callable[[FunctionResultContent], Answer]
InterruptHook = Callable[[Any], Interrupt | Content | None]
StateHook = Callable[[FunctionResultContent], Any]

T = TypeVar("T")


class Preview(msgspec.Struct, frozen=True):
    """An argument of a tool that is shown in a member of the state while the call is streamed."""

    tool: str
    argument: str | None
    member: str


class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    """The hooks of a mapping. Start with ``Hooks()`` and chain its methods."""

    contents: tuple[ContentHook, ...] = ()
    interrupts: tuple[InterruptHook, ...] = ()
    calls: tuple[tuple[str | None, CallHook], ...] = ()
    results: tuple[tuple[str | None, ResultHook], ...] = ()
    snapshots: tuple[tuple[str | None, StateHook], ...] = ()
    deltas: tuple[tuple[str | None, StateHook], ...] = ()
    previews: tuple[Preview, ...] = ()

    def map_content(self, hook: ContentHook) -> Hooks:
        """Call ``hook`` for every content, before any other processing."""
        return msgspec.structs.replace(self, contents=(*self.contents, hook))

    def map_interrupt(self, hook: InterruptHook) -> Hooks:
        """Call ``hook`` for every question.

        Towards AG-UI it receives a content of any kind and returns the ``Interrupt`` that the run ends with. Towards
        chat it receives an ``Interrupt`` and returns the content to show.
        """
        return msgspec.structs.replace(self, interrupts=(*self.interrupts, hook))

    def map_call(self, hook: CallHook, tool: str | None = None) -> Hooks:
        """Call ``hook`` for complete calls of one tool, or of all tools. Calls that come in pieces are already sent.

        If the hook replaces a call, the result of that call is not sent either.
        """
        return msgspec.structs.replace(self, calls=(*self.calls, (tool, hook)))

    def map_result(self, hook: ResultHook, tool: str | None = None) -> Hooks:
        """Call ``hook`` for the results of one tool, or of all tools.

        A call that was sent always gets a result: if the replacement has none, an empty one is sent.
        """
        return msgspec.structs.replace(self, results=(*self.results, (tool, hook)))

    def map_result_as_state_snapshot(self, tool: str | None = None, hook: StateHook | None = None) -> Hooks:
        """After a result, send its JSON value as state snapshot, or the value that ``hook`` returns unless it is None.

        A result that is not JSON is skipped. The result itself is sent as usual.
        """
        return msgspec.structs.replace(
            self, snapshots=(*self.snapshots, (tool, _json_object if hook is None else hook))
        )

    def map_result_as_state_delta(self, tool: str | None = None, hook: StateHook | None = None) -> Hooks:
        """After a result, send it as a JSON Patch of the state, or the patch that ``hook`` returns unless it is None.

        A result that is not a list is skipped. A patch that is malformed or does not apply is reported as a notice.
        """
        return msgspec.structs.replace(self, deltas=(*self.deltas, (tool, _json_array if hook is None else hook)))

    def preview_arguments(self, tool: str, argument: str | None, member: str) -> Hooks:
        """While a call of ``tool`` streams, show its ``argument`` (None: all of them) in ``member`` of the state."""
        return msgspec.structs.replace(self, previews=(*self.previews, Preview(tool, argument, member)))


NO_HOOKS = Hooks()


def call_first_hook(hooks: Sequence[tuple[str | None, Callable[[Any], T]]], tool: str | None, asked: Any) -> T | None:
    """Call the hooks for this tool, and return the first value that is not None."""
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
