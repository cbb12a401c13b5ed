"""The operations of the routes of every app."""

from __future__ import annotations

from typing import Any, Final

from aguila.codec.negotiate import SSE_MEDIA_TYPE
from aguila.protocol import AgentCapabilities, RunAgentInput
from aguila.server.http import admin_routes, data_routes, file_routes, inspect_routes, run_routes, thread_routes
from aguila.server.http import routes as app_routes
from aguila.server.http.openapi.documents import (
    AgentList,
    ErrorDocument,
    IdleThread,
    OpenRuns,
    RunCheck,
    RunDocument,
    RunInput,
    ScopeList,
    Status,
    StoredFile,
    ThreadChange,
    ThreadDocument,
    ThreadList,
    ThreadView,
    UploadForm,
    WithdrawnRun,
)
from aguila.server.http.openapi.operation import (
    ANY,
    EVENTS,
    ID,
    JSON,
    NO_CONTENT,
    Answer,
    Operation,
    Operations,
    Parameter,
    flag,
    json_answer,
    number,
    text,
)
from aguila.server.http.parameters import MAX_DIGITS
from aguila.server.http.probe import probe
from aguila.server.http.thread_routes import MAX_PAGE

_CURSOR_PATTERN: Final = r"[0-9]+(-[^.]*)?([.][0-9]+)?"
CURSOR: Final = {
    "after": Parameter(
        description="The id of an event of this thread, or its sequence number: send the events after it",
        schema={"type": "string", "pattern": f"^{_CURSOR_PATTERN}$"},
    ),
    "Last-Event-ID": Parameter(
        description="The same as `after`, which it overrides unless it is empty",
        schema={"type": "string", "pattern": f"^({_CURSOR_PATTERN})?$"},
        is_header=True,
    ),
}
_BUSY: Final = {409: json_answer(ErrorDocument, "Refused: a run is in progress (`thread_busy`)")}
_FOLLOWED: Final = {
    **CURSOR,
    "compact": flag("Merge the events of each ended run"),
    "times": flag("Send the time of each batch as an SSE comment; needs SSE, and not `compact`"),
    "protocolVersion": text("The protocol version that the reader understands"),
}
_STARTED: Final = {
    **CURSOR,
    "store": flag("false: do not store the run. It is cancelled when the client disconnects"),
    "times": flag("Send the time of each batch as an SSE comment; needs SSE"),
}
_PAGED: Final = {
    "limit": number("The threads of a page; 50 if it is absent", 1, MAX_PAGE),
    "before": Parameter(description="`next` of the page before", schema={"type": "string", "pattern": "^[0-9]{1,18}$"}),
    "archived": flag("Only archived threads, or only the others"),
    "metadataKey": text("Only threads whose metadata have this member"),
    "metadataValue": text("... with this value; needs `metadataKey`"),
    "If-None-Match": Parameter(description="The ETag of an earlier answer", is_header=True),
}
_INPUT: Final = {JSON: RunAgentInput}
_CANCELLED: Final = {
    200: json_answer((RunDocument, WithdrawnRun), "The run has ended, or has not begun"),
    202: json_answer(RunDocument, "The run is ending"),
}
_SCOPE: Final = text("Only this scope")
_EXPORT: Final = Answer(
    description="JSON lines, as `aguila scopes export` writes them", content={"application/jsonl": None}
)


def _json(summary: str, kind: Any, **more: Any) -> Operation:
    return Operation(summary=summary, answers={200: json_answer(kind)}, **more)


