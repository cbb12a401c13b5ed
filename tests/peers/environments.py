"""The peers: servers that use the packages of others, each in an environment of its own.

A Python peer has the environment ``.venv-peers/<name>``, made from ``requirements/peers/<name>.txt`` and what our own
server needs (``requirements/server.txt``), and kept until these files or the Python change. The pins are complete, so
nothing is resolved. Peers without such a file use the packages that the tests have anyway. The programs are in
``servers/`` (those of others), ``apps/`` (their agents behind ``App``) and ``clients/`` (callers of ``App``). The first
two use ``agents/``.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

from ports import free_port

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
ENVIRONMENTS = REPOSITORY / ".venv-peers"
NODE_PACKAGES = REPOSITORY / "tests" / "interop" / "node" / "node_modules"
START_DEADLINE = 600.0


OWN_VARIABLES = {
    "PYTHONPATH": os.pathsep.join(map(str, (REPOSITORY / "src", HERE / "agents", HERE / "apps"))),
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # CrewAI's LiteLLM would download it
    "CREWAI_DISABLE_TELEMETRY": "true",
}


class Blocked(Exception):
    """A peer cannot be installed or started here. The message says why."""


class Peer(NamedTuple):
    """A server to call. ``packages`` are those that matter, as people know them."""

    name: str
    title: str
    program: str
    packages: tuple[str, ...]
    is_protobuf: bool = False
    environment: str | None = None
    path: str = ""
    """Where the server has its endpoint."""

    @property
    def requirements(self) -> Path:
        return REPOSITORY / "requirements" / "peers" / f"{self.environment or self.name}.txt"

    @property
    def needs_environment(self) -> bool:
        return self.requirements.exists()


PEERS = (
    Peer("quickstart", "FastAPI quickstart", "servers/quickstart_server.py", ("ag-ui-protocol", "fastapi")),
    Peer("pydantic_ai", "pydantic-ai", "servers/pydantic_ai_server.py", ("pydantic-ai-slim", "ag-ui-protocol")),
    Peer(
        "agent_framework",
        "agent-framework",
        "servers/agent_framework_server.py",
        ("agent-framework-ag-ui", "agent-framework-core", "ag-ui-protocol"),
    ),
    Peer("langgraph", "LangGraph", "servers/langgraph_server.py", ("ag-ui-langgraph", "langgraph", "ag-ui-protocol")),
    Peer("encoder_sse", "Node, SSE", "servers/encoder_server.mjs", ("@ag-ui/encoder",)),
    Peer("encoder_protobuf", "Node, protobuf", "servers/encoder_server.mjs", ("@ag-ui/encoder",), is_protobuf=True),
)

"""Servers that others publish."""

FRAMEWORKS = (
    Peer("langgraph_app", "LangGraph", "apps/langgraph_app.py", ("langgraph", "langchain"), environment="langgraph"),
    Peer("pydantic_ai_app", "pydantic-ai", "apps/pydantic_ai_app.py", ("pydantic-ai-slim",), environment="pydantic_ai"),
    Peer(
        "openai_agents_app",
        "OpenAI Agents",
        "apps/openai_agents_app.py",
        ("openai-agents", "openai"),
        environment="openai_agents",
    ),
    Peer(
        "agent_framework_app",
        "Agent Framework",
        "apps/agent_framework_app.py",
        ("agent-framework-core", "agent-framework-ag-ui"),
        environment="agent_framework",
    ),
    Peer("adk_app", "Google ADK", "apps/adk_app.py", ("google-adk", "ag-ui-adk"), environment="adk"),
    Peer(
        "llama_index_app",
        "LlamaIndex",
        "apps/llama_index_app.py",
        ("llama-index-core", "llama-index-protocols-ag-ui"),
        environment="llama_index",
    ),
    Peer("ag2_app", "AG2", "apps/ag2_app.py", ("ag2",), environment="ag2"),
    Peer("agno_app", "Agno", "apps/agno_app.py", ("agno",), environment="agno"),
    Peer("strands_app", "Strands", "apps/strands_app.py", ("strands-agents", "ag-ui-strands"), environment="strands"),
    Peer("crewai_app", "CrewAI", "apps/crewai_app.py", ("crewai", "ag-ui-crewai"), environment="crewai"),
)
"""Agents of frameworks behind ``App``."""

SERVERS = (
    Peer("adk", "Google ADK", "servers/framework_server.py", ("google-adk", "ag-ui-adk")),
    Peer(
        "llama_index",
        "LlamaIndex",
        "servers/framework_server.py",
        ("llama-index-core", "llama-index-protocols-ag-ui"),
        path="run",
    ),
    Peer("ag2", "AG2", "servers/framework_server.py", ("ag2",)),
    Peer("agno", "Agno", "servers/framework_server.py", ("agno",), path="agui"),
    Peer("strands", "Strands", "servers/framework_server.py", ("strands-agents", "ag-ui-strands")),
    Peer("crewai", "CrewAI", "servers/framework_server.py", ("crewai", "ag-ui-crewai")),
)
"""The endpoints of frameworks, for ``upstream``."""

CLIENTS = (
    Peer(
        "agui_chat_client",
        "AGUIChatClient",
        "clients/agui_chat_client.py",
        ("agent-framework-ag-ui", "agent-framework-core", "ag-ui-protocol"),
        environment="agent_framework",
    ),
)
"""Clients that others publish. Their programs get the URL of ``DEMO`` and print their cells as JSON."""

DEMO = Peer("demo_app", "demo", "apps/demo_app.py", ("aguila",))
"""Our server with the demo agent, for ``CLIENTS``."""

GATEWAY = Peer("upstream_app", "upstream", "apps/upstream_app.py", ("aguila",))
"""Our server in front of another one."""


def peer_named(name: str) -> Peer:
    return next(peer for peer in (*PEERS, *FRAMEWORKS, *SERVERS, *CLIENTS) if peer.name == name)


def interpreter(peer: Peer) -> str:
    """Return the interpreter of the peer's program, with its packages installed. Raises ``Blocked``."""
    if peer.program.endswith(".mjs"):
        node = shutil.which("node")
        if node is None:
            raise Blocked("node is not installed")
        if not NODE_PACKAGES.exists():
            raise Blocked("the packages of tests/interop/node are not installed: make node")
        return node
    if not peer.needs_environment:
        return sys.executable
    return str(_environment(peer))


