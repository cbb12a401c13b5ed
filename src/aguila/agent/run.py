"""``Run``: how an agent reads its input and sends its output. Agents in threads get a ``BlockingRun``."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from aguila.agent.chat_values import FILE_PROVIDER, read_conversation
from aguila.agent.context import RunContext, Services
from aguila.agent.handles import ChatHandle
from aguila.agent.output import Output
from aguila.agent.questions import Questions
from aguila.agent.run_api import RunAPI
from aguila.chat.hooks import Hooks
from aguila.chat.types import ChatMessage
from aguila.chat.user_text import last_user_text
from aguila.codec.json.decoder import decode
from aguila.codec.json.encoder import encode
from aguila.codec.notices import Notice, log_notice
from aguila.errors import EncodeError, RunNotStored
from aguila.protocol import (
    Context,
    DeveloperMessage,
    JsonPatchOperation,
    Message,
    ResumeEntry,
    RunAgentInput,
    SystemMessage,
    TokenUsage,
    Tool,
    UserMessage,
)
from aguila.protocol.legacy import BinaryInputContent
from aguila.protocol.parts import DataSource, FileSource, MediaPart, TextPart
from aguila.store.encoding import MAX_TITLE, is_title
from aguila.stream.json_values import copy_json

_NO_TOOLS: frozenset[str] = frozenset()  # one for all runs: each takes over 200 bytes


class Run(RunAPI):
    """One run of an agent.

    ``state`` is a JSON value shared with the client. Change it in place or assign it; the changes are sent. ``session``
    is a private JSON value that is stored with the thread and never sent. ``result`` becomes the run's result.
    """

    def __init__(
        self, context: RunContext, output: Output, services: Services, questions: Questions, agent: Any = None
    ) -> None:
        input_ = context.input
        self.agent: Any = agent
        """The agent that the app started. Another agent in the same run was invoked by it and shares the run. An agent
        that only chooses among others sets this to the chosen one."""
        self.input: RunAgentInput = input_
        """The input of the run. After a question it is the input of the run that asked first."""
        self.resume_input: RunAgentInput | None = context.resume_input
        """After a question, the input that brought the answer. ``messages`` and ``state`` stay as they were, because a
        replay needs them. Use it only after the question."""
        self.messages: list[Message] = list(input_.messages)
        self.tools: list[Tool] = list(input_.tools or ())
        self.context: list[Context] = list(input_.context or ())
        self.forwarded_props: Any = input_.forwarded_props
        self.resume: list[ResumeEntry] = list(input_.resume or ())
        self.thread_id = context.thread_id
        self.run_id = context.run_id
        self.parent_run_id = context.parent_run_id
        self.principal: Any = context.principal
        self.headers: Mapping[str, str] = context.headers
        self.session: Any = {} if context.session is None else copy_json(context.session)
        self.result: Any = None
        self._title = context.title
        self._services = services
        self._is_known = context.is_known
        self._find_lost_calls = context.find_lost_calls
        self.is_stored = context.is_stored
        """Whether the run is stored. If not, questions, ``once``, and changes of session or title raise an error."""
        self.usage: list[TokenUsage] = []
        """The usage that ``add_usage`` recorded, in order."""
        self._output = output
        self._questions = questions
        self._frontend_tools = frozenset([tool.name for tool in self.tools]) if self.tools else _NO_TOOLS
        self._owner_id = None
        questions.run = self

    @property
    def state(self) -> Any:
        """The state shared with the client."""
        return self._output.state.value

    @state.setter
    def state(self, state: Any) -> None:
        self._output.state.value = state

    @property
    def title(self) -> str | None:
        """The title of the thread: as this run set it, else as it was when the run began.

        The new title is stored with the end of the run, however it ends. None removes the title. Raises
        ``EncodeError`` for a value that is not a short string, ``RunNotStored`` if the run is not stored.
        """
        return self._title

    @title.setter
    def title(self, title: str | None) -> None:
        if not (title is None or is_title(title)):
            raise EncodeError(f"run.title takes a string of up to {MAX_TITLE} characters, or None")
        if not self.is_stored:
            raise RunNotStored("set the title of the thread")
        self._title = self._output.title = title

    @property
    def user_text(self) -> str:
        """The text of the last user message; "" if there is none."""
        return last_user_text(self.messages)

    @property
    def is_cancelled(self) -> bool:
        """Whether the run was cancelled. An agent in a thread should check it during long work."""
        return self._output.is_cancelled

    @property
    def hooks(self) -> Hooks:
        """Hooks that are called for chat contents of the agent. Set it before the first of them."""
        return self._output.yielded.hooks

    @hooks.setter
    def hooks(self, hooks: Hooks) -> None:
        self._output.yielded.hooks = hooks

    def chat(self) -> ChatHandle:
        """Open a stream of chat updates beside others. An agent that sends only one stream uses ``emit``."""
        return ChatHandle(self._output)

    @property
    def resume_messages(self) -> list[Message]:
        """The user, system and developer messages that came with an answer.

        They are in ``resume_input`` and not in ``messages``. Empty until the replay has reached the answer.
        """
        if self.resume_input is None or self._output.is_muted or not self._output.branches.has_progressed:
            return []
        known = {message.id for message in self.input.messages}
        return [
            message
            for message in self.resume_input.messages
            if isinstance(message, (UserMessage, SystemMessage, DeveloperMessage)) and message.id not in known
        ]

    async def chat_messages(self, messages: Sequence[Message] | None = None) -> list[ChatMessage]:
        """Convert messages to chat messages, with inline data decoded and uploads loaded.

        The default is the messages of the run. Content that chat messages cannot express is left out with a notice. A
        file that cannot be loaded stays a reference, with a notice. URLs are never fetched.

        The order is that of the messages. Before you send them to a model, call ``aguila.chat.provider_history`` on
        the result: it puts each result directly after its call and leaves no call without one, as models require.
        """
        return await read_conversation(self.messages if messages is None else messages, self._services)

    async def is_known(self, message: Message) -> bool:
        """Return whether the thread had a message before this run, with this id and content.

        An assistant or tool message is known if a run of this thread has sent it, in whatever form a client sends it
        back. Messages that only clients have sent are known from the next run on, but only user, system and developer
        messages, and results of front-end tools. A replay gets the same answers again.
        """
        return self._is_known is not None and await self._is_known(message)

    async def lost_calls(self) -> frozenset[str]:
        """Return the ids of the thread's calls without a result whose run ended with ``run_lost``: its process died.

        Nobody knows whether they were executed. A replay gets the same answer again.
        """
        return frozenset() if self._find_lost_calls is None else await self._find_lost_calls()

    async def emit(self, event: Any) -> None:
        """Send what a generator may yield: text, an event (ours or of ``ag_ui.core``), a chat update, or a list."""
        await self._output.send(event)

    async def patch_state(self, patch: Sequence[JsonPatchOperation]) -> None:
        """Apply a JSON Patch to the state and send it. Nothing is compared, which is faster for large states.

        If ``run.state`` is a dict, it stays the same object; the containers inside that the patch touches are replaced.
        If the patch does not apply, raises ``IllegalStep`` and changes nothing.
        """
        await self._output.patch_state(patch)

    async def flush(self) -> None:
        """Send the changes of the state now. They are also sent before other events, and while the agent awaits."""
        await self._output.flush()

    async def state_snapshot(self) -> None:
        """Send the whole state as a snapshot."""
        await self._output.snapshot_state()

    async def messages_snapshot(self, messages: Sequence[Message]) -> None:
        """Replace the conversation (MSGS-1). The client drops every other message, also those of this run."""
        await self._output.send_opener(self._output.agent_writer.messages_snapshot, messages)

    def add_usage(self, usage: TokenUsage) -> None:
        """Add the tokens of one model call, also of a subagent (USE-7). The terminal event carries the sums.

        If a model is called more than once, its metadata also lists the calls: ``metadata["aguila"]["modelCalls"]``.

        Usage that an earlier run reported is not counted again in a replay (USE-9). Raises ``EncodeError`` for another
        type, ``DecodeError`` for an invalid count (USE-6).
        """
        if not isinstance(usage, TokenUsage):
            raise EncodeError(f"add_usage() takes a TokenUsage, not {type(usage).__name__}")
        counted = decode(encode(usage), TokenUsage, strict=True)
        if self._output.branches.count():
            self.usage.append(counted)

    async def once(
        self, key: str, effect: Callable[[], Any], *, uses_run: bool = False, idempotent: bool = False
    ) -> Any:
        """Call an effect only once, however often the agent is replayed. Return the recorded result if there is one.

        ``effect`` takes no arguments and may be async. Its result must be JSON and is recorded under ``key`` before
        this returns. If it raises or asks, it may be called again. If its process dies or the run is cancelled in the
        middle, it is unknown whether it happened: a later run raises ``OutcomeUnknown``. Set ``idempotent`` if it may
        happen twice: a later run then calls it again. Set ``uses_run`` if the effect sends, asks or changes the state:
        a replay then applies its changes of the state and does not send its output again.

        Raises ``EncodeError`` for a result that is not JSON.
        """
        if uses_run:
            return await self._questions.once_using_run(key, effect, is_idempotent=idempotent)
        return await self._questions.once(key, effect, is_idempotent=idempotent)

    def muted(self) -> AbstractContextManager[None]:
        """Suppress output that a recorded effect sent before.

        Use it to reopen handles of an effect after ``once`` gave its recorded result.
        """
        return self._output.branches.muted()

    def new_key(self, kind: str) -> str:
        """Make a key for ``once`` that is unique in the run and that a replay makes again.

        For code that may be called several times and does not know where, such as an agent within a tool of another.
        Keys are counted by kind, within the enclosing effect (``once`` with ``uses_run``) or within the agent.
        """
        return self._questions.new_key(kind)

    async def file(self, part: MediaPart | TextPart | FileSource | BinaryInputContent | str) -> bytes | None:
        """Load the bytes of an uploaded file or of inline data. Return None, with a notice, if they cannot be loaded.

        A URL is never fetched. A file of another provider is never loaded.
        """
        source: Any = part if isinstance(part, (str, FileSource, BinaryInputContent)) else getattr(part, "source", None)
        file_id, reason = None, "it is a URL, which is never fetched"
        match source:
            case DataSource(value=data) | BinaryInputContent(data=str(data)):
                return _decoded(data)
            case FileSource(provider=provider) if provider not in (None, FILE_PROVIDER):
                reason = "it is a file of another provider"
            case FileSource(value=file_id) | BinaryInputContent(id=file_id) | str(file_id):
                reason = reason if file_id is None else "the file is not in the store"
            case None:
                reason = "it is a text part"
            case _:  # a URL
                pass
        found = None if file_id is None else await self._services.file(file_id)
        if found is None:
            # The source itself is not logged: it is message content.
            log_notice(Notice(rule="IN-8", message=f"cannot load file part: {reason}"))
            return None
        return found[0]


def read_state(run: Run) -> Any:
    """Return the state of a run, for reading only. ``run.state`` would be compared for changes from then on."""
    return run._output.state.seen()  # pyright: ignore[reportPrivateUsage] - same module; not for agents


def _decoded(data: str) -> bytes | None:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        log_notice(Notice(rule="MSG-2", message="cannot load file part: its data is not base64"))
        return None
