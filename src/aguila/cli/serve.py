"""``aguila serve``: import an agent or an ``App`` from a module, or call an endpoint, and serve it on uvicorn.

If the options are not enough, write an ``App`` and serve it with this command or any ASGI server.
"""

from __future__ import annotations

import asyncio
import importlib
import ipaddress
import math
import os
import shutil
import socket
import sys
import threading
import time
import traceback
import webbrowser
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import msgspec
import typer
import uvicorn
from uvicorn.supervisors import ChangeReload

from aguila.cli.http_caller import is_url
from aguila.cli.output.logs import log_config
from aguila.cli.store_locations import DEFAULT_STORE, store_from_environment
from aguila.cli.supervision import LoopWatch, Supervisor, end_with_supervisor
from aguila.errors import MissingExtra, StoreUnavailable
from aguila.frameworks import upstream
from aguila.frameworks.relay.upstream import Upstream
from aguila.server import App
from aguila.server.config.agents import named_agents
from aguila.server.frontends.page.files import NOT_BUILT, PageFiles
from aguila.server.http.access import LOOPBACK_NAMES
from aguila.server.http.bounded_protocol import BoundedHTTPProtocol
from aguila.server.http.not_loaded import answer_not_loaded
from aguila.store import MemoryStore, Store
from aguila.store.locations import MEMORY

LOCAL_HOSTS = LOOPBACK_NAMES
"""Host names of this machine for its own users."""


class ModelChat(msgspec.Struct, frozen=True, kw_only=True):
    """A chat with a model, its MCP servers (URLs or commands) and modules of tools."""

    model: str
    instructions: str | None = None
    mcp: list[str] = []
    tools: list[str] = []


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """The target of ``serve`` and its options, which are passed to worker processes."""

    target: str
    folder: str
    chat: ModelChat | None = None
    """What to serve instead of the target."""
    store: str | None = None
    """The location of the store; None until it is read from the environment."""
    host: str = "127.0.0.1"
    options: dict[str, Any] = {}
    """Parameters of ``App`` that were given as options."""
    given: list[str] = []
    """Where each was given: ``--drain``, ``AGUILA_DRAIN`` or ``drain in aguila.toml``."""
    upstream_headers: dict[str, str] = {}
    """Headers for the endpoint, if the target is a URL."""
    metrics_folder: str | None = None
    """Where several workers share their counts, if the app serves metrics."""
    inspects: bool = False
    """Whether the target is inspected: its protocol violations are recorded, and its error texts are passed on."""

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)


class CannotServe(Exception):
    """The target cannot be served; the message is for the user."""


def serve(
    serving: Serving,
    *,
    port: int,
    workers: int,
    reload: bool,
    json_logs: bool,
    forwarded_allow_ips: str | None = None,
    log_level: str = "info",
    open_page: bool = False,
) -> None:
    """Serve until a signal. Raise ``CannotServe``."""
    serving = _with_store(serving)
    app = build(serving)  # workers build their own; here it shows errors before anything is started
    if workers > 1 and isinstance(app.store, MemoryStore):
        raise CannotServe("several workers cannot share threads in memory; use --store STORE, or App(store=path)")
    if open_page and app.page is None:
        raise CannotServe("--open needs the page; drop --no-page, or use App(page=True)")
    listener = listen(serving.host, port)
    try:
        asyncio.run(_try(app.store))
    except StoreUnavailable as error:
        listener.close()
        raise CannotServe(str(error)) from None
    has_workers = workers > 1 or reload
    folders = ExitStack()
    if workers > 1 and app.metrics is not None and app.metrics.folder is None:
        folder = folders.enter_context(TemporaryDirectory(prefix="aguila-metrics-"))
        serving = msgspec.structs.replace(serving, metrics_folder=folder)
    # Pickled into the pipe of each worker, so that no subprocess of an agent inherits the URL of the store.
    factory = partial(build_for_reload if reload else build_in_worker, serving)
    config = uvicorn.Config(
        factory if has_workers else LoopWatch(app),
        factory=has_workers,
        workers=workers,
        reload=reload,
        lifespan="on",
        http=BoundedHTTPProtocol,
        forwarded_allow_ips=forwarded_allow_ips,
        access_log=False,
        server_header=False,
        log_config=log_config(as_json=json_logs, level=log_level),
        timeout_graceful_shutdown=math.ceil(app.drain) + 10,
        timeout_worker_healthcheck=30,  # an agent may import much before its worker is ready
    )
    if reload:
        config.reload_dirs = [Path(serving.folder)]  # Config takes them for an app that is named by a string only
    typer.echo(welcome(serving, app, listener.getsockname()[1]))
    if app.page is not None:
        address = page_address(serving, listener.getsockname()[1])
        threading.Thread(target=announce_page, args=(app.page, address, open_page), daemon=True).start()
    server = uvicorn.Server(config)
    try:
        if reload:
            ChangeReload(config, target=server.run, sockets=[listener]).run()
        elif workers > 1:
            Supervisor(config, sockets=[listener]).run()
        else:
            server.run(sockets=[listener])
    except KeyboardInterrupt:
        return
    except SystemExit:  # uvicorn raises it if the app did not start
        raise CannotServe("the server did not start; the lines above say why") from None
    finally:
        folders.close()