def _environment(peer: Peer) -> Path:
    folder = ENVIRONMENTS / peer.requirements.stem
    python, stamp = folder / "bin" / "python", folder / ".stamp"
    own = REPOSITORY / "requirements" / "server.txt"
    pins = [line.removeprefix("-r ") for line in peer.requirements.read_text().splitlines() if line.startswith("-r ")]
    files = (peer.requirements, own, *(peer.requirements.parent / name for name in pins))
    wanted = hashlib.sha256(sys.version.encode() + b"".join(file.read_bytes() for file in files)).hexdigest()
    ENVIRONMENTS.mkdir(exist_ok=True)
    with (ENVIRONMENTS / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if stamp.exists() and stamp.read_text() == wanted:
            return python
        shutil.rmtree(folder, ignore_errors=True)
        print(f"installing {peer.title} into {folder.relative_to(REPOSITORY)}", file=sys.stderr)
        _command(sys.executable, "-m", "venv", "--without-pip", str(folder))
        pip = (sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-compile", "--no-deps")
        _command(*pip, "--disable-pip-version-check", "-r", str(peer.requirements), "-r", str(own))
        stamp.write_text(wanted)
    return python


def _command(*arguments: str) -> None:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it gave no reason"]
        raise Blocked(f"`{' '.join(arguments[1:4])}` failed: {lines[-1]}")


def versions(peer: Peer) -> str:
    """Return the packages that matter, with their versions."""
    if peer.program.endswith(".mjs"):
        about = [json.loads((NODE_PACKAGES / name / "package.json").read_text()) for name in peer.packages]
        return ", ".join(f"{one['name']} {one['version']}" for one in about)
    files = [peer.requirements] if peer.needs_environment else [REPOSITORY / "requirements" / "test.txt"]
    lines = [line.split("==") for file in files for line in file.read_text().splitlines() if "==" in line]
    pins = {name.lower().replace("_", "-"): version for name, version in lines}
    return ", ".join(f"{name} {pins[name]}" for name in peer.packages)


class Running(NamedTuple):
    """A server that was started."""

    url: str
    pid: int
    environment: Mapping[str, str] = {}

    def counts(self) -> dict[str, int]:
        """Return how many slow agents began, and how they ended."""
        with urlopen(f"{self.url}probe", timeout=10) as answer:
            return json.loads(answer.read())


@contextmanager
def running(peer: Peer, environment: Mapping[str, str] | None = None) -> Iterator[Running]:
    """The peer's server on a free port of the loopback. Raises ``Blocked`` if it cannot be started."""
    program = interpreter(peer)
    port = free_port()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [program, str(HERE / peer.program), str(port), peer.name],
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **OWN_VARIABLES, **(environment or {})},
        )
        try:
            deadline = time.monotonic() + START_DEADLINE
            while not _answers(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    lines = log.read().decode(errors="replace").strip().splitlines() or ["it gave no reason"]
                    raise Blocked(f"its server did not start: {lines[-1]}")
                time.sleep(0.05)
            yield Running(f"http://127.0.0.1:{port}/", process.pid, environment or {})
        finally:
            process.kill()
            process.wait()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
