"""``python tests/peers/matrix.py [PEER ...]``: try every feature on every peer and write ``docs/peers.md``.

With names only those peers are tried, and nothing is written.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection
from typing import NamedTuple

from environments import PEERS, REPOSITORY, Blocked, Peer, Running, running, versions
from features import FEATURES, FRAMEWORK_FEATURES, Broken, Trial, error_text

from aguila.errors import AguilaError, ProtocolError

PAGE = REPOSITORY / "docs" / "peers.md"


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
        async with asyncio.timeout(60):
            await (FEATURES | FRAMEWORK_FEATURES)[name](trial)
    except (Broken, TimeoutError) as error:
        verdict, reason = "fails", str(error) or "nothing for a minute"
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
    head = ["", *(peer.title for peer in columns)]
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
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
    ]
    notes: dict[Peer, list[str]] = {peer: [] for peer in columns}
    for feature in FEATURES:
        row = [feature]
        for peer, column in columns.items():
            cell = column[feature]
            numbers = [_number(notes[peer], remark) for remark in cell.remarks]
            if cell.reason:
                numbers.insert(0, _number(notes[peer], f"{feature} {cell.verdict}: {cell.reason}"))
            told = f" ({', '.join(str(number) for number in sorted(numbers))})" if numbers else ""
            row.append(f"{cell.verdict if cell.verdict == 'works' else f'**{cell.verdict}**'}{told}")
        lines.append("| " + " | ".join(row) + " |")
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


def _number(notes: list[str], remark: str) -> int:
    if remark not in notes:
        notes.append(remark)
    return notes.index(remark) + 1


def main(names: list[str]) -> int:
    unknown = set(names) - {peer.name for peer in PEERS}
    if unknown:
        print(f"no such peer: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    columns = {peer: try_peer(peer) for peer in PEERS if not names or peer.name in names}
    written = page(columns)
    print(written)
    if not names:
        PAGE.write_text(written)
    blocked = [peer.title for peer, column in columns.items() if any(c.verdict == "blocked" for c in column.values())]
    return 1 if blocked else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
