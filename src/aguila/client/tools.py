"""Make the calls of front-end tools that an agent asks for, and turn whatever happens into an answer (FT, SEC-3).

``thread`` decides when to call, ``asyncio`` and ``sync`` do it. An unknown tool, arguments that do not fit and a
function that fails become an answer with ``error``.
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

_log = logging.getLogger("aguila.client")

_INTERRUPTED = "interrupted: the call had begun and may have had an effect; it was not made again"
_NO_CONFIRM = "not executed: it needs the user's consent, and this client has no way to ask for it"


def check_tools(tools: Toolbox) -> Toolbox:
    """Give the tools. Raises ``TypeError`` for one that takes the run of an agent, which a client does not have."""
    for one in tools.functions.values():
        if one.takes_run:
            raise TypeError(
                f"tools: {one.name!r} has a parameter 'run', for the run of an agent, which a client does not have;"
                " remove it, or annotate it with the type of an argument"
            )
    return tools


def plan_call(tools: Toolbox, call: ToolCall, message_id: str, confirm: Confirm | None = None) -> PlannedCall:
    """Plan a call of a function, or the answer if it cannot be made. ``confirm`` is the client's."""
    found = tools.get(call.function.name)
    if found is None:
        return PlannedCall(call.id, message_id, problem=f"there is no tool {call.function.name!r}")
    try:
        arguments = found.bind(call.function.arguments)
    except ToolError as error:
        return PlannedCall(call.id, message_id, problem=str(error))
    planned = PlannedCall(call.id, message_id, tool=found, arguments=arguments)
    needs_consent = found.confirm is True
    if found.confirm is None:
        try:
            needs_consent = found.needs_approval(arguments)
        except Exception:  # noqa: BLE001 - if it cannot be told, the user is asked
            _log.warning("needs_approval of the tool %r failed; the user is asked", found.name, exc_info=True)
            needs_consent = True
    planned.confirm = confirm if found.confirm is None or found.confirm is True else found.confirm or None
    if needs_consent and confirm is None:
        planned.tool, planned.problem = None, _NO_CONFIRM
    return planned


class PlannedCall:
    """A call that is to be made, or whose ``problem`` is known without making it.

    It is made once. ``outcome`` is pending until the function is called, and then holds the answer, sooner or later:
    a run may be left while its function goes on in a thread, and the next run takes what comes of it.
    """

    def __init__(
        self,
        call_id: str,
        message_id: str,
        *,
        tool: FunctionTool[..., Any] | None = None,
        arguments: dict[str, Any] | None = None,
        problem: str | None = None,
    ) -> None:
        self.call_id = call_id
        self.message_id = message_id
        self.tool = tool
        self.arguments = arguments or {}
        self.problem = problem
        self.confirm: Confirm | None = None
        self.outcome: Future[ToolMessage] = Future()

    @property
    def has_begun(self) -> bool:
        """Whether the function was called; it is not called again."""
        return self.outcome.running() or (self.outcome.done() and not self.outcome.cancelled())

    def begin(self) -> bool:
        """Whether the function is to be called now: not if it was called before, or was given up."""
        return not self.has_begun and self.outcome.set_running_or_notify_cancel()

    @contextmanager
    def settling(self) -> Generator[None]:
        """Around the call: whatever ends it, there is an outcome. Raises what is no ``Exception``."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever the application's function raises is the answer
            self.outcome.set_result(self.failed(error))
        except BaseException:
            # Cancelled, Ctrl-C: nobody knows how far the function came.
            self.outcome.set_result(self._error(_INTERRUPTED))
            raise

    def ask(self) -> Any:
        """Whether the user lets the call be made, or an awaitable of that (SEC-1)."""
        is_asked = self.tool is not None and self.confirm is not None
        return self.confirm(self.tool.declaration.name, dict(self.arguments)) if is_asked else True  # type: ignore[misc, union-attr]

    def decline(self, error: Exception | None = None) -> None:
        """The user did not allow the call, or could not be asked: then it is not made either."""
        self.tool, self.problem = None, "not executed: the user declined this call"
        if error is not None:
            _log.warning("nobody could be asked about the tool call %s", self.call_id, exc_info=error)
            self.problem = "not executed: the user could not be asked"

    def settle(self, value: Any) -> None:
        """The function gave this."""
        self.outcome.set_result(self.answer(value))

    def answer(self, value: Any) -> ToolMessage:
        """The answer that the function gave: text, parts and lists of both as they are, anything else as JSON."""
        try:
            content = content_of(value)
        except EncodeError as error:
            return self.failed(ToolError(f"the result has no JSON form: {error}"))
        return ToolMessage(id=self.message_id, tool_call_id=self.call_id, content=content)

    def refused(self) -> ToolMessage:
        """The answer to a call that cannot be made."""
        return self._error(self.problem or "")

    def failed(self, error: Exception) -> ToolMessage:
        """The answer of a function that raised: its words, so that the model can do better."""
        if isinstance(error, ToolError):
            return self._error(str(error))
        _log.warning("the tool call %s failed", self.call_id, exc_info=error)
        return self._error(f"{type(error).__name__}: {error}")

    def _error(self, text: str) -> ToolMessage:
        # The content too: most models are shown nothing else.
        return ToolMessage(id=self.message_id, tool_call_id=self.call_id, content=text, error=text)