async def _try(store: Store) -> None:
    """Open a store that is not in memory, write to it and close it. Raise ``StoreUnavailable``."""
    if store.location is not None:
        await store.open()
        try:
            await store.check()
        finally:
            await store.close()


def build_in_worker(serving: Serving) -> LoopWatch:
    """Build the app in one of several processes. Exit with the reason where it cannot be built."""
    end_with_supervisor()
    try:
        app = build(serving)
        app.has_siblings = True
        if app.metrics is not None and serving.metrics_folder is not None:
            app.metrics = msgspec.structs.replace(app.metrics, folder=serving.metrics_folder)
        return LoopWatch(app)
    except CannotServe as error:
        sys.exit(f"aguila serve: {error}")


def build_for_reload(serving: Serving) -> Callable[..., Awaitable[None]]:
    """Build the app in the process of ``--reload``. If that fails, print why and return an app that answers 503.

    The reloader keeps the port open. If this process exited, clients would wait for an answer until the code changes.
    """
    end_with_supervisor()
    try:
        return LoopWatch(build(serving))
    except CannotServe as error:
        problem = str(error)
    except SystemExit as error:  # raised by the module, such as for a missing setting
        problem = f"the agent's module exits when it is imported: {error}"
    typer.echo(f"aguila serve: {problem}\nRequests are answered with 503 until the code is repaired.", err=True)
    return answer_not_loaded


def _with_store(serving: Serving) -> Serving:
    """Return the options with the store that the environment names, unless one was given or the target is an App.

    An App may read the same variables itself, so they are left alone then. Raise ``CannotServe``.
    """
    if serving.store is not None or isinstance(_target_of(serving), App):
        return serving
    try:
        location = store_from_environment(os.environ)
    except ValueError as error:
        raise CannotServe(str(error)) from None
    return msgspec.structs.replace(serving, store=location or str(Path(serving.folder) / DEFAULT_STORE))


def _target_of(serving: Serving) -> Any:
    if serving.chat is not None:
        return _make_chat(serving.chat, serving.folder)
    return _make_gateway(serving) if is_url(serving.target) else find(serving.target, serving.folder)


def _make_chat(chat: ModelChat, folder: str) -> Any:
    """Make an agent of a model. Raise ``CannotServe``."""
    try:
        from aguila.frameworks.pydantic_ai.model_chat import make_chat
    except MissingExtra as error:
        raise CannotServe(str(error)) from None
    for name in chat.tools:
        _refuse_file(name, name)
    tools = [import_module(name, folder) for name in chat.tools]
    try:
        return make_chat(chat.model, instructions=chat.instructions, mcp=chat.mcp, tools=tools)
    except (ValueError, TypeError) as error:
        raise CannotServe(str(error)) from None


