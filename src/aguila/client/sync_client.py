"""``Client``: the client without asyncio. ``async_client`` has the same API for it."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, Self
from weakref import ref

from aguila.chat.tools import AnyTool
from aguila.client.base import ClientBase
from aguila.client.drivers.actions import Program
from aguila.client.drivers.sync_driver import SyncDriver
from aguila.client.files import FileLike
from aguila.client.requests.branches import ThreadTree, fetch_branch, fetch_fork, fetch_tree
from aguila.client.requests.threads import ThreadFilter, ThreadInfo, change_thread, list_page, remove_thread
from aguila.client.runs.run import RunBase, RunResult
from aguila.client.runs.thread import ThreadBase
from aguila.client.transports.base import Timeouts, Transport
from aguila.protocol import AgentCapabilities, Event, Message, RunAgentInput, State
from aguila.protocol.parts import MediaPart
from aguila.stream import Conversation


class Client(ClientBase[Transport]):
    """A client of an agent, and a pool of connections to it. ``ClientBase`` explains the parameters."""

    _is_async = False

    def _default_transport(self, timeouts: Timeouts, options: Mapping[str, Any]) -> Transport:
        from aguila.client.transports.httpx2 import HTTPX2Transport

        return HTTPX2Transport(timeouts=timeouts, **options)

    def thread(
        self,
        id: str | None = None,  # noqa: A002
        *,
        messages: Iterable[Message | Mapping[str, Any]] = (),
        state: State = None,
        tools: Iterable[AnyTool] = (),
    ) -> Thread:
        """Open a thread: a new one, or one with known messages and state. ``tools`` are offered in all its runs."""
        return Thread(self._core, id, messages=messages, state=state, tools=tools)

    def send(self, input: RunAgentInput, *, headers: Mapping[str, str] | None = None) -> ClientRun:  # noqa: A002
        """Send an input as it is, with its ids, tools and answers.

        For gateways. Iterate the run for its events, or call ``result()``. Tools are not called, and answers are not
        compared with the questions. It ends as ``thread.run`` does.
        """
        thread = Thread(self._core, input.thread_id, messages=input.messages, state=input.state)
        return thread.send_input(input, headers)

    def capabilities(self) -> AgentCapabilities | None:
        """Return the capabilities that the agent declares; None if there are none, or they are invalid."""
        return SyncDriver(self._core).finish(self._capabilities_program())

    def upload(
        self,
        source: FileLike,
        *,
        mime_type: str | None = None,
        filename: str | None = None,
        thread_id: str | None = None,
    ) -> MediaPart:
        """Upload a file, from its path or its bytes, and return the part that refers to it.

        With ``thread_id`` the server deletes the file with that thread. Raise ``HTTPRejected``, ``TransportFailed``,
        ``ProtocolError`` for an invalid response, or OSError if the file cannot be read.
        """
        return SyncDriver(self._core).finish(self._upload_program(source, mime_type, filename, thread_id))

    def threads(
        self, *, archived: bool | None = None, metadata_key: str | None = None, metadata_value: str | None = None
    ) -> Iterator[ThreadInfo]:
        """Iterate over the threads on the server, last updated first. Pages are fetched as they are needed.

        ``archived`` selects archived threads, or the others. ``metadata_key`` selects threads whose metadata has this
        member; with ``metadata_value``, only if the member is this string. Raise as ``thread.refresh`` does.
        """
        wanted = ThreadFilter(archived=archived, metadata_key=metadata_key, metadata_value=metadata_value)
        cursor: str | None = None
        while True:
            page, cursor = SyncDriver(self._core).finish(list_page(self.settings, wanted, cursor))
            yield from page
            if cursor is None:
                return

    def delete_thread(self, id: str) -> None:  # noqa: A002
        """Delete a thread on the server, with its log and files. Raise ``HTTPRejected``, also while it has a run."""
        SyncDriver(self._core).finish(remove_thread(self.settings, id))

    def close(self) -> None:
        """Close every connection, from any thread.

        Runs in progress end with ``TransportFailed`` here, and continue on the server.
        """
        self._core.closed.set()
        self._core.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ClientRun(RunBase[SyncDriver]):
    """A run: ``for event in run``, or ``run.result()``. ``with run`` closes it at the end."""

    def __iter__(self) -> Generator[Event, None, None]:
        abandoned = self._begin()
        driver = self._driver = SyncDriver(self._core)
        iterator = driver.follow(self._execution, abandoned)
        # Only a weak reference: when the caller leaves the loop, the iterator is collected and closed at once.
        self._iterator = ref(iterator)
        return iterator

    def result(self) -> RunResult:
        """Follow the run to its end, unless it was iterated, and return its result or raise its error."""
        if not self._has_begun:
            with closing(self.__iter__()) as events:
                for _ in events:
                    pass
        return self._finished()

    def close(self) -> None:
        """Disconnect. The run continues on the server."""
        self._leave()
        if self._driver is not None:
            self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Thread(ThreadBase[Transport, ClientRun]):
    """A conversation with an agent."""

    def _new_run(self, program: Program[RunResult], description: str) -> ClientRun:
        return ClientRun(self, self._slot, self._core, program, description)

    def cancel(self, run_id: str | None = None) -> bool:
        """Ask the server to cancel this thread's run, or ``run_id``. Return whether it was in progress.

        Clients that follow the run see it end as ``cancelled``. Raise ``HTTPRejected`` if the server refuses, and
        ``IllegalStep`` if there is no run.
        """
        return SyncDriver(self._core).finish(self._cancel_program(run_id))

    def refresh(self) -> Conversation:
        """Replace messages, state, open interrupts and pending calls by those on the server.

        Raise ``HTTPRejected``, or ``ProtocolError`` for a response that is not a thread; then nothing changes.
        """
        return SyncDriver(self._core).finish(self._refresh_program())

    def rename(self, title: str | None) -> ThreadInfo:
        """Change the title of the thread on the server; None removes it. Raise ``HTTPRejected``."""
        return SyncDriver(self._core).finish(change_thread(self._settings, self.id, {"title": title}))

    def archive(self, archived: bool = True) -> ThreadInfo:
        """Archive the thread on the server, or take it out of the archive. Raise ``HTTPRejected``."""
        return SyncDriver(self._core).finish(change_thread(self._settings, self.id, {"archived": archived}))

    def set_metadata(self, metadata: dict[str, Any] | None) -> ThreadInfo:
        """Replace the metadata of the thread on the server; None removes it. Raise ``HTTPRejected``."""
        return SyncDriver(self._core).finish(change_thread(self._settings, self.id, {"metadata": metadata}))

    def branch(self, run_id: str) -> Thread:
        """Return a view of this thread that continues from a run: it has and sends only that branch's messages.

        Raise as ``refresh`` does; ``HTTPRejected`` with 404 if the thread has no such run.
        """
        conversation = SyncDriver(self._core).finish(fetch_branch(self._settings, self.id, run_id))
        return self._open_branch(run_id, conversation)

    def fork(self, message_id: str) -> Thread:
        """Return a view that ends before a user message, or after the question that another message answers.

        ``view.run("...")`` sends an edited message; after an answer's question, ``view.run()`` asks for another answer.
        Raise as ``refresh`` does; ``IllegalStep`` if this branch has no such message, or no run before its turn.
        """
        tip = self._last_run_id()
        return self._open_branch(*SyncDriver(self._core).finish(fetch_fork(self._settings, self.id, message_id, tip)))

    def branches(self) -> ThreadTree:
        """Return the tree of the thread's runs on the server. Raise as ``refresh`` does."""
        return SyncDriver(self._core).finish(fetch_tree(self._settings, self.id))
