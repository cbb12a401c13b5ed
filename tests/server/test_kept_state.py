"""What stays in a process after a request: nothing of a refused one. Every container that clients fill is listed."""

from __future__ import annotations

import ast
import gc
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import Reader

from aguila import App
from aguila.codec.dialects import dialect_of

ROOT = Path(__file__).parents[2]
REQUESTS, SIZE = 60, 60_000


async def hello(run: Any) -> Any:
    yield "hello"


@pytest.mark.anyio
@pytest.mark.parametrize(
    "name",
    ["host", "accept", "origin", "content-type", "last-event-id", "authorization", "cookie", "x-forwarded-for", "path"],
)
async def test_nothing_of_a_refused_request_stays(name: str) -> None:
    async def refuse(number: int, size: int) -> None:
        value = f"{number}-{'x' * size}"
        path = f"/threads/{value}/events" if name == "path" else "/threads/t/events"
        headers = {} if name == "path" else {name: value}
        assert await Reader(app).request("GET", path, **headers) in (401, 403, 404)

    async with App(hello, authenticate=lambda request: None) as app:
        for number in range(5):
            await refuse(number, 10)
        gc.collect()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for number in range(REQUESTS):
                await refuse(number, SIZE)
            gc.collect()
            held = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
    assert held < 4 * SIZE


def test_no_declared_version_is_kept() -> None:
    tracemalloc.start()
    try:
        for number in range(REQUESTS):
            dialect_of(f"{number}{'x' * SIZE}")
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 4 * SIZE
    finally:
        tracemalloc.stop()


# Containers

SHORT_LIVED = {
    "server/threads/reducer.py": "a run, in a cached thread, which counts its bytes",
    "server/threads/view.py": "a thread in the cache, which counts its bytes",
    "server/threads/thread.py": "the same",
    "server/threads/values.py": "the same",
    "server/threads/turn.py": "the same",
    "server/threads/client/tool_results.py": "a run",
    "server/threads/hydration.py": "a request",
    "server/threads/client/known_messages.py": "a request",
    "server/http/frames.py": "a response; one entry for each kind of notice",
    "server/http/inspect_routes.py": "a request",
    "server/http/sequencer.py": "a response",
    "server/threads/interrupts/resume_chain.py": "a request",
    "server/threads/interrupts/answer_checks.py": "a request",
    "server/http/uploads.py": "an upload",
    "server/frontends/tanstack/events.py": "a response",
    "codec/dialects/translator.py": "a response",
    "codec/compat/context.py": "a document or a stream",
    "store/archives/file_format.py": "an import",
}
"""Modules whose containers live no longer than this."""

OWN_KEYS = {
    "server/app.py:_warn_of_memory": "nothing",
    "server/frontends/page/files.py": "names of files of the page",
    "server/signals.py": "apps",
    "server/threads/cache.py:Threads._saving": "tasks",
    "server/http/stream.py:OpenStreams._heartbeats": "tasks",
    "server/http/frames.py:_match_changed_types": "dialects",
    "codec/json/": "types",
    "codec/compat/boundary.py": "types and our own names",
    "codec/official.py": "types",
    "codec/protobuf/frames.py": "nothing",
    "store/sqlite/": "our own processes, connections and SQL",
    "store/postgres/engine.py:PostgresDatabase._readers": "threads",
    "store/postgres/arrays.py": "our own SQL",
    "store/postgres/tx.py": "our own SQL",
    "store/postgres/liveness.py": "processes",
}
"""Modules, or parts of them, whose containers have keys of our own."""

EMPTY = re.compile(r"(\{\}|set\(\)|dict\(\)|deque\(.*\)|OrderedDict\(\)|Counter\(.*\)|defaultdict\(.*\)|Weak\w+\(\))$")


def containers() -> Iterator[str]:
    """Yield every container that begins empty, of an object or a module, and every cached function."""
    for layer in ("server", "codec", "store"):
        for path in sorted((ROOT / "src" / "aguila" / layer).rglob("*.py")):
            name = path.relative_to(ROOT / "src" / "aguila").as_posix()
            tree = ast.parse(path.read_text())
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef) and any("cache" in ast.unparse(d) for d in node.decorator_list):
                    yield f"{name}:{node.name}"
                if isinstance(node, ast.ClassDef):
                    for inner in ast.walk(node):
                        if isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
                            yield from (f"{name}:{node.name}.{attribute}" for attribute in _empty(inner, "self."))
            yield from (f"{name}:{variable}" for variable in _empty(tree, ""))


def _empty(parent: Any, prefix: str) -> Iterator[str]:
    for node in parent.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
            if target.startswith(prefix) and EMPTY.fullmatch(ast.unparse(node.value)):
                yield target.removeprefix(prefix)


def listed() -> set[str]:
    """Return the containers in the table of SECURITY.md."""
    section = (
        (ROOT / "SECURITY.md").read_text().partition("## What is kept by a key of a client\n")[2].partition("\n## ")[0]
    )
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row[0])}


def test_every_container_that_clients_fill_is_listed_with_its_bound() -> None:
    exempt = (*SHORT_LIVED, *OWN_KEYS)
    found = {each for each in containers() if not each.startswith(exempt)}
    assert found == listed(), "list a new container in SECURITY.md, or say in SHORT_LIVED or OWN_KEYS why it needs none"


def test_exemptions_are_needed() -> None:
    every = list(containers())
    assert [name for name in (*SHORT_LIVED, *OWN_KEYS) if not any(each.startswith(name) for each in every)] == []
