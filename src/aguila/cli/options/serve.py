"""``aguila serve``: its command-line options, in groups.

Options that configure an ``App`` are passed on only if they were given, and refused when the target is an ``App``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from aguila.cli.options.help_texts import Command
from aguila.cli.options.settings import add_variables, read_file, source_of, split_variables

APP_OPTIONS: Final = {
    "store": "store",
    "history": "history",
    "busy": "busy",
    "drain": "drain",
    "keep_seconds": "retention",
    "allowed_host": "allowed_hosts",
    "cors_origin": "cors_origins",
    "header": "headers_allowed",
    "copilotkit": "copilotkit",
    "copilotkit_path": "copilotkit",
    "langgraph_interrupts": "langgraph_interrupts",
    "page": "page",
    "metrics": "metrics",
    "trace_url": "trace_url",
    "debug": "debug",
}
"""The options that set an option of ``App``, and which one."""

REMOVED: Final = {
    "--store-patience": "App(timing=Timing(store_patience=5))",
    "--lease": "App(timing=Timing(lease=30))",
    "--cancel-grace": "App(timing=Timing(cancel_grace=5))",
    "--heartbeat": "App(heartbeat=15)",
    "--on-disconnect": "App(cancel_unwatched_after=5)",
    "--disconnect-grace": "App(cancel_unwatched_after=5)",
    "--allow-system-messages": "App(trust=Trust(system_messages=True))",
    "--unknown-history": 'App(trust=Trust(unknown_history="drop"))',
    "--state-key": 'App(trust=Trust(state_keys=["draft"]))',
    "--echo-input": "App(sends=Sends(echo_input=True))",
    "--merge-deltas": "App(sends=Sends(merge_deltas=True))",
    "--no-merge-deltas": "App(sends=Sends(merge_deltas=False))",
    "--undeclared-peers": 'App(sends=Sends(undeclared_peers="subagents"))',
    "--one-text-at-a-time": 'App(sends=Sends(undeclared_peers="parallel")) for parallel texts',
    "--max-body": "App(limits=Limits(body=10 << 20))",
    "--max-upload": "App(limits=Limits(upload=20 << 20))",
    "--max-runs": "App(limits=Limits(runs=10_000))",
    "--max-runs-per-scope": "App(limits=Limits(runs_per_scope=100))",
    "--max-run-seconds": "App(limits=Limits(run_seconds=600))",
    "--max-stored-bytes": "App(limits=Limits(anonymous=Quota(bytes=4 << 30)))",
    "--keep-threads": "App(retention=Retention(max_threads=10_000))",
    "--keep-bytes": "App(retention=Retention(max_bytes=10 << 30))",
    "--compact-after": "App(retention=Retention(compact_after=86_400))",
    "--name": 'App(capabilities={"identity": {"name": "..."}})',
    "--durability": "--store sqlite:///path?durability=power",
}
"""The options of earlier versions, and where each is now."""

_SERVER: Final = "Server"
_THREADS: Final = "Threads and retention"
_RUNS: Final = "Runs"
_MODEL: Final = "Model"
_ACCESS: Final = "Access and input"
_FRONT_ENDS: Final = "Front ends"


def _option(panel: str, help: str, *names: str, **more: Any) -> Any:  # noqa: A002 - typer's name
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


def _flag(panel: str, help: str, *names: str) -> Any:  # noqa: A002 - typer's name
    return _option(panel, help, *names, metavar="")  # typer shows a type, as if the option took a value


class ServeCommand(Command):
    """The command. It also reads the environment, and says where an option of an earlier version is now."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        add_variables(self.params)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments, and the environment and the file for those that are absent."""
        for word in args:
            if (place := REMOVED.get(word.partition("=")[0])) is not None:
                raise typer.BadParameter(f"{word.partition('=')[0]} is gone; use {place}", ctx=ctx)
        try:
            rest = super().parse_args(ctx, args)
        except typer.BadParameter as error:
            if error.param is not None and error.param.name == "port" and "tcp://" in os.environ.get("AGUILA_PORT", ""):
                error.message += (
                    ". Kubernetes sets AGUILA_PORT in the pods beside a Service that is named aguila:"
                    " add enableServiceLinks: false to the pod, or set AGUILA_PORT."
                )
            raise
        split_variables(ctx)
        return rest


