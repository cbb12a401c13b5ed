"""Fetch the tree of a thread's runs, one branch of it, or the branch before a message."""

from __future__ import annotations

import msgspec

from aguila.client.drivers.actions import Program
from aguila.client.requests.http_requests import fetch
from aguila.client.requests.hydration import hydrate, read_runs
from aguila.client.requests.urls import add_query
from aguila.client.settings import Settings
from aguila.client.transports.base import Request
from aguila.errors import IllegalStep
from aguila.protocol import RunStartedEvent
from aguila.stream import Conversation, Reducer
from aguila.stream.lineage import RunNode, RunTree


class ThreadRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the tree of a thread. ``parent_run_id`` is the run that it continues, None for the first."""

    run_id: str
    parent_run_id: str | None
    children: list[str]
    status: str


class ThreadTree(msgspec.Struct, frozen=True):
    """The runs of a thread, in the order in which they began."""

    runs: list[ThreadRun]

    @property
    def leaves(self) -> list[str]:
        """The runs that no other run continues: the end of each branch."""
        return [run.run_id for run in self.runs if not run.children]

    def path(self, run_id: str) -> list[str]:
        """Return the runs of the branch that ends with this run, from the first. Raise KeyError if there is none."""
        parents = {run.run_id: run.parent_run_id for run in self.runs}
        path = [run_id]
        while (parent := parents[path[-1]]) is not None:
            path.append(parent)
        return path[::-1]


def fetch_branch(settings: Settings, thread_id: str, run_id: str) -> Program[Conversation]:
    """Fetch the conversation of the branch that ends with a run."""
    body = yield from _fetch(settings, thread_id, run_id)
    return hydrate(body, thread_id, [], compat=settings.compat, warn=settings.warn, run_id=run_id)


def fetch_tree(settings: Settings, thread_id: str) -> Program[ThreadTree]:
    """Fetch the tree of runs."""
    return _read_tree(settings, thread_id, (yield from _fetch(settings, thread_id, None)))


def fetch_fork(
    settings: Settings, thread_id: str, message_id: str, tip: str | None
) -> Program[tuple[str | None, Conversation]]:
    """Fetch the branch before a user message, or up to the question before another message, and its last run.

    ``tip`` is the last run of the branch that has the message. If the server does not know it, as after ``attach``, the
    branch is that of the latest run. The last run is None for a message of the first run. Raise ``IllegalStep`` if the
    branch has no such message.
    """
    body = yield from _fetch(settings, thread_id, None)
    tree = _read_tree(settings, thread_id, body)
    latest = tree.runs[-1].run_id if tree.runs else None
    if tip is None or tip == latest or all(run.run_id != tip for run in tree.runs):
        tip = latest
        whole = hydrate(body, thread_id, [], compat=settings.compat, warn=settings.warn).messages
    else:
        whole = (yield from fetch_branch(settings, thread_id, tip)).messages
    at = next((index for index, message in enumerate(whole) if message.id == message_id), None)
    if at is None:
        raise IllegalStep(f"the thread has no message {message_id!r} on this branch", rule="ENV-12")
    cut = first = at  # ``first`` is the first message that the parent run must not have
    if whole[at].role != "user":
        while first >= 0 and whole[first].role != "user":
            first -= 1
        cut = first + 1
    path = [] if tip is None else tree.path(tip)
    # The run at ``low`` does not have the message, and the run at ``high`` does.
    low, high = -1, len(path) - 1
    found: Conversation | None = None
    while first >= 0 and high - low > 1:
        middle = (low + high) // 2
        branch = yield from fetch_branch(settings, thread_id, path[middle])
        if any(message.id == whole[first].id for message in branch.messages):
            high = middle
        else:
            low, found = middle, branch
    reducer = Reducer(warn=settings.warn) if found is None else Reducer.from_conversation(found, warn=settings.warn)
    reducer.add_messages(whole[:cut])
    return None if found is None else path[low], reducer.conversation


def _fetch(settings: Settings, thread_id: str, run_id: str | None) -> Program[bytes]:
    url = add_query(settings.route("threads", thread_id), {"run": run_id})
    _, body = yield from fetch(settings, Request(method="GET", url=url, headers=settings.json_headers()))
    return body


def _read_tree(settings: Settings, thread_id: str, body: bytes) -> ThreadTree:
    tree = RunTree(settings.warn)
    statuses: list[str] = []
    for run in read_runs(body):
        event = RunStartedEvent(thread_id=thread_id, run_id=run.run_id, parent_run_id=run.parent_run_id)
        tree.add(event, tree.find_parent(event))
        statuses.append(run.status)
    return ThreadTree([_describe(node, status) for node, status in zip(tree.nodes, statuses, strict=True)])


def _describe(node: RunNode, status: str) -> ThreadRun:
    return ThreadRun(
        run_id=node.run_id,
        parent_run_id=None if node.parent is None else node.parent.run_id,
        children=[child.run_id for child in node.children],
        status=status,
    )
