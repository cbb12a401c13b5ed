"""Execute the front-end tool calls of an agent, and convert each outcome to an answer (FT, SEC-3).

``thread`` decides when to call, and the drivers call. An unknown tool, invalid arguments and a function that raises
become an answer with ``error``.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from aguila.chat.tools import Confirm, FunctionTool, Toolbox, ToolError, content_of
from aguila.errors import EncodeError
from aguila.protocol import ToolCall, ToolMessage
from aguila.telemetry import tool_span

_log = logging.getLogger("aguila.client")

_INTERRUPTED = "interrupted: the call had begun and may have had an effect; it was not made again"
_NO_CONFIRM = "not executed: it needs the user's consent, and this client has no way to ask for it"


def check_tools(tools: Toolbox) -> Toolbox:
    """Return the tools. Raise TypeError for one that takes the run of an agent, which a client does not have."""
    for one in tools.functions.values():
        if one.takes_run:
            raise TypeError(
                f"tools: {one.name!r} has a parameter 'run', for the run of an agent, which a client does not have;"
                " remove it, or annotate it with the type of an argument"
            )
    return tools


def plan_call(tools: Toolbox, call: ToolCall, message_id: str, confirm: Confirm | None = None) -> PlannedCall:
    """Plan a call of a function, or its answer if it is not executed. ``confirm`` is the client's."""
    found = tools.get(call.function.name)
    if found is None:
        return PlannedCall(call.id, message_id, problem=f"there is no tool {call.function.name!r}")
    try:
        arguments = found.bind(call.function.arguments)
    except ToolError as error:
        return PlannedCall(call.id, message_id, problem=str(error))
    planned = PlannedCall(call.id, message_id, tool=found, arguments=arguments, sent=call.function.arguments)
    needs_consent = found.confirm is True
    if found.confirm is None:
        try:
            needs_consent = found.needs_approval(arguments)
        except Exception:  # noqa: BLE001 - if the check fails, the user is asked
            _log.warning("needs_approval of the tool %r failed; the user is asked", found.name, exc_info=True)
            needs_consent = True
    planned.confirm = confirm if found.confirm is None or found.confirm is True else found.confirm or None
    if needs_consent and confirm is None:
        planned.tool, planned.problem = None, _NO_CONFIRM
    return planned


class PlannedCall:
    """A tool call to execute, or one that has a ``problem`` and is not executed.

    It is executed once. ``outcome`` gets the answer when the function ends. If the run is closed before that, the
    function continues in its thread, and the next run uses the outcome.
    """

    def __init__(
        self,
        call_id: str,
        message_id: str,
        *,
        tool: FunctionTool[..., Any] | None = None,
        arguments: dict[str, Any] | None = None,
        sent: str = "",
        problem: str | None = None,
    ) -> None:
        """``sent`` are the arguments as the agent sent them."""
        self.call_id = call_id
        self.message_id = message_id
        self.tool = tool
        self.arguments = arguments or {}
        self._sent = sent
        self.problem = problem
        self.confirm: Confirm | None = None
        self.outcome: Future[ToolMessage] = Future()

    @property
    def has_begun(self) -> bool:
        """Whether the function was called; it is not called again."""
        return self.outcome.running() or (self.outcome.done() and not self.outcome.cancelled())

    def begin(self) -> bool:
        """Return whether to call the function now: not if it was called before, or was given up."""
        return not self.has_begun and self.outcome.set_running_or_notify_cancel()

    @contextmanager
    def settling(self) -> Generator[None]:
        """Set the outcome if the call in this context raises. ``CancelledError`` and the like are raised again."""
        assert self.tool is not None  # noqa: S101
        try:
            with tool_span(self.tool.name, self.call_id, self._sent) as note_result:
                yield
                if self.outcome.done() and not self.outcome.cancelled():
                    answer = self.outcome.result()
                    note_result(answer.content, answer.error)
        except Exception as error:  # noqa: BLE001 - what the application's function raises is the answer
            self.outcome.set_result(self.answer_failure(error))
        except BaseException:
            # Cancelled or Ctrl-C: how far the function came is unknown.
            self.outcome.set_result(self._error(_INTERRUPTED))
            raise

    @property
    def needs_consent(self) -> bool:
        """Whether the user has to be asked before the call (SEC-1)."""
        return self.tool is not None and self.confirm is not None and not self.has_begun

    def ask(self) -> Any:
        """Return whether the user allows the call, or an awaitable of that."""
        assert self.tool is not None and self.confirm is not None  # noqa: S101, PT018
        return self.confirm(self.tool.declaration.name, dict(self.arguments))

    @contextmanager
    def asking(self) -> Generator[None]:
        """Decline the call if asking in this context raises: an error is not consent."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the answer to the call says it, and the log
            _log.warning("the user could not be asked about the tool call %r", self.call_id, exc_info=error)
            self.tool, self.problem = None, "not executed: the user could not be asked"

    def take_consent(self, allowed: Any) -> None:
        """Take the user's decision: without consent the call is not executed."""
        if not allowed:
            self.tool, self.problem = None, "not executed: the user declined this call"

    def settle(self, value: Any) -> None:
        """Set the outcome to the value that the function returned."""
        self.outcome.set_result(self.answer(value))

    def answer(self, value: Any) -> ToolMessage:
        """Convert the returned value to an answer: text, parts and lists of both unchanged, anything else as JSON."""
        try:
            content = content_of(value)
        except EncodeError as error:
            return self.answer_failure(ToolError(f"the result has no JSON form: {error}"))
        return ToolMessage(id=self.message_id, tool_call_id=self.call_id, content=content)

    def answer_refusal(self) -> ToolMessage:
        """Return the answer to a call that is not executed."""
        return self._error(self.problem or "")

    def answer_failure(self, error: Exception) -> ToolMessage:
        """Return the answer of a function that raised: the error's text, so that the model can correct the call."""
        if isinstance(error, ToolError):
            return self._error(str(error))
        _log.warning("the tool call %r failed", self.call_id, exc_info=error)
        return self._error(f"{type(error).__name__}: {error}")

    def _error(self, text: str) -> ToolMessage:
        # Also in the content, because most models see nothing else.
        return ToolMessage(id=self.message_id, tool_call_id=self.call_id, content=text, error=text)