OPERATIONS: Final[Operations] = {
    run_routes.start_run: Operation(
        summary="Start a run, or reconnect to it", answers={200: EVENTS}, body=_INPUT, parameters=_STARTED
    ),
    run_routes.connect: Operation(
        summary="Hydrate a client with a thread, then follow its run", answers={200: EVENTS}, body=_INPUT
    ),
    app_routes.get_capabilities: _json("Get what the agent declares about itself", AgentCapabilities),
    app_routes.list_agents: _json("List the agents", AgentList),
    app_routes.check_health: _json("Check that the process answers", Status),
    app_routes.check_readiness: _json("Check that the server takes runs and its store can write", Status),
    app_routes.get_openapi: _json("Get this document", dict[str, Any]),
    probe: Operation(
        summary="See how a request and its stream arrive: two events",
        answers={200: Answer(description="CUSTOM events named aguila.probe, as SSE", content={SSE_MEDIA_TYPE: None})},
        parameters={"silence": flag("Send the second event after as many seconds as a stream may be silent")},
    ),
    thread_routes.list_threads: Operation(
        summary="List the threads of the caller, last updated first",
        answers={200: json_answer(ThreadList), 304: Answer(description="The list has not changed")},
        parameters=_PAGED,
    ),
    thread_routes.get_thread: _json(
        "Get the messages and the state of a thread",
        ThreadView,
        parameters={"run": text("The thread as it was after this run: another branch")},
    ),
    thread_routes.update_thread: _json(
        "Change title, archived flag or metadata of a thread", ThreadDocument, body={JSON: ThreadChange}
    ),
    thread_routes.delete_thread: Operation(
        summary="Delete a thread with its log and its files", answers={**NO_CONTENT, **_BUSY}
    ),
    thread_routes.stream_thread_events: Operation(
        summary="Follow a thread: its log after a cursor, then the run in progress",
        answers={200: EVENTS},
        parameters=_FOLLOWED,
    ),
    run_routes.cancel_thread: Operation(
        summary="Cancel the run in progress on a thread",
        answers={200: json_answer((RunDocument, IdleThread), "Nothing runs"), 202: _CANCELLED[202]},
    ),
    run_routes.get_run: _json("Get the status of a run", RunDocument),
    run_routes.stream_run_events: Operation(
        summary="Follow a run: its events after a cursor, then live", answers={200: EVENTS}, parameters=_FOLLOWED
    ),
    run_routes.cancel_run: Operation(summary="Cancel a run", answers=_CANCELLED),
    inspect_routes.get_run_input: _json("Get the request of a run", RunInput),
    inspect_routes.check_run: _json("Check the events of a run against the rules of the protocol", RunCheck),
    file_routes.upload_file: Operation(
        summary="Upload a file: as a form, or as the body",
        answers={201: json_answer(StoredFile, "The file is stored")},
        body={"multipart/form-data": UploadForm, ANY: None},
        needs_body=False,
        parameters={
            "filename": text("The name of the file, if it is the body"),
            "threadId": Parameter(description="Delete the file with this thread", schema={"type": "string", **ID}),
        },
    ),
    file_routes.download_file: Operation(
        summary="Download a file",
        answers={
            200: Answer(description="The file", content={ANY: None}),
            206: Answer(description="The range of the file that was asked for", content={ANY: None}),
            304: Answer(description="The client has the file"),
        },
        parameters={
            "Range": Parameter(description="One range of bytes", is_header=True),
            "If-Range": Parameter(description="The ETag for which the range counts", is_header=True),
            "If-None-Match": Parameter(description="The ETag of an earlier answer", is_header=True),
        },
    ),
    file_routes.delete_file: Operation(summary="Delete a file", answers=NO_CONTENT),
    data_routes.export_data: Operation(summary="Export everything that the caller has stored", answers={200: _EXPORT}),
    admin_routes.list_open_runs: _json(
        "List the runs in progress of all scopes",
        OpenRuns,
        parameters={
            "scope": _SCOPE,
            "olderThan": number("Only runs that began this many seconds ago, or longer", 0, 10**MAX_DIGITS - 1),
        },
    ),
    admin_routes.list_usage: _json("Count what each scope stores", ScopeList, parameters={"scope": _SCOPE}),
    admin_routes.cancel_run_of_scope: Operation(summary="Cancel a run of any scope", answers=_CANCELLED),
    data_routes.delete_data: Operation(
        summary="Delete everything that the caller has stored", answers={**NO_CONTENT, **_BUSY}
    ),
}
"""What is said about each handler of the table of routes."""