def build(serving: Serving) -> App:
    """Build the app. Raise ``CannotServe``."""
    found = _target_of(serving)
    if isinstance(found, App):
        if serving.given:
            given = ", ".join(serving.given)
            raise CannotServe(f"{serving.target} is an App with its own options; pass these to App(...): {given}")
        if serving.is_local:
            found.show_page()
        return found
    try:
        named_agents(found)
    except (TypeError, ValueError) as error:
        raise CannotServe(f"{serving.target} is neither an agent nor a dict of agents: {error}") from None
    options = dict(serving.options)
    options.setdefault("page", serving.is_local)
    if serving.inspects:
        name = serving.target.partition("?")[0]  # the page shows which endpoint it calls
        options["capabilities"] = {"identity": {"name": name}}
    if serving.is_local:
        options["allowed_hosts"] = [*LOCAL_HOSTS, serving.host, *options.get("allowed_hosts", ())]
    try:
        return App(found, store=serving.store, allow_anonymous=serving.is_local, **options)
    except ValueError as error:  # an option that only the app can judge
        raise CannotServe(str(error)) from None


def _make_gateway(serving: Serving) -> Upstream:
    """Make an agent of the endpoint at a URL. It may be of any age, so all older shapes are read."""
    return upstream(
        serving.target,
        headers=serving.options.get("headers_allowed", ()),
        auth=serving.upstream_headers or None,
        client={"compat": "wide"},
        raw="keep" if serving.inspects else "drop",
        errors="pass" if serving.inspects else "mask",
        check=serving.inspects,
    )


def find(target: str, folder: str) -> Any:
    """Import ``module:name``; without a name, ``agent``. Raise ``CannotServe`` with the user's frames only."""
    module_name, _, name = target.partition(":")
    name = name or "agent"
    _refuse_file(target, module_name, f":{name}")
    if not all(part.isidentifier() for part in name.split(".")):
        raise CannotServe(f"{name!r} is no Python name; for a chat with a model write --model {target}")
    found = import_module(module_name, folder)
    for part in name.split("."):
        if not hasattr(found, part):
            raise CannotServe(f"{module_name} has no {name!r}; name the agent with {module_name}:name")
        found = getattr(found, part)
    return found


def _refuse_file(given: str, module_name: str, rest: str = "") -> None:
    """Raise ``CannotServe`` if the name of a module is that of a file. ``given`` is what the user wrote."""
    if module_name.endswith(".py") or "/" in module_name:
        suggestion = module_name.removesuffix(".py").removeprefix("./").strip("/").replace("/", ".")
        raise CannotServe(f"{given} names a file, not a module; did you mean {suggestion}{rest}?")


def import_module(name: str, folder: str) -> Any:
    """Import a module of the user. Raise ``CannotServe``."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - user code can raise anything; it is shown in full
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            raise CannotServe(f"there is no module {name} in {folder} or among the installed packages") from None
        raise CannotServe(f"cannot import {name}:\n{_user_traceback(error)}") from None


def _user_traceback(error: Exception) -> str:
    """Format an import error from the first frame of the imported module on, without those of the import system."""
    described = traceback.TracebackException.from_exception(error)
    frames = [frame for frame in described.stack if not frame.filename.startswith("<frozen ")]
    own = importlib.import_module.__code__.co_filename  # the last of our frames calls it
    after = next((at + 1 for at, frame in enumerate(frames) if frame.filename == own), 0)
    described.stack = traceback.StackSummary.from_list(frames[after:])
    return "".join(described.format() if described.stack else described.format_exception_only()).rstrip()


def listen(host: str, port: int) -> socket.socket:
    """Bind a listening socket. Raise ``CannotServe``."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        if error.errno in _IN_USE:
            message = f"port {port} of {host} is in use; choose another with --port, or --port 0 for a free one"
        else:
            message = f"cannot listen on {host} port {port}: {error.strerror}"
        raise CannotServe(message) from None
    listener.set_inheritable(True)
    return listener


