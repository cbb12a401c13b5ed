"""``python tests/frontends/frontends_matrix.py``: play every scenario on every front end, write ``docs/frontends.md``.

``--short`` plays a few scenarios on each and writes nothing, ``--only NAME`` and ``--scenario NAME`` choose (also
without writing). A scenario that fails leaves a screenshot and the browser's console in ``build/frontends``.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple, get_args

from aguila_process import AguilaProcess
from front_ends import (
    AgUiClient,
    AssistantUi,
    CopilotKit,
    CopilotKitNode,
    CopilotKitSingleEndpoint,
    CopilotKitV1,
    FrontEnd,
    TanStackAi,
    TDesign,
)
from playwright.sync_api import Browser, sync_playwright
from recipes import CHROMIUM, REPOSITORY, MissingTool, build, require_tools, serving_page, versions
from scenarios import SCENARIOS

from aguila.server import front_end_options
from aguila.server.frontends.options import FrontEnd as FrontEndName

PAGE = REPOSITORY / "docs" / "frontends.md"
FAILURES = REPOSITORY / "build" / "frontends"
FRONT_ENDS: list[type[FrontEnd]] = [
    CopilotKit,
    CopilotKitSingleEndpoint,
    CopilotKitV1,
    CopilotKitNode,
    AssistantUi,
    TanStackAi,
    TDesign,
    AgUiClient,
]
SHORT = ("text", "front-end tool", "interrupt, answered")
SHORT_FRONT_ENDS = (CopilotKit, AssistantUi, TanStackAi, TDesign, AgUiClient)
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


INTRODUCTION = """\
# CopilotKit, assistant-ui and other front ends

<!-- written by `make frontends`; do not edit -->

One option sets what the pages of a front end need:

```sh
aguila serve module:agent --for copilotkit --cors-origin http://localhost:5173
```

```python
from aguila import App, Run
from aguila.server import front_end_options

async def agent(run: Run):
    yield f"You said: {run.user_text}"

app = App(agent, store="threads.db", cors_origins=["http://localhost:5173"], **front_end_options("copilotkit"))
```

OPTIONS

On the command line an option beside `--for` wins. In Python replace it in the dict:
`front_end_options("tdesign") | {"history": "client"}`. If the page comes from another origin than the app, name that
origin in `cors_origins`.

## Stop

`HttpAgent.abortRun()` of `@ag-ui/client` only closes the connection, and so do front ends that call it. The run belongs
to the server and continues. These lines cancel it:

```ts
class CancellingAgent extends HttpAgent {
  abortRun() {
    const thread = `${SERVER}/threads/${encodeURIComponent(this.threadId)}`;
    void fetch(`${thread}/cancel`, { method: "POST", headers: this.headers });
    super.abortRun();
  }
}
```

`SERVER` is the address of the app. CopilotKit's Stop button cancels by itself. If you cannot change a page, start the
server with `App(cancel_unwatched_after=5)`: then a run ends some seconds after its last viewer
has left, also if that viewer closed the page.