def serve(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME|URL",
            help="The agent or App to serve, importable from this directory; or the URL of an AG-UI endpoint.",
        ),
    ] = "aguila.cli.demo:agent",
    config: Annotated[
        Path | None,
        _option(
            _SERVER,
            "TOML file with options: drain = 30. Arguments and variables win over it.",
            metavar="FILE",
            is_eager=True,
            callback=read_file,
        ),
    ] = None,
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
    metrics: Annotated[
        bool, _flag(_SERVER, "Answer GET /metrics for Prometheus, on this machine only.", "--metrics")
    ] = False,
    debug: Annotated[bool, _flag(_SERVER, "Send the text of exceptions to clients.", "--debug")] = False,
    store: Annotated[
        str | None,
        _option(
            _THREADS,
            "Path or URL of the store for the threads, or :memory:. Default: that of AGUILA_STORE or "
            "AGUILA_STORE_FILE, else aguila.db.",
            metavar="STORE",
        ),
    ] = None,
    model: Annotated[
        str | None,
        _option(
            _MODEL,
            "Serve a chat with this model instead of an agent, such as openai:gpt-5.4-mini. Extra: models.",
            metavar="VENDOR:MODEL",
        ),
    ] = None,
    instructions: Annotated[str | None, _option(_MODEL, "Instructions of the model.", metavar="TEXT")] = None,
    mcp: Annotated[
        list[str] | None,
        _option(_MODEL, "Give the model the tools of this MCP server. Repeatable.", metavar="URL|COMMAND"),
    ] = None,
    tools: Annotated[
        list[str] | None,
        _option(_MODEL, "Give the model the public functions of this module. Repeatable.", metavar="MODULE"),
    ] = None,
    history: Annotated[
        Literal["client", "server"],
        _option(_THREADS, "Use the messages of the request (client), or those in the store (server)."),
    ] = "client",
    keep_seconds: Annotated[
        float | None, _option(_THREADS, "Delete threads that were idle for longer than this.", min=0, metavar="SECONDS")
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
    drain: Annotated[float, _option(_RUNS, "Time for runs to finish at shutdown.", min=0, metavar="SECONDS")] = 10.0,
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
    front_end: Annotated[
        Literal["copilotkit", "assistant-ui", "tanstack", "tdesign"] | None,
        _option(
            _FRONT_ENDS,
            "Set what copilotkit, assistant-ui, tanstack or tdesign needs. Options beside it win.",
            "--for",
            metavar="NAME",
        ),
    ] = None,
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
    trace_url: Annotated[
        str | None,
        _option(
            _FRONT_ENDS,
            "Link runs in the inspector to traces at this address, which contains {trace_id}.",
            metavar="URL",
        ),
    ] = None,
    open: Annotated[bool, _flag(_FRONT_ENDS, "Open the page in the browser.", "--open")] = False,  # noqa: A002
) -> None:
    """Serve an agent over AG-UI; without one, the demo. With a URL, make the runs of any AG-UI endpoint durable.

    With --model, serve a chat with any model: aguila serve --model openai:gpt-5.4-mini --mcp http://127.0.0.1:9000/mcp
    """
    from aguila.cli import serve as serving
    from aguila.cli.http_caller import is_url
    from aguila.cli.store_locations import names_store
    from aguila.server import front_end_options
    from aguila.store import Retention

    if reload and workers > 1:
        raise typer.BadParameter("--reload works with one process only; drop --workers")
    if upstream_header and not is_url(target):
        raise typer.BadParameter("--upstream-header is for the URL of an endpoint; drop it")
    chat = None
    if model is not None:
        if source_of(context, "target") is not None:
            raise typer.BadParameter(f"--model serves a chat of its own; drop {target}")
        chat = serving.ModelChat(model=model, instructions=instructions, mcp=mcp or [], tools=tools or [])
    elif instructions is not None or mcp or tools:
        raise typer.BadParameter("--instructions, --mcp and --tools are for a chat with --model; name the model")
    given = {option: source for option in APP_OPTIONS if (source := source_of(context, option)) is not None}
    if given.get("store") != "--store" and names_store(os.environ):
        store = None  # the variables win over the file
        given.pop("store", None)
    options = {APP_OPTIONS[option]: context.params[option] for option in given if option != "store"}
    if keep_seconds is not None:
        options["retention"] = Retention(max_age=keep_seconds)
    if front_end is not None:
        options = front_end_options(front_end) | options
        given["front_end"] = f'{source_of(context, "front_end")} (as **front_end_options("{front_end}"))'
    what = serving.Serving(
        target=target if chat is None else chat.model,
        chat=chat,
        folder=str(Path.cwd()),
        store=None if store is None else _absolute(store, given["store"]),
        host=host,
        options=options,
        given=list(given.values()),
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


def _absolute(store: str, source: str) -> str:
    """Return a location that is the same in every directory. Warn of a password, which other users can see."""
    from aguila.cli.store_locations import FILE, LOCATION, absolute_location, has_password

    if source == "--store" and has_password(store):
        problem = "the password in --store is visible to all users of this machine, in the list of processes"
        typer.echo(f"aguila serve: {problem}; use {LOCATION}, {FILE} or PGPASSWORD instead", err=True)
    try:
        return absolute_location(store)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _headers(lines: Sequence[str]) -> dict[str, str]:
    from aguila.cli.http_caller import CannotRun, headers_of

    try:
        return headers_of(lines)
    except CannotRun as error:
        raise typer.BadParameter(str(error)) from None