def run_until_signal(app: Any, listener: socket.socket, *, lifespan: Literal["on", "off"]) -> None:
    """Serve an app of a command that stores nothing: it need not drain, and writes no access log."""
    config = uvicorn.Config(
        app,
        lifespan=lifespan,
        access_log=False,
        server_header=False,
        log_config=log_config(as_json=False),
        timeout_graceful_shutdown=1,
    )
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        return


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def welcome(serving: Serving, app: App, port: int) -> str:
    """Describe the agent and its address, with commands to try: only those that this server will accept."""
    shown = _in_url(serving.host)
    threads = f"in {app.store.location or 'memory'}"
    lines = [f"{serving.target} at http://{shown}:{port}, threads {threads}"]
    if serving.store == MEMORY:
        lines.append("Threads in memory are lost on exit; --store STORE keeps them.")
    local_name = _in_url(_LOCAL_NAMES.get(serving.host, serving.host))
    url = f"http://{local_name}:{port}"
    accepts_runs, lists_threads = app.is_open_to(local_name), app.is_open_to(local_name, as_owner=True)
    if app.page is not None:
        built = f"Open {url}/ in a browser to chat with it."
        building = "The page is being built; this terminal says when it is ready."
        is_building = os.environ.get("AGUILA_PAGE_BUILD") == "running"
        missing = building if is_building else f"{NOT_BUILT[0].upper()}{NOT_BUILT[1:]}."
        lines.append(built if app.page.is_built else missing)
    if accepts_runs and not serving.is_local:
        others = "" if lists_threads else "; listing, deleting and files need App(authenticate=...)"
        lines.append(f"Every client that reaches this address can use it{others}.")
    if accepts_runs:
        lines += [
            "",
            "Or from another terminal:" if app.page is not None else "Chat with it from another terminal:",
            f"  {_this_command()} chat {url}",
        ]
        lines += ["Or over plain HTTP; each call starts a new thread:"]
        lines += [f"  curl -N {url} -H 'content-type: application/json' -d '{_FIRST_INPUT}'"]
    else:
        lines += ["", "It accepts the hosts and credentials that the App is configured with; health is open to all:"]
        lines += [f"  curl {url}/healthz"]
    if lists_threads:
        lines += ["List the threads:", f"  curl {url}/threads"]
    if app.copilotkit is not None:
        lines += ["For a CopilotKit page:", f'  <CopilotKit runtimeUrl="{url}{app.copilotkit.path}">']
        if not serving.options.get("cors_origins") and serving.options.get("copilotkit"):
            lines += ["A page of another origin needs --cors-origin, such as --cors-origin http://localhost:5173"]
    return "\n".join([*lines, "", "Ctrl-C stops it."])


def page_address(serving: Serving, port: int) -> str:
    """Return the address of the page, as this machine reaches it."""
    return f"http://{_in_url(_LOCAL_NAMES.get(serving.host, serving.host))}:{port}/"


def announce_page(page: PageFiles, address: str, open_page: bool) -> None:
    """Wait until the page is built, say so if it was not, and open it in the browser if that was asked for."""
    was_built = page.is_built
    while not page.is_built:
        time.sleep(0.5)
    if not was_built:
        typer.echo(f"The page is ready: {address}")
    if open_page:
        webbrowser.open(address)


def _this_command() -> str:
    """Return how to call ``aguila`` from the current directory: the environment may not be activated."""
    script = Path(sys.executable).parent / "aguila"
    if shutil.which("aguila") is not None or not script.is_file():
        return "aguila"
    return str(script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


_FIRST_INPUT = (
    '{"threadId": "curl-\'$(date +%s)\'", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "help"}]}'
)
"""A first input for a shell in single quotes. A new thread each time: an earlier one may wait for an answer."""

_LOCAL_NAMES = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound here
"""How this machine reaches a wildcard address."""

_IN_USE = (48, 98, 10048)
"""EADDRINUSE, as macOS, Linux and Windows number it."""
