"""The JSON documents of the routes, as types for the OpenAPI document.

The handlers write these documents themselves; ``tests/server/http/test_openapi.py`` holds them against these types.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from aguila.protocol import FileSource, Interrupt, Message, RunAgentInput
from aguila.server.http.openapi.operation import ID
from aguila.store.encoding import MAX_TITLE


class Document(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A JSON document that a route sends."""


Title = Annotated[str, Meta(max_length=MAX_TITLE)]
RunState = Literal["running", "success", "interrupt", "error", "cancelled"]


class Problem(Document, frozen=True, kw_only=True):
    """Why a request was refused. docs/errors.md says what to do about each `code`."""

    code: str
    message: str
    path: str | UnsetType = UNSET


class ErrorDocument(Document, frozen=True, kw_only=True):
    """The body of every error."""

    error: Problem


class Status(Document, frozen=True, kw_only=True):
    """The server works."""

    status: Literal["ok"]


class AgentName(Document, frozen=True, kw_only=True):
    """An agent that requests can name."""

    name: str


class AgentList(Document, frozen=True, kw_only=True):
    """The agents; `POST /` runs the first."""

    agents: list[AgentName]


class RunDocument(Document, frozen=True, kw_only=True):
    """A run. `first` and `last` are the sequence numbers of its events, times are seconds since the Unix epoch."""

    thread_id: str
    run_id: str
    agent: str
    parent_run_id: str | None
    status: RunState
    cancel_requested: bool
    first: int
    last: int
    cursor: str
    started_at: float
    ended_at: float | None


class OpenRun(RunDocument, frozen=True, kw_only=True):
    """A run in progress, and its scope."""

    scope: str


class OpenRuns(Document, frozen=True, kw_only=True):
    """The runs in progress, the oldest first."""

    runs: list[OpenRun]


class ScopeUsage(Document, frozen=True, kw_only=True):
    """What a scope stores. The events of a compacted run count as before."""

    scope: str
    threads: int
    runs: int
    events: int
    bytes: int
    files: int


class ScopeList(Document, frozen=True, kw_only=True):
    """The scopes, the one with the most bytes first."""

    scopes: list[ScopeUsage]


class WithdrawnRun(Document, frozen=True, kw_only=True):
    """A run that was cancelled before it began."""

    thread_id: str
    run_id: str
    status: Literal["cancelled"]
    cancel_requested: Literal[True] = True


class IdleThread(Document, frozen=True, kw_only=True):
    """A thread on which nothing runs."""

    thread_id: str
    run_id: None
    status: Literal["idle"]
    cancel_requested: bool


class ThreadDocument(Document, frozen=True, kw_only=True):
    """A thread without its messages."""

    thread_id: str
    created_at: float
    updated_at: float
    last: int
    cursor: str
    runs: int
    is_running: bool
    running_run_id: str | None
    agent: str
    title: str | None
    archived: bool
    metadata: dict[str, Any] | None


class ThreadList(Document, frozen=True, kw_only=True):
    """A page of threads. `next` is the `before` of the next page. `caller` is the same for all requests of a caller."""

    threads: list[ThreadDocument]
    next: str | None
    caller: str


class ThreadChange(Document, frozen=True, kw_only=True):
    """What to change of a thread; absent members stay as they are."""

    title: Title | UnsetType | None = UNSET
    archived: bool | UnsetType = UNSET
    metadata: Annotated[dict[str, Any], Meta(max_length=64)] | UnsetType | None = UNSET


class ThreadView(Document, frozen=True, kw_only=True):
    """A thread: its messages and state after the run `tip`, and the last event that they include."""

    thread_id: str
    agent: str
    title: str | None
    archived: bool
    metadata: dict[str, Any] | None
    state: Any
    interrupts: list[Interrupt]
    pending_tool_call_ids: list[str]
    last: int
    cursor: str
    tip: str | None
    messages: list[Message]
    runs: list[RunDocument]


class RunInput(Document, frozen=True, kw_only=True):
    """The request of a run, and the messages and state that its events change."""

    input: RunAgentInput
    messages: list[Message]
    state: Any


class RunFinding(Document, frozen=True, kw_only=True):
    """A rule of the protocol that an event breaks, or a warning about it."""

    source: Literal["run", "upstream"]
    number: int | None
    level: Literal["error", "warning", "note"]
    rule: str
    message: str
    text: str
    help: str
    index: int | UnsetType = UNSET
    event: str | UnsetType = UNSET
    path: str | UnsetType = UNSET
    stream: int | UnsetType = UNSET
    sent: str | UnsetType = UNSET


class RunCheck(Document, frozen=True, kw_only=True):
    """The findings about the events of a run."""

    thread_id: str
    run_id: str
    events: int
    is_running: bool
    findings: list[RunFinding]
    upstream_events: int | UnsetType = UNSET


class StoredFile(Document, frozen=True, kw_only=True):
    """An uploaded file. `source` goes into a content part of a message."""

    id: str
    media_type: str
    filename: str | None
    size: int
    source: FileSource


class UploadForm(Document, frozen=True, kw_only=True):
    """A form with one file."""

    file: Annotated[Any, Meta(extra_json_schema={"type": "string", "contentMediaType": "application/octet-stream"})]
    thread_id: Annotated[str, Meta(extra_json_schema=ID)] | UnsetType = UNSET
