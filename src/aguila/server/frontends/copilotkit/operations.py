"""What the OpenAPI document says about CopilotKit's routes."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from aguila.protocol import RunAgentInput
from aguila.server.frontends.copilotkit import routes
from aguila.server.frontends.copilotkit.envelope import CopilotKitParams
from aguila.server.http.openapi.documents import Document, Title
from aguila.server.http.openapi.operation import (
    EVENTS,
    JSON,
    NO_CONTENT,
    Answer,
    Operation,
    Operations,
    Parameter,
    json_answer,
    number,
    text,
)
from aguila.server.http.thread_routes import MAX_PAGE


class CopilotKitError(Document, frozen=True, kw_only=True):
    """The body of an error on CopilotKit's routes."""

    error: str
    message: str
    code: str | UnsetType = UNSET
    details: str | UnsetType = UNSET


class CopilotKitEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """A request in an envelope."""

    method: Literal[
        "agent/connect", "agent/run", "agent/stop", "agent/suggest", "info", "resource/request", "transcribe"
    ]
    params: CopilotKitParams | None = None
    body: Any = None


class CopilotKitThread(Document, frozen=True, kw_only=True):
    """A thread in CopilotKit's lists."""

    id: str
    name: str | None
    agent_id: str
    organization_id: str
    created_by_id: str
    archived: bool
    created_at: str
    updated_at: str


class CopilotKitThreadList(Document, frozen=True, kw_only=True):
    """A page of threads."""

    threads: list[CopilotKitThread]
    next_cursor: str | None


class CopilotKitThreadChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What to change of a thread."""

    agent_id: str | UnsetType | None = UNSET
    name: Title | UnsetType | None = UNSET
    archived: bool | UnsetType = UNSET


class CopilotKitAgent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The agent whose threads are meant."""

    agent_id: str | UnsetType | None = UNSET


class CopilotKitStop(Document, frozen=True, kw_only=True):
    """The run to cancel; without it, the one in progress."""

    run_id: Annotated[str, Meta(pattern=r"\S")] | UnsetType = UNSET


class CopilotKitStopped(Document, frozen=True, kw_only=True):
    """Whether a run was cancelled."""

    stopped: bool
    message: str | UnsetType = UNSET
    interrupt: dict[str, Any] | UnsetType = UNSET


class CopilotKitArchived(Document, frozen=True, kw_only=True):
    """The thread was archived."""

    thread_id: str
    archived: bool


class CopilotKitDeleted(Document, frozen=True, kw_only=True):
    """The thread was deleted."""

    thread_id: str
    deleted: bool


class CopilotKitMessages(Document, frozen=True, kw_only=True):
    """The messages of a thread."""

    messages: list[dict[str, Any]]


class CopilotKitState(Document, frozen=True, kw_only=True):
    """The state of a thread."""

    state: Any


class CopilotKitEvents(Document, frozen=True, kw_only=True):
    """The log of a thread."""

    events: list[dict[str, Any]]


class CopilotKitNoService(Document, frozen=True, kw_only=True):
    """There is no such service."""

    error: str
    message: str
    retryable: bool


_OF_AGENT: Final = {"agentId": text("Only a thread of this agent")}
_INPUT: Final = {JSON: RunAgentInput}


def _operation(summary: str, kind: Any, **more: Any) -> Operation:
    return Operation(summary=summary, answers={200: json_answer(kind)}, errors=CopilotKitError, **more)


def _run(summary: str) -> Operation:
    return Operation(summary=summary, answers={200: EVENTS}, body=_INPUT, errors=CopilotKitError)


OPERATIONS: Final[Operations] = {
    routes.handle_envelope: Operation(
        summary="Send a request to one of the other routes in an envelope",
        answers={
            200: Answer(description="The response of that route", content={JSON: Any, **EVENTS.content}),
            204: NO_CONTENT[204],
            503: json_answer(
                (CopilotKitNoService, CopilotKitError), "There is no transcription, or the server is busy"
            ),
        },
        body={JSON: CopilotKitEnvelope},
        errors=CopilotKitError,
    ),
    routes.get_info: _operation("Get the agents and what this caller may do", dict[str, Any]),
    routes.run: _run("Start a run, or reconnect to it"),
    routes.suggest: _run("Start a run that is not stored"),
    routes.connect: _run("Hydrate a client with a thread, then follow its run"),
    routes.stop: _operation(
        "Cancel the run in progress on a thread", CopilotKitStopped, body={JSON: CopilotKitStop}, needs_body=False
    ),
    routes.list_threads: _operation(
        "List the threads of the caller, last updated first",
        CopilotKitThreadList,
        parameters={
            "agentId": text("Only the threads of this agent"),
            "includeArchived": text("`true`: archived threads, too"),
            "limit": number("The threads of a page; 50 if it is absent", 1, MAX_PAGE),
            "cursor": Parameter(
                description="`nextCursor` of the page before", schema={"type": "string", "pattern": "^[0-9]{1,18}$"}
            ),
        },
    ),
    routes.clear_threads: Operation(
        summary="Delete the idle threads of the caller",
        answers=NO_CONTENT,
        body={JSON: CopilotKitAgent},
        needs_body=False,
        errors=CopilotKitError,
    ),
    routes.update_thread: _operation(
        "Rename, archive or unarchive a thread", CopilotKitThread, body={JSON: CopilotKitThreadChange}, needs_body=False
    ),
    routes.delete_thread: _operation(
        "Delete a thread", CopilotKitDeleted, body={JSON: CopilotKitAgent}, needs_body=False
    ),
    routes.archive_thread: _operation(
        "Archive a thread", CopilotKitArchived, body={JSON: CopilotKitAgent}, needs_body=False
    ),
    routes.list_messages: _operation("Get the messages of a thread", CopilotKitMessages, parameters=_OF_AGENT),
    routes.list_events: _operation("Get the log of a thread", CopilotKitEvents, parameters=_OF_AGENT),
    routes.get_state: _operation("Get the state of a thread", CopilotKitState, parameters=_OF_AGENT),
    routes.transcribe: Operation(
        summary="Transcribe speech: always 503, because there is no transcription",
        answers={503: json_answer(CopilotKitNoService, "There is none")},
        errors=CopilotKitError,
    ),
}
"""What is said about each handler of CopilotKit's routes."""
