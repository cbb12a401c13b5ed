"""Layer: agent. ``Run``: what an agent is given, to read what it was asked and to say what it has to say.

Above: the agent. Below: ``writing`` (everything that is said and asked), ``output``. ``blocking`` has the same
handle for agents that run in a thread.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from aguila.agent.chat_values import CHAT, FILE_PROVIDER, read_conversation, with_parts
from aguila.agent.context import RunContext, Services
from aguila.agent.handles import ChatHandle
from aguila.agent.output import OutputMapper
from aguila.agent.questions import Questions
from aguila.agent.run_api import RunAPI
from aguila.chat.hooks import Hooks
from aguila.chat.types import ChatMessage
from aguila.chat.user_text import last_user_text
from aguila.codec.json.decoder import decode
from aguila.codec.json.encoder import encode
from aguila.codec.notices import Notice, log_notice
from aguila.errors import EncodeError
from aguila.offload import offload
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
from aguila.protocol.parts import DataSource, FileSource, MediaPart, TextPart, UrlSource
from aguila.stream.json_values import copy_json
from aguila.stream.writer import EventWriter


class Run(RunAPI):
    """One run of an agent.

    ``state`` is a plain JSON value shared with the client: change it in place or assign it, the changes are found and
    sent. ``session`` is a private one, kept with the thread and never sent. ``result`` becomes the run's result.
    """

    def __init__(self, context: RunContext, output: OutputMapper, services: Services, agent: Any = None) -> None:
        input_ = context.input
        self.agent: Any = agent
        """What the run was begun with, as the app has it. An agent that is another was invoked by that one, and is not
        alone in the run; who only chooses among agents sets this to the one that was chosen."""
        self.input: RunAgentInput = input_
        """What the agent was asked. After a question it is the input of the run that asked first."""
        self.resume_input: RunAgentInput | None = context.resume_input
        """After a question: what came with the answer. Its messages and its state are not in ``messages`` and
        ``state``, which a replay needs as they were; use it after the question only."""
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
        self._services = services
        self._usage: list[TokenUsage] = []
        super().__init__(
            output, Questions(context, output, services), frozenset(tool.name for tool in self.tools), owner=None
        )
        self._questions.run = self

    @property
    def state(self) -> Any:
        """The state shared with the client."""
        return self._out.state.value

    @state.setter
    def state(self, state: Any) -> None:
        self._out.state.value = state

    @property
    def user_text(self) -> str:
        """The last user message as text, also if it has images; "" if there is none."""
        return last_user_text(self.messages)

    @property
    def is_cancelled(self) -> bool:
        """Whether the run was asked to stop. An agent in a thread that works for long should look at it."""
        return self._out.is_cancelled

    @property
    def is_stored(self) -> bool:
        """Whether the run is stored. If not, ``ask``, ``approve``, ``once`` and session changes raise an error."""
        return self._questions.is_stored

    @property
    def usage(self) -> list[TokenUsage]:
        """What ``add_usage`` was told, in order."""
        return self._usage

    @property
    def hooks(self) -> Hooks:
        """What is asked about chat contents that the agent yields. Set it before the first of them."""
        return self._out.hooks

    @hooks.setter
    def hooks(self, hooks: Hooks) -> None:
        self._out.hooks = hooks

    def chat(self) -> ChatHandle:
        """One who speaks in chat updates beside others: ``emit`` is for an agent that does so alone."""
        return ChatHandle(self._out)

    @property
    def resume_messages(self) -> list[Message]:
        """What was said by others than the agent since it first asked: what the user had to say along with an answer.

        It is in ``resume_input`` and not in ``messages``. Empty until a replay has come to the answer.
        """
        replaying = self._out.replaying
        if self.resume_input is None or self._out.is_muted or (replaying is not None and not replaying.has_spoken):
            return []
        known = {message.id for message in self.input.messages}
        return [
            message
            for message in self.resume_input.messages
            if isinstance(message, (UserMessage, SystemMessage, DeveloperMessage)) and message.id not in known
        ]

    async def chat_messages(self, messages: Sequence[Message] | None = None) -> list[ChatMessage]:
        """The conversation as chat messages, with data decoded and uploads as the bytes they are.

        It is made anew with each call, from ``messages``: the run's, unless others are given. What a chat has no word
        for is left out, and what cannot be read is skipped, or stays a reference: each with a notice. Addresses are
        never fetched.
        """
        return await read_conversation(self.messages if messages is None else messages, self._services)

    async def emit(self, event: Any) -> None:
        """Send what a generator would yield: text, an event (ours or of ``ag_ui.core``), a chat update, or a list."""
        await self._out.room()
        if isinstance(event, CHAT) and self._out.is_slow(event):
            event = await offload(with_parts, event)
        self._out.accept(event)

    async def patch_state(self, patch: Sequence[JsonPatchOperation]) -> None:
        """Change the state by a JSON Patch, without comparing it: for large states.

        ``run.state`` follows, as the same object if it is one; containers inside that the patch touched are new ones.
        Raises ``IllegalStep`` if the patch does not apply, and nothing has changed.
        """
        await self._out.patch_state(patch)

    async def flush(self) -> None:
        """Send the changes of the state now. They are also sent before other events, and while the agent waits."""
        await self._out.flush()

    async def state_snapshot(self) -> None:
        """Send the whole state, for a client that may have lost track of it."""
        await self._out.snapshot_state()

    async def messages_snapshot(self, messages: Sequence[Message]) -> None:
        """Restate the conversation (MSGS-1). The client drops what is not in it, also what this run has said."""
        await self._out.send_opener(EventWriter.messages_snapshot, messages)

    def add_usage(self, usage: TokenUsage) -> None:
        """Tokens of one model call, subagents' included (USE-7); the run's end has the sums.

        What a resumed run says again on its way to the answer was counted by the run before, and is not again (USE-9).
        Raises ``EncodeError``, or ``DecodeError`` for a count that is none (USE-6).
        """
        if not isinstance(usage, TokenUsage):
            raise EncodeError(f"usage is a TokenUsage, not {type(usage).__name__}")
        counted = decode(encode(usage), TokenUsage, strict=True)
        if self._out.branches.count():
            self._usage.append(counted)

    async def once(self, key: str, effect: Callable[[], Any], *, uses_run: bool = False) -> Any:
        """Do something once, however often the agent is replayed: gives the recorded result if there is one.

        ``effect`` is called without arguments and may be async. Its result must be JSON, and is recorded under
        ``key`` before this returns; if it raises, nothing is. ``uses_run`` if the effect itself talks, changes the
        state or asks: what it did to the state is recorded too, and what it asks is asked before anything is recorded.
        What it said is not said again, also not by a run that takes the place of a failed one.
        Raises ``EncodeError`` for a result that is not JSON.
        """
        if uses_run:
            return await self._questions.once_in_run(key, effect)
        return await self._questions.once(key, effect)

    def retelling(self) -> AbstractContextManager[None]:
        """What a replay says in this context was said before, by an effect that is on record: it is not heard again.

        For who has to open again what an effect opened, after ``once`` gave a recorded result.
        """
        return self._out.branches.retelling()

    def new_key(self, kind: str) -> str:
        """A key for ``once`` that nothing else in the run has, and that a replay gives again.

        For what may be invoked several times and cannot tell where, such as an agent within another's tool: a key is
        counted by kind within the effect that it is asked for in (``once`` with ``uses_run``), else within the agent.
        """
        return self._questions.new_key(kind)

    async def file(self, part: MediaPart | TextPart | FileSource | BinaryInputContent | str) -> bytes | None:
        """The bytes of an uploaded file, or of data carried inline; None, with a warning, if they are not to be had.

        An address is never fetched, and another provider's file is not ours to read.
        """
        source: Any = part if isinstance(part, (str, FileSource, BinaryInputContent)) else getattr(part, "source", None)
        if isinstance(source, DataSource):
            return _decoded(source.value)
        if isinstance(source, BinaryInputContent):
            if source.data is not None:
                return _decoded(source.data)
            file_id = source.id
        elif isinstance(source, FileSource):
            file_id = source.value if source.provider in (None, FILE_PROVIDER) else None
        elif source is None or isinstance(source, UrlSource):
            file_id = None
        else:
            file_id = source
        found = None if file_id is None else await self._services.file(file_id)
        if found is None:
            if file_id is not None:
                reason = "it is a file that is not here"
            elif isinstance(source, FileSource):
                reason = "it is another provider's file"
            elif source is None:
                reason = "it is text, which has none"
            else:
                reason = "it is an address, which is never fetched"
            # Never the source itself: what messages hold has no place in a log.
            log_notice(Notice(rule="IN-8", message=f"the bytes of a part are not to be had: {reason}"))
            return None
        return found[0]


def read_state(run: Run) -> Any:
    """Return the state of a run, for reading only. ``run.state`` would be compared for changes from then on."""
    return run._out.state.seen()


def _decoded(data: str) -> bytes | None:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        log_notice(Notice(rule="MSG-2", message="the data of a part is not base64"))
        return None
