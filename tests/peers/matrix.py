"""``python tests/peers/matrix.py [PEER ...]``: try every feature on every peer and write the tables.

``docs/peers.md`` has the servers of others, called by our client; ``docs/frameworks.md`` has the agents of frameworks
behind ``App``, and the servers of others behind ``upstream``. With names only those peers are tried, and nothing is
written.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parents[1] / "support"))  # as pytest does

from environments import FRAMEWORKS, PEERS, REPOSITORY, SERVERS, Blocked, Peer, Running, running, versions
from features import FEATURES, FRAMEWORK_FEATURES, Broken, Trial, error_text
from serving import serving

from aguila import App
from aguila.errors import AguilaError, ProtocolError
from aguila.frameworks import upstream

PAGE = REPOSITORY / "docs" / "peers.md"
FRAMEWORKS_PAGE = REPOSITORY / "docs" / "frameworks.md"
BEGIN, END = "<!-- frameworks:begin -->", "<!-- frameworks:end -->"

FAULTS = {
    (
        "llama_index_app",
        "front-end tool",
    ): "llama-index-protocols-ag-ui gives the result to the model as a user message",
    ("llama_index_app", "reasoning"): "llama-index-protocols-ag-ui sends no reasoning",
    ("llama_index_app", "interrupt"): "llama-index-protocols-ag-ui has no interrupts",
    ("adk", "cancel"): "ag-ui-adk leaves its task running; adk.agent stops it",
    ("agno", "reasoning"): "Agno's interface does not send the reasoning of a model that streams it",
    ("agno", "interrupt"): "Agno leaves the call without an answer; agno.agent asks an approval",
    ("crewai_app", "reasoning"): "the scripted flow sends none",
    ("crewai_app", "interrupt"): "the scripted flow asks nothing",
    ("agno_app", "reasoning"): "Agno's interface does not send the reasoning of a model that streams it",
    (
        "langgraph",
        "cancel",
    ): "ag-ui-langgraph's endpoint continues after the connection was closed; langgraph.agent stops",
}
"""Why a cell fails, where that is known: whose fault it is."""


class Cell(NamedTuple):
    """The verdict on a feature (``works``, ``fails`` or ``blocked``), the reason if it failed, and remarks."""

    verdict: str
    reason: str = ""
    remarks: tuple[str, ...] = ()


CLIENTS = [
    "",
    "## Third-party clients",
    "",
    "What each published generation of `@ag-ui/client` receives from our server is in [dialects](dialects.md). A",
    "dialect differs from the protocol in three places. Each loss is logged as a notice of the rule VER-16:",
    "",
    "- VER-11: a client that declares no version receives the dialect of a 0.x client, not the current one (VER-8).",
    "- VER-12, LIFE-8: a cancelled run ends without an outcome, because these clients refuse the outcome `cancelled`.",
    "- VER-13: a file in a tool result becomes a line of text that describes it, and STATE_SNAPSHOT is added.",
]
"""The end of the page: the other direction."""

Column = dict[str, Cell]


async def try_feature(peer: Peer, server: Running, name: str) -> Cell:
    """One cell. What fails with the compatibility that is the default is tried again with all of it."""
    cell, is_protocol = await _attempt(peer, server, name, "standard")
    if cell.verdict == "fails" and is_protocol:
        wider, _ = await _attempt(peer, server, name, "wide")
        if wider.verdict == "works":
            return wider._replace(remarks=(f"needs `compat='wide'`: {cell.reason}", *wider.remarks))
    return cell


async def _attempt(peer: Peer, server: Running, name: str, compat: str) -> tuple[Cell, bool]:
    trial = Trial(peer, server, compat)  # type: ignore[arg-type]
    verdict, reason, is_protocol = "works", "", False
    try:
        async with asyncio.timeout(180):
            await (FEATURES | FRAMEWORK_FEATURES)[name](trial)
    except (Broken, TimeoutError) as error:
        verdict, reason = "fails", str(error) or "nothing for three minutes"
    except AguilaError as error:
        verdict, reason, is_protocol = "fails", error_text(error), isinstance(error, ProtocolError)
    finally:
        await trial.client.close()
    trial.judge()
    return Cell(verdict, reason, tuple(trial.remarks)), is_protocol


def try_peer(peer: Peer, features: Collection[str] = FEATURES) -> Column:
    """Try all features of one peer."""
    try:
        with running(peer) as server:

            async def all_features() -> Column:
                return {name: await try_feature(peer, server, name) for name in features}

            return asyncio.run(all_features())
    except Blocked as blocked:
        return {name: Cell("blocked", str(blocked)) for name in features}


def page(columns: dict[Peer, Column]) -> str:
    """The matrix and what there is to say, as Markdown."""
    lines = [
        "# Third-party servers",
        "",
        "<!-- written by `make peers`; do not edit -->",
        "",
        "`AsyncClient` over HTTP against small servers that use published third-party packages, each in its own",
        "environment and with a scripted model. *works* means that the client shows what the script sends. Numbers",
        "refer to the notes below: findings of our strictest verifier and of the client. [rules.md](rules.md) explains",
        "rule ids.",
        "",
    ]
    notes: dict[Peer, list[str]] = {peer: [] for peer in columns}
    lines += table(columns, FEATURES, notes)
    for peer in columns:
        lines += [
            "",
            f"## {peer.title}",
            "",
            f"{versions(peer)}; [the server](../tests/peers/servers/{peer.program})",
            "",
        ]
        lines += [f"{number}. {note}" for number, note in enumerate(notes[peer], 1)] or ["Nothing to remark."]
    return "\n".join([*lines, *CLIENTS]) + "\n"


def table(columns: dict[Peer, Column], features: Collection[str], notes: dict[Peer, list[str]]) -> list[str]:
    """The lines of a table of verdicts. Reasons and remarks are added to the notes of their peer."""
    head = ["", *(peer.title for peer in columns)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for feature in features:
        row = [feature]
        for peer, column in columns.items():
            cell = column[feature]
            numbers = [_number(notes[peer], remark) for remark in cell.remarks]
            if cell.reason:
                fault = FAULTS.get((peer.name, feature))
                reason = cell.reason if fault is None else f"{fault} ({cell.reason})"
                numbers.insert(0, _number(notes[peer], f"{feature} {cell.verdict}: {reason}"))
            told = f" ({', '.join(str(number) for number in sorted(numbers))})" if numbers else ""
            row.append(f"{cell.verdict if cell.verdict == 'works' else f'**{cell.verdict}**'}{told}")
        lines.append("| " + " | ".join(row) + " |")
    return lines


def frameworks_section(apps: dict[Peer, Column], gateways: dict[Peer, Column]) -> str:
    """The tables of ``docs/frameworks.md``, as Markdown."""
    lines = [
        BEGIN,
        "",
        "### What works",
        "",
        "One scripted conversation for each framework behind `App`, over HTTP with our client. Each has its own",
        "environment (`make peers`; `make test` runs the first three columns). A cell that was not tried is filled by "
        "`make peers`.",
        "",
    ]
    for title, columns, features in (("", apps, FRAMEWORK_FEATURES), ("upstream", gateways, FEATURES)):
        if title:
            lines += ["", "Servers of others behind `upstream`:", ""]
        notes: dict[Peer, list[str]] = {peer: [] for peer in columns}
        lines += table(columns, features, notes)
        lines.append("")
        for peer in columns:
            said = "; ".join(f"({number}) {note}" for number, note in enumerate(notes[peer], 1))
            lines.append(f"- **{peer.title}** ({versions(peer)}){': ' + said if said else ''}")
    return "\n".join([*lines, "", END])


def write_frameworks(section: str) -> None:
    """Replace the tables of ``docs/frameworks.md``."""
    before, _, rest = FRAMEWORKS_PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    FRAMEWORKS_PAGE.write_text(f"{before}{section}{after}")


class Gateway(NamedTuple):
    """Our server before a peer: clients call it, and the peer counts."""

    url: str
    pid: int
    peer: Running

    def counts(self) -> dict[str, int]:
        return self.peer.counts()


STATE_KEYS = {"langgraph": ["count"]}


def try_upstream(peer: Peer) -> Column:
    """Try all features of one peer behind ``upstream``."""
    try:
        with running(peer) as server, tempfile.TemporaryDirectory() as folder:
            options = {"protobuf": peer.is_protobuf, "options": {"trust_env": False}}
            agent = upstream(server.url + peer.path, client=options, state_keys=STATE_KEYS.get(peer.name))
            with serving(App(agent, store=Path(folder) / "threads.db", merge_deltas=False)) as front:
                gateway: Any = Gateway(front.url + "/", 0, server)

                async def all_features() -> Column:
                    seen_as = peer._replace(is_protobuf=False)
                    return {name: await try_feature(seen_as, gateway, name) for name in FEATURES}

                return asyncio.run(all_features())
    except Blocked as blocked:
        return {name: Cell("blocked", str(blocked)) for name in FEATURES}


def _number(notes: list[str], remark: str) -> int:
    if remark not in notes:
        notes.append(remark)
    return notes.index(remark) + 1


def main(names: list[str]) -> int:
    unknown = set(names) - {peer.name for peer in (*PEERS, *FRAMEWORKS, *SERVERS)}
    if unknown:
        print(f"no such peer: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    chosen = [peer for peer in PEERS if not names or peer.name in names]
    columns = {peer: try_peer(peer) for peer in chosen}
    written = page(columns)
    gateways = {peer: try_upstream(peer) for peer in (*chosen, *SERVERS) if not names or peer.name in names}
    apps = {peer: try_peer(peer, FRAMEWORK_FEATURES) for peer in FRAMEWORKS if not names or peer.name in names}
    section = frameworks_section(apps, gateways)
    print(written, section, sep="\n")
    if not names:
        PAGE.write_text(written)
        write_frameworks(section)
    found = {**columns, **gateways, **apps}
    blocked = [peer.title for peer, column in found.items() if any(c.verdict == "blocked" for c in column.values())]
    return 1 if blocked else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