## What works
"""
"""The part of the page that does not depend on the results."""


class Cell(NamedTuple):
    """How a scenario went: ``works``, ``partly``, ``fails`` or ``-`` (the front end has no such feature); and why."""

    verdict: str
    reason: str = ""


Column = dict[str, Cell]


def play(browser: Browser, front_end: type[FrontEnd], origin: str, server: AguilaProcess, name: str) -> Cell:
    """Play one scenario in a browser context of its own."""
    if name in front_end.unsupported:
        return Cell("-", front_end.unsupported[name])
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    console: list[str] = []
    page.on("console", lambda message: console.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: console.append(f"pageerror: {error}"))
    front = front_end(page, origin, server)
    try:
        front.open()
        SCENARIOS[name](front)
    except Exception as error:  # noqa: BLE001 - whatever fails is the verdict of this cell
        _keep_evidence(front_end, name, front, console, error)
        return Cell("fails", _first_line(error))
    finally:
        context.close()
    if name in front_end.partly:
        return Cell("partly", front_end.partly[name])
    return Cell("works", front_end.notes.get(name, ""))


def _keep_evidence(front_end: type[FrontEnd], name: str, front: FrontEnd, console: list[str], error: Exception) -> None:
    FAILURES.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"\W+", "-", f"{front_end.title} {name}").strip("-")
    front.page.screenshot(path=FAILURES / f"{stem}.png")
    log = f"{error}\n\n--- console\n" + "\n".join(console) + f"\n\n--- server\n{front.server.log()}"
    (FAILURES / f"{stem}.txt").write_text(log)


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200] or type(error).__name__


def play_all(browser: Browser, front_end: type[FrontEnd], names: list[str]) -> Column:
    """Play scenarios on a front end, with a server of its own."""
    column: Column = {}
    with tempfile.TemporaryDirectory() as folder, serving_page(build(front_end.recipe)) as origin:
        server = AguilaProcess(Path(folder), origin, *front_end.serve_options, app=front_end.served_app)
        try:
            with front_end.running(server, origin):
                for name in names:
                    begin = time.monotonic()
                    column[name] = play(browser, front_end, origin, server, name)
                    seconds = time.monotonic() - begin
                    print(f"{front_end.title}: {name}: {' '.join(column[name])} ({seconds:.1f} s)", flush=True)
        finally:
            server.stop()
    return column


def document(columns: dict[type[FrontEnd], Column]) -> str:
    """Return the table and its notes as Markdown."""
    options = ["| front end | options |", "|---|---|"]
    for name in get_args(FrontEndName):
        needed = ", ".join(f"`{option}={value!r}`" for option, value in front_end_options(name).items())
        options.append(f"| `{name}` | {needed or 'the defaults'} |")
    lines = [
        INTRODUCTION.replace("OPTIONS", "\n".join(options)),
        "Each column is a recipe of [examples/frontends](../examples/frontends), driven in Chromium against",
        "`aguila serve` with an SQLite store. *works* means that a user of the page sees the result, *partly* that the",
        "user sees it with the loss that the note names, `-` that the front end has no such feature. Numbers refer to",
        "the notes below.",
        "",
        "| | " + " | ".join(front_end.title for front_end in columns) + " |",
        "|" + "---|" * (len(columns) + 1),
    ]
    notes: dict[type[FrontEnd], list[str]] = {front_end: [] for front_end in columns}
    for name in SCENARIOS:
        row = [name]
        for front_end, column in columns.items():
            verdict, reason = column[name]
            if reason:
                if reason not in notes[front_end]:
                    notes[front_end].append(reason)
                number = notes[front_end].index(reason) + 1
                row.append(f"{'**fails**' if verdict == 'fails' else verdict} ({number})")
            else:
                row.append(verdict)
        lines.append("| " + " | ".join(row) + " |")
    for front_end in columns:
        link = f"[the recipe](../examples/frontends/{front_end.recipe})"
        command = " ".join(["aguila serve", *front_end.serve_options])
        if front_end.served_app is not None:
            command = "App(cancel_unwatched_after=1)"
        lines += [
            "",
            f"## {front_end.title}",
            "",
            f"{versions(front_end.recipe, *front_end.packages)}; {link}; `{command}`.",
        ]
        if notes[front_end]:
            lines += ["", *(f"{number}. {note}" for number, note in enumerate(notes[front_end], 1))]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="play a few scenarios on each front end")
    parser.add_argument("--only", action="append", default=[], help="play one front end, by its title")
    parser.add_argument("--scenario", action="append", default=[], help="play one scenario, by its name")
    options = parser.parse_args()
    chosen = [front_end for front_end in FRONT_ENDS if not options.only or front_end.title in options.only]
    names = [name for name in SCENARIOS if not options.scenario or name in options.scenario]
    if options.short:
        chosen, names = list(SHORT_FRONT_ENDS), list(SHORT)
    if not chosen or not names:
        parser.error(f"choose among {[front_end.title for front_end in FRONT_ENDS]} and {list(SCENARIOS)}")
    try:
        require_tools()
    except MissingTool as missing:
        print(f"the front ends were not tried: {missing}", file=sys.stderr)
        return 1 if os.environ.get("CI") == "true" else 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS)
        columns = {front_end: play_all(browser, front_end, names) for front_end in chosen}
        browser.close()
    if not (options.short or options.only or options.scenario):
        PAGE.write_text(document(columns))
    failed = [
        f"{each.title}: {name}" for each, column in columns.items() for name in column if column[name][0] == "fails"
    ]
    print("\n".join(["failed:", *failed]) if failed else "all scenarios work")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
