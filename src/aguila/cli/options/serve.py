"""``aguila serve``: its command-line options, in groups.

Options that configure an ``App`` are passed on only if they were given, and refused when the target is an ``App``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

APP_OPTIONS: Final = {
    "store": "store",
    "durability": "durability",
    "store_patience": "store_patience",
    "name": "name",
    "history": "history",
    "busy": "busy",
    "on_disconnect": "on_disconnect",
    "disconnect_grace": "disconnect_grace",
    "heartbeat": "heartbeat",
    "lease": "lease",
    "drain": "drain",
    "cancel_grace": "cancel_grace",
    "allowed_host": "allowed_hosts",
    "cors_origin": "cors_origins",
    "header": "headers_allowed",
    "allow_system_messages": "allow_system_messages",
    "unknown_history": "unknown_history",
    "state_key": "state_keys",
    "echo_input": "echo_input",
    "undeclared_peers": "undeclared_peers",
    "merge_deltas": "merge_deltas",
    "copilotkit": "copilotkit",
    "copilotkit_path": "copilotkit",
    "langgraph_interrupts": "langgraph_interrupts",
    "max_body": "limits.body",
    "max_upload": "limits.upload",
    "max_runs": "limits.runs",
    "max_runs_per_scope": "limits.runs_per_scope",
    "max_run_seconds": "limits.run_seconds",
    "max_stored_bytes": "limits.anonymous_bytes",
    "keep_seconds": "retention.max_age",
    "keep_threads": "retention.max_threads",
    "keep_bytes": "retention.max_bytes",
    "compact_after": "retention.compact_after",
    "page": "page",
    "debug": "debug",
}
"""Command-line options and the ``App`` parameters that they set."""

_SERVER: Final = "Server"
_THREADS: Final = "Threads and retention"
_RUNS: Final = "Runs"
_EVENTS: Final = "Events"
_ACCESS: Final = "Access and input"
_FRONT_ENDS: Final = "Front ends"
_LIMITS: Final = "Limits"


def _option(panel: str, help: str, *names: str, **more: Any) -> Any:  # noqa: A002 - typer's name
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


def _flag(panel: str, help: str, *names: str) -> Any:  # noqa: A002 - typer's name
    return _option(panel, help, *names, metavar="")  # typer shows a type, as if the option took a value


def _refuse_removed(given: bool) -> bool:
    if given:
        raise typer.BadParameter(
            "the option is gone: clients that declare no protocol version get one text and one tool call at a time; "
            "--undeclared-peers parallel sends parallel ones as the agent writes them"
        )
    return given


def serve(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME|URL",
            help="The agent or App to serve, importable from this directory; or the URL of an AG-UI endpoint.",
        ),
    ] = "aguila.cli.demo:agent",
    host: Annotated[
        str, _option(_SERVER, "Address to bind. Anything but a loopback address is reachable from the network.")
    ] = "127.0.0.1",
    port: Annotated[
        int, _option(_SERVER, "Port to bind; 0 picks a free one.", min=0, max=65535, metavar="PORT")
    ] = 8000,
    workers: Annotated[int, _option(_SERVER, "Processes that share the store.", min=1, metavar="N")] = 1,
    reload: Annotated[bool, _flag(_SERVER, "Restart when code changes.", "--reload")] = False,
    forwarded_allow_ips: Annotated[
        str | None,
        _option(
            _SERVER,
            "Addresses of proxies whose X-Forwarded-For names the visitor, with commas, or *. Default: 127.0.0.1.",
            metavar="ADDRESSES",
        ),
    ] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], _option(_SERVER, "Lowest level of log lines.", metavar="LEVEL")
    ] = "info",
    json_logs: Annotated[bool, _flag(_SERVER, "Write log lines as JSON.", "--json-logs")] = False,
    debug: Annotated[bool, _flag(_SERVER, "Send the text of exceptions to clients.", "--debug")] = False,
    name: Annotated[str | None, _option(_SERVER, "Agent name in /capabilities.")] = None,
    store: Annotated[
        str | None,
        _option(
            _THREADS,
            "Path or URL of the store for the threads, or :memory:. Default: that of AGUILA_STORE or "
            "AGUILA_STORE_FILE, else aguila.db.",
            metavar="STORE",
        ),
    ] = None,
    durability: Annotated[
        Literal["process", "power"],
        _option(_THREADS, "What stored events survive: the death of the process, or also the loss of power."),
    ] = "process",
    store_patience: Annotated[
        float,
        _option(_THREADS, "How long a run waits for a store that does not answer.", min=0.1, metavar="SECONDS"),
    ] = 5.0,
    history: Annotated[
        Literal["client", "server"],
        _option(_THREADS, "Use the messages of the request (client), or those in the store (server)."),
    ] = "client",
    keep_seconds: Annotated[
        float | None, _option(_THREADS, "Delete threads that were idle for longer than this.", min=0, metavar="SECONDS")
    ] = None,
    keep_threads: Annotated[
        int | None, _option(_THREADS, "Delete the oldest threads beyond this number.", min=0, metavar="N")
    ] = None,
    keep_bytes: Annotated[
        int | None, _option(_THREADS, "Delete the oldest threads beyond this total size.", min=0, metavar="BYTES")
    ] = None,
    compact_after: Annotated[
        float | None,
        _option(_THREADS, "Compact the logs of runs that ended longer ago than this.", min=0, metavar="SECONDS"),
    ] = None,
    busy: Annotated[
        Literal["auto", "reject", "queue", "replace"],
        _option(
            _RUNS,
            "What happens to a second run on a busy thread: reject, queue, replace (cancel the first), or auto "
            "(replace a run without viewers, reject otherwise).",
            metavar="POLICY",
        ),
    ] = "auto",
    on_disconnect: Annotated[
        Literal["continue", "cancel"], _option(_RUNS, "What happens to a run when its last viewer disconnects.")
    ] = "continue",
    disconnect_grace: Annotated[
        float, _option(_RUNS, "Time before --on-disconnect cancel takes effect.", min=0, metavar="SECONDS")
    ] = 5.0,
    heartbeat: Annotated[
        float, _option(_RUNS, "Time between comments on an idle stream.", min=0.1, metavar="SECONDS")
    ] = 15.0,
    lease: Annotated[
        float, _option(_RUNS, "Time after which a run of a dead process is ended.", min=0.1, metavar="SECONDS")
    ] = 30.0,
    drain: Annotated[float, _option(_RUNS, "Time for runs to finish at shutdown.", min=0, metavar="SECONDS")] = 10.0,
    cancel_grace: Annotated[
        float, _option(_RUNS, "Time for a cancelled agent to clean up.", min=0, metavar="SECONDS")
    ] = 5.0,
    merge_deltas: Annotated[
        bool,
        _flag(_EVENTS, "Merge deltas of the same item that are buffered together.", "--merge-deltas/--no-merge-deltas"),
    ] = True,
    one_text_at_a_time: Annotated[
        bool, typer.Option("--one-text-at-a-time", hidden=True, callback=_refuse_removed)
    ] = False,
    allowed_host: Annotated[
        list[str] | None, _option(_ACCESS, "Also accept this Host header. Repeatable.", metavar="HOST")
    ] = None,
    cors_origin: Annotated[
        list[str] | None, _option(_ACCESS, "Allow pages of this origin. Repeatable.", metavar="ORIGIN")
    ] = None,
    header: Annotated[
        list[str] | None,
        _option(_ACCESS, "Show this request header to the agent. CORS does not need it. Repeatable.", metavar="NAME"),
    ] = None,
    upstream_header: Annotated[
        list[str] | None,
        _option(_ACCESS, "Send this header to the endpoint at URL. Repeatable.", metavar="'NAME: VALUE'"),
    ] = None,
    allow_system_messages: Annotated[
        bool, _flag(_ACCESS, "Pass clients' system messages to the agent.", "--allow-system-messages")
    ] = False,
    unknown_history: Annotated[
        Literal["keep", "drop"],
        _option(
            _ACCESS,
            "Assistant and tool messages of a client that no run has sent: pass them to the agent, or drop them.",
        ),
    ] = "keep",
    state_key: Annotated[
        list[str] | None, _option(_ACCESS, "Let clients change only this key of the state. Repeatable.", metavar="KEY")
    ] = None,
    echo_input: Annotated[bool, _flag(_EVENTS, "Include the input in RUN_STARTED.", "--echo-input")] = False,
    front_end: Annotated[
        Literal["copilotkit", "assistant-ui", "tanstack", "tdesign"] | None,
        _option(
            _FRONT_ENDS,
            "Set what copilotkit, assistant-ui, tanstack or tdesign needs. Options beside it win.",
            "--for",
            metavar="FRONT_END",
        ),
    ] = None,
    undeclared_peers: Annotated[
        Literal["flatten", "parallel", "subagents", "meta"],
        _option(
            _FRONT_ENDS,
            "Events for clients that declare no protocol version: with SUBAGENT_* (subagents), with META (meta), or "
            "with neither (flatten), each with one text and one tool call at a time; or with parallel ones (parallel).",
            metavar="EVENTS",
        ),
    ] = "flatten",
    copilotkit: Annotated[bool, _flag(_FRONT_ENDS, "Serve CopilotKit pages, without Node.", "--copilotkit")] = False,
    copilotkit_path: Annotated[
        str, _option(_FRONT_ENDS, "Serve CopilotKit pages at this path; implies --copilotkit.", metavar="PATH")
    ] = "/copilotkit",
    langgraph_interrupts: Annotated[
        bool, _flag(_FRONT_ENDS, "Also send interrupts as CUSTOM on_interrupt.", "--langgraph-interrupts")
    ] = False,
    page: Annotated[
        bool | None,
        _flag(
            _FRONT_ENDS,
            "Serve the page with chat and inspector. Default: only on a loopback address.",
            "--page/--no-page",
        ),
    ] = None,
    open: Annotated[bool, _flag(_FRONT_ENDS, "Open the page in the browser.", "--open")] = False,  # noqa: A002
    max_body: Annotated[int, _option(_LIMITS, "Largest request body.", min=1, metavar="BYTES")] = 10 * 1024 * 1024,
    max_upload: Annotated[int, _option(_LIMITS, "Largest uploaded file.", min=1, metavar="BYTES")] = 20 * 1024 * 1024,
    max_runs: Annotated[int, _option(_LIMITS, "Concurrent runs in one process.", min=1, metavar="N")] = 10_000,
    max_runs_per_scope: Annotated[
        int, _option(_LIMITS, "Concurrent runs of one scope, in all processes.", min=1, metavar="N")
    ] = 100,
    max_run_seconds: Annotated[
        float | None,
        _option(_LIMITS, "Longest run. Beyond it, the run ends with an error.", min=0.1, metavar="SECONDS"),
    ] = None,
    max_stored_bytes: Annotated[
        int,
        _option(_LIMITS, "Total size of threads and files. Beyond it, new runs are refused.", min=1, metavar="BYTES"),
    ] = 4 * 1024 * 1024 * 1024,
) -> None:
    """Serve an agent over AG-UI; without one, the demo. With a URL, make the runs of any AG-UI endpoint durable."""
    from aguila.cli import serve as serving
    from aguila.cli.http_caller import is_url
    from aguila.server import front_end_options

    if reload and workers > 1:
        raise typer.BadParameter("--reload works with one process only; drop --workers")
    if upstream_header and not is_url(target):
        raise typer.BadParameter("--upstream-header is for the URL of an endpoint; drop it")
    given = [option for option in APP_OPTIONS if _is_given(context, option)]
    named = ["--" + option.replace("_", "-") for option in given]
    options = _nested({APP_OPTIONS[option]: context.params[option] for option in given if option != "store"})
    if front_end is not None:
        options = front_end_options(front_end) | options
        named.append(f'--for {front_end} (as **front_end_options("{front_end}"))')
    what = serving.Serving(
        target=target,
        folder=str(Path.cwd()),
        store=None if store is None else _absolute(store),
        host=host,
        options=options,
        given=named,
        upstream_headers=_headers(upstream_header or ()),
    )
    try:
        serving.serve(
            what,
            port=port,
            workers=workers,
            reload=reload,
            forwarded_allow_ips=forwarded_allow_ips,
            log_level=log_level,
            json_logs=json_logs,
            open_page=open,
        )
    except serving.CannotServe as error:
        typer.echo(f"aguila serve: {error}", err=True)
        raise typer.Exit(1) from None


def _absolute(store: str) -> str:
    """Return a location that is the same in every directory. Warn of a password, which other users can see."""
    from aguila.cli.store_locations import FILE, LOCATION, absolute_location, has_password

    if has_password(store):
        problem = "the password in --store is visible to all users of this machine, in the list of processes"
        typer.echo(f"aguila serve: {problem}; use {LOCATION}, {FILE} or PGPASSWORD instead", err=True)
    try:
        return absolute_location(store)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")


def _headers(lines: Sequence[str]) -> dict[str, str]:
    from aguila.cli.http_caller import CannotRun, headers_of

    try:
        return headers_of(lines)
    except CannotRun as error:
        raise typer.BadParameter(str(error)) from None


def _nested(options: dict[str, Any]) -> dict[str, Any]:
    """Turn ``{"limits.body": 5}`` into ``{"limits": {"body": 5}}``."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        group, dot, member = name.partition(".")
        if dot == "":
            found[name] = value
        else:
            found.setdefault(group, {})[member] = value
    return found
