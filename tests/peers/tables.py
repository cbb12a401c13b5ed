"""The recorded results of ``make peers``, and the tables that they make in the documents.

``results.json`` has a cell for each table, peer and feature. The documents are written from it, so that one peer can be
tried alone, and a test can compare them without trying anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from environments import CLIENTS, FRAMEWORKS, HERE, PEERS, REPOSITORY, SERVERS, Peer, versions
from features import APP_FEATURES, CLIENT_FEATURES, FEATURES, FRAMEWORK_FEATURES

RESULTS = HERE / "results.json"
PEERS_PAGE = REPOSITORY / "docs" / "peers.md"
FRAMEWORKS_PAGE = REPOSITORY / "docs" / "frameworks.md"

TABLES: dict[str, tuple[tuple[Peer, ...], Any]] = {
    "client": (PEERS, FEATURES),
    "server": (CLIENTS, CLIENT_FEATURES),
    "app": (FRAMEWORKS, APP_FEATURES),
    "upstream": ((*PEERS, *SERVERS), FRAMEWORK_FEATURES),
}
"""The peers and features of each table."""

FAULTS: dict[tuple[str, str, str], tuple[str, str]] = {
    ("upstream", "langgraph", "cancel"): (
        "ag-ui-langgraph",
        "its endpoint continues after the connection was closed; `langgraph.agent` stops the graph",
    ),
    ("upstream", "adk", "cancel"): (
        "ag-ui-adk",
        "its endpoint leaves the task running after the connection was closed; `adk.agent` stops it",
    ),
    ("upstream", "llama_index", "front-end tool"): (
        "llama-index-protocols-ag-ui",
        "it gives the result to the model as a user message; `llama_index.agent` gives it as a tool result",
    ),
    ("upstream", "llama_index", "reasoning"): (
        "llama-index-protocols-ag-ui",
        "it sends no reasoning; `llama_index.agent` does",
    ),
    ("upstream", "llama_index", "interrupt"): (
        "llama-index-protocols-ag-ui",
        "it has no interrupts; `llama_index.agent` asks for each `InputRequiredEvent`",
    ),
    ("upstream", "llama_index", "cancel"): (
        "llama-index-protocols-ag-ui",
        "its router does not cancel the workflow when the connection is closed; `llama_index.agent` does",
    ),
    ("upstream", "ag2", "cancel"): (
        "AG2",
        "its endpoint continues the turn after the connection was closed; `ag2.agent` stops it",
    ),
    ("upstream", "agno", "reasoning"): ("Agno", "its AG-UI interface does not send the reasoning that a model streams"),
    ("upstream", "agno", "interrupt"): (
        "Agno",
        "it leaves a call that needs confirmation without an answer; `agno.agent` asks for approval",
    ),
}
"""Whose fault a failed cell is, and why: by table, peer and feature."""

DIALECTS = [
    "",
    "## Dialects",
    "",
    "What each published generation of `@ag-ui/client` receives from our server is in [dialects](dialects.md). A",
    "dialect differs from the protocol in three places. Each loss is logged as a notice of the rule VER-16:",
    "",
    "- VER-11: a client that declares no version receives the dialect of a 0.x client, not the current one (VER-8).",
    "- VER-12, LIFE-8: a cancelled run ends without an outcome, because these clients refuse the outcome `cancelled`.",
    "- VER-13: a file in a tool result becomes a line of text that describes it, and STATE_SNAPSHOT is added.",
]
"""The end of docs/peers.md: the other direction."""


class Cell(NamedTuple):
    """The verdict on a feature, the reason if it does not work, and remarks.

    The verdicts are ``works``, ``fails``, ``blocked``, and ``lost`` if a client has no such feature.
    """

    verdict: str
    reason: str = ""
    remarks: tuple[str, ...] = ()


Column = dict[str, Cell]


class Results:
    """The cells by table and peer, with the versions that were tried."""

    def __init__(self, recorded: dict[str, dict[str, dict[str, Any]]]) -> None:
        self._recorded = recorded

    @classmethod
    def load(cls) -> Results:
        return cls(json.loads(RESULTS.read_text()) if RESULTS.exists() else {})

    def record(self, table: str, peer: Peer, column: Column) -> None:
        """Replace a column and write the file."""
        cells = {feature: _as_json(cell) for feature, cell in column.items()}
        self._recorded.setdefault(table, {})[peer.name] = {"versions": versions(peer), "cells": cells}
        ordered = {
            name: {one.name: self._recorded[name][one.name] for one in peers if one.name in self._recorded[name]}
            for name, (peers, _) in TABLES.items()
            if name in self._recorded
        }
        RESULTS.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")

    def versions(self, table: str, peer: Peer) -> str:
        """Return the versions that were tried."""
        return self._recorded[table][peer.name]["versions"]

    def columns(self, table: str) -> dict[Peer, Column]:
        """Return the columns of a table: the peers that were tried."""
        peers, _ = TABLES[table]
        tried = self._recorded.get(table, {})
        return {peer: _column(tried[peer.name]["cells"]) for peer in peers if peer.name in tried}


def _as_json(cell: Cell) -> dict[str, Any]:
    return {name: value for name, value in cell._asdict().items() if value}


def _column(cells: Mapping[str, Mapping[str, Any]]) -> Column:
    return {
        feature: Cell(cell["verdict"], cell.get("reason", ""), tuple(cell.get("remarks", ())))
        for feature, cell in cells.items()
    }


def documents(results: Results) -> dict[Any, str]:
    """Return the texts of the documents that show the results, by path."""
    section = FRAMEWORKS_PAGE.read_text()
    for table in ("app", "upstream"):
        begin, end = f"<!-- {table}:begin; written by `make peers` -->", f"<!-- {table}:end -->"
        before, _, rest = section.partition(begin)
        _, _, after = rest.partition(end)
        lines = framework_table(results.columns(table), table)
        section = "\n".join([f"{before}{begin}", "", *lines, "", f"{end}{after}"])
    peers = peers_page(results.columns("client"), results.columns("server"))
    return {PEERS_PAGE: peers, FRAMEWORKS_PAGE: section}


def peers_page(columns: Mapping[Peer, Column], callers: Mapping[Peer, Column]) -> str:
    """Return docs/peers.md, of servers and of clients."""
    lines = [
        "# Other servers and clients that were tried",
        "",
        "<!-- written by `make peers`; do not edit -->",
        "",
        "[Clients](#third-party-clients) are below. [Front ends](frontends.md) has the front ends for browsers.",
        "",
        "## Third-party servers",
        "",
        "`AsyncClient` over HTTP against small servers that use published third-party packages, each in its own",
        "environment and with a scripted model. *works* means that the client shows what the script sends. Numbers",
        "refer to the notes below: findings of our strictest verifier and of the client. [Rules](rules.md) explains",
        "rule ids.",
        "",
    ]
    notes: dict[Peer, list[str]] = {peer: [] for peer in columns}
    lines += verdicts(columns, "client", notes)
    for peer in columns:
        about = f"{versions(peer)}; [the server](../tests/peers/{peer.program})"
        lines += ["", f"### {peer.title}", "", about, ""]
        lines += [f"{number}. {note}" for number, note in enumerate(notes[peer], 1)] or ["Nothing to remark."]
    lines += [
        "",
        "## Third-party clients",
        "",
        "Published clients in Python against the demo agent behind `App`, over HTTP. *lost* means that the client has",
        "no such feature: nothing of it reaches its user, and the rest of the run does.",
        "",
    ]
    notes = {peer: [] for peer in callers}
    lines += verdicts(callers, "server", notes)
    for peer in callers:
        about = f"{versions(peer)}; [the program](../tests/peers/{peer.program})"
        lines += ["", f"### {peer.title}", "", about, ""]
        lines += [f"{number}. {note}" for number, note in enumerate(notes[peer], 1)]
    return "\n".join([*lines, *DIALECTS]) + "\n"


def framework_table(columns: Mapping[Peer, Column], table: str) -> list[str]:
    """Return a table of docs/frameworks.md with its footnotes."""
    notes: dict[Peer, list[str]] = {peer: [] for peer in columns}
    lines = [*verdicts(columns, table, notes), ""]
    for peer in columns:
        footnotes = " ".join(f"({number}) {note}." for number, note in enumerate(notes[peer], 1))
        lines.append(f"- {peer.title}: {versions(peer)}. {footnotes}".rstrip())
    return lines


def verdicts(columns: Mapping[Peer, Column], table: str, notes: dict[Peer, list[str]]) -> list[str]:
    """Return the lines of a table of verdicts. Reasons and remarks are added to the notes of their peer."""
    head = ["", *(peer.title for peer in columns)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    _, features = TABLES[table]
    for feature in features:
        row = [feature]
        for peer, column in columns.items():
            cell = column[feature]
            verdict = cell.verdict if cell.verdict == "works" else f"**{cell.verdict}**"
            numbers = [_number(notes[peer], remark) for remark in cell.remarks]
            if cell.reason:
                fault = FAULTS.get((table, peer.name, feature))
                if fault is not None:
                    verdict += f": {fault[0]}"
                note = f"{feature} {cell.verdict}: {cell.reason}" if fault is None else f"{feature}: {fault[1]}"
                numbers.insert(0, _number(notes[peer], note))
            shown = f" ({', '.join(str(number) for number in sorted(numbers))})" if numbers else ""
            row.append(f"{verdict}{shown}")
        lines.append("| " + " | ".join(row) + " |")
    return lines


def _number(notes: list[str], remark: str) -> int:
    if remark not in notes:
        notes.append(remark)
    return notes.index(remark) + 1
