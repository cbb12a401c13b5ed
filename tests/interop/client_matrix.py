"""Try every client generation on every demo feature, and write docs/clients.md: ``make clients``.

Each generation of ``@ag-ui/client`` is driven in Node against ``aguila serve`` (``clients/matrix.mjs``). A check here
says what its page has to show for a feature. It raises ``Broken`` if the feature does not work, and names what is lost
if the generation cannot express all of it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "support"))

from processes.commands import aguila_serve
from processes.node import INTEROP, run_node

from aguila.cli.demo import A2UI_CATALOG

VERSIONS = ("0.0.45", "0.0.47", "0.0.50", "0.0.53", "0.0.57", "0.0.59", "1.0.0")
PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
FOLDER = INTEROP / "clients"

Seen = dict[str, Any]
"""The report of the script about one run, or about several."""
Losses = list[str]


class Broken(AssertionError):
    """A feature does not work."""


def observe(versions: tuple[str, ...] = VERSIONS) -> dict[str, dict[str, Seen]]:
    """Drive the client generations, two at a time, against one server."""
    with (
        tempfile.TemporaryDirectory() as folder,
        aguila_serve(Path(folder), "aguila.cli.demo:agent") as server,
        ThreadPoolExecutor(2) as drivers,
    ):
        return dict(zip(versions, drivers.map(lambda version: drive(server.url, version), versions), strict=True))


def drive(url: str, version: str, only: list[str] | None = None) -> dict[str, Seen]:
    """Drive one client generation over all features, or some."""
    given = json.dumps({"url": url, "version": version.replace(".", "-"), "only": only})
    return json.loads(run_node("matrix.mjs", given, folder=FOLDER))["features"]


# What a page has to show


def need(condition: object, what: str) -> None:
    """Raise ``Broken`` unless a condition holds."""
    if not condition:
        raise Broken(what)


def succeeded(seen: Seen | None, words: str | None = None) -> Seen:
    """Return a run that succeeded, with this last text."""
    need(seen is not None and seen.get("thrown") is None, f"the client stopped: {(seen or {}).get('thrown')}")
    assert seen is not None
    need(seen["failed"] is None and seen["error"] is None, f"the run failed: {seen['failed'] or seen['error']}")
    need(seen["finished"] is not None, "the run did not finish")
    if words is not None:
        need(last_content(seen) == words, f"the client has {last_content(seen)!r} instead of {words!r}")
    return seen


def last_content(seen: Seen) -> Any:
    """Return the content of the last message."""
    return seen["messages"][-1].get("content") if seen["messages"] else None


def messages(seen: Seen, role: str) -> list[Seen]:
    """Return the messages of a role."""
    return [message for message in seen["messages"] if message["role"] == role]


def events(seen: Seen, type_: str) -> list[Seen]:
    """Return the events of a type."""
    return [event for event in seen["events"] if event["type"] == type_]


TEXT = "An agent writes text through its run, piece by piece, and everybody who watches sees it grow."


def check_help(seen: Seen) -> Iterator[str]:
    need("- frontend: " in last_content(succeeded(seen)), "the list is not complete")
    yield from ()


def check_text(seen: Seen) -> Iterator[str]:
    succeeded(seen, TEXT)
    if not seen["finished"].get("usage"):
        yield "token usage"


def check_tools(seen: Seen) -> Iterator[str]:
    succeeded(seen, "It is 24 degrees in Lisbon and 11 in Oslo.")
    results = [json.loads(message["content"]) for message in messages(seen, "tool")]
    need({one["city"]: one["degrees"] for one in results} == {"Lisbon": 24, "Oslo": 11}, f"results: {results}")
    calls = [call for message in messages(seen, "assistant") for call in message.get("toolCalls", ())]
    names = [call["function"]["name"] for call in calls]
    need(names == ["get_weather"] * 2, f"calls: {names}")
    yield from ()


SOUP = {"recipe": {"title": "Soup", "ingredients": ["leek", "potato", "thyme"]}}


def check_state(seen: Seen) -> Iterator[str]:
    succeeded(seen, "Now with thyme.")
    need(seen["state"] == SOUP, f"the state is {seen['state']}")
    yield from ()


def check_reasoning(seen: Seen) -> Iterator[str]:
    succeeded(seen, "The answer is 42.")
    thoughts = messages(seen, "reasoning")
    if not thoughts:
        need(events(seen, "REASONING_MESSAGE_CONTENT"), "no reasoning arrived")
        yield "reasoning among the messages: the page gets the events only"
        return
    need(thoughts[0]["content"] == "Six times seven: six sevens are forty-two.", f"the thought is {thoughts[0]}")
    if thoughts[0].get("encryptedValue") != "c2VhbGVk":
        yield "the sealed part of the reasoning"


def check_activity(seen: Seen) -> Iterator[str]:
    succeeded(seen, "The plan is done.")
    (plan,) = messages(seen, "activity")
    need(all(step["done"] for step in plan["content"]["steps"]), f"the plan is {plan}")
    yield from ()


def check_protobuf(seen: Seen) -> Iterator[str]:
    yield from check_tools(seen["tools"])
    yield from check_reasoning(seen["reasoning"])
    yield from check_activity(seen["activity"])


def check_steps(seen: Seen) -> Iterator[str]:
    succeeded(seen, "I read.")
    names = [event["stepName"] for event in events(seen, "STEP_FINISHED")]
    need(names == ["search", "read", "research"], f"steps: {names}")
    if "aguila" not in (events(seen, "STEP_FINISHED")[0].get("metadata") or {}):
        yield "the results of steps"


def check_subagents(seen: Seen) -> Iterator[str]:
    succeeded(seen, "My team has spoken.")
    said = {message["content"] for message in messages(seen, "assistant")}
    need({"I found two papers about eagles.", "One of them is about golf."} <= said, f"the team said {said}")
    if not events(seen, "SUBAGENT_STARTED"):
        yield 'which subagent sent what; 0.0.59 reads it from `App(sends=Sends(undeclared_peers="subagents"))`'


def check_generative(seen: Seen) -> Iterator[str]:
    succeeded(seen, "Three ways to say what to draw.")
    (surface,) = messages(seen, "activity")
    created = surface["content"]["a2ui_operations"][0]["createSurface"]
    need(created["catalogId"] == A2UI_CATALOG, f"the surface is {created}")
    need(events(seen, "CUSTOM")[0]["value"]["type"] == "open-json-ui", "no custom event")
    need('"uri":"ui://demo/chart"' in messages(seen, "tool")[0]["content"], "no resource")
    yield from ()


def check_error(seen: Seen) -> Iterator[str]:
    need(seen["error"] is not None, f"the page was not told: {seen['thrown'] or seen['failed']}")
    need(seen["error"]["message"].startswith("The agent failed. Reference: "), f"the page was told {seen['error']}")
    need(last_content(seen) == "I am about to fail.", "the text is gone")
    yield from ()


def check_frontend(seen: Seen) -> Iterator[str]:
    succeeded(seen["first"])
    succeeded(seen["then"], "Your front end answered: the 3rd of May")
    yield from ()


def check_image(seen: Seen) -> Iterator[str]:
    succeeded(seen["first"], "I drew a blue square.")
    said = [message["content"] for message in messages(seen["first"], "assistant") if message.get("content")]
    need(said[0] == "You sent a PNG image, 1 by 1, of 70 bytes.", f"the agent said {said}")
    (result,) = messages(seen["first"], "tool")
    is_text = isinstance(result["content"], str)
    need("A square." in json.dumps(result["content"]), f"the result is {result}")
    succeeded(seen["then"], TEXT)
    (kept,) = [message for message in seen["thread"]["messages"] if message["role"] == "tool"]
    need([part["type"] for part in kept["content"]] == ["text", "image"], f"the thread now has {kept}")
    if is_text:
        yield "the image in a tool result: a line of text stands for it"


def check_interrupt(seen: Seen) -> Iterator[str]:
    succeeded(seen["first"], "Let me ask you something.")
    succeeded(seen["then"], "It will be green.")
    succeeded(seen["last"], TEXT)
    yield from ()


def check_interrupt_cancelled(seen: Seen) -> Iterator[str]:
    succeeded(seen["first"], "Let me ask you something.")
    if seen["then"] is None:
        yield "cancelling a question: this version has no `resume`; it answers in `forwardedProps.command.resume`"
    else:
        succeeded(seen["then"], "Then I choose for you: blue.")


def check_approval(seen: Seen) -> Iterator[str]:
    succeeded(seen["first"])
    succeeded(seen["then"], "Sent to grace@example.com.")
    yield from ()


def check_cancel(seen: Seen) -> Iterator[str]:
    cancelled = succeeded(seen["cancelled"])
    need(last_content(cancelled).startswith("1 2 3"), "the text is gone")
    connected = succeeded(seen["connected"])
    need(last_content(connected) == last_content(cancelled), f"another page shows {last_content(connected)!r}")
    succeeded(seen["then"], TEXT)
    outcomes = {(one["finished"].get("outcome") or {}).get("type") for one in (cancelled, connected)}
    if outcomes != {"cancelled"}:
        yield "that a run was cancelled: it ends like any other"


def check_stop(seen: Seen) -> Iterator[str]:
    need(seen["stopped"]["thrown"] is None, f"the client stopped: {seen['stopped']['thrown']}")
    succeeded(seen["then"], TEXT)
    yield from ()


def check_connect(seen: Seen) -> Iterator[str]:
    connected, last = succeeded(seen["connected"]), succeeded(seen["last"])
    need(connected["state"] == SOUP, f"the state is {connected['state']}")

    def shown(one: Seen) -> list[tuple[str, str, Any]]:
        return [(message["id"], message["role"], message.get("content")) for message in one["messages"]]

    missing = [message for message in shown(last) if message not in shown(connected)]
    need(not [message for message in missing if message[1] != "reasoning"], f"not among the messages: {missing}")
    succeeded(seen["then"], "It will be red.")
    if missing:
        yield "reasoning among the messages: the page gets the events only"


def check_connect_while_running(seen: Seen) -> Iterator[str]:
    watched, joined = succeeded(seen["watched"]), succeeded(seen["joined"])
    need(
        last_content(joined) == last_content(watched), f"{last_content(joined)!r} instead of {last_content(watched)!r}"
    )
    yield from ()


FEATURES: dict[str, tuple[str, Callable[[Seen], Iterator[str]]]] = {
    "help": ("help", check_help),
    "text": ("text, token usage", check_text),
    "tools": ("tools of the agent, in parallel", check_tools),
    "frontend": ("tools of the front end", check_frontend),
    "state": ("shared state", check_state),
    "state in Node": ("shared state, in Node's ES modules", check_state),
    "reasoning": ("reasoning", check_reasoning),
    "activity": ("activities", check_activity),
    "protobuf": ("tools, reasoning, activities, where protobuf is accepted too", check_protobuf),
    "steps": ("steps", check_steps),
    "subagents": ("subagents", check_subagents),
    "interrupt": ("interrupt, answered", check_interrupt),
    "interrupt, cancelled": ("interrupt, cancelled", check_interrupt_cancelled),
    "approval": ("approval with edited arguments", check_approval),
    "image": ("images in and out", check_image),
    "generative": ("A2UI, Open-JSON-UI, MCP-UI", check_generative),
    "error": ("a run that fails", check_error),
    "slow": ("cancel", check_cancel),
    "stop": ("stop, then continue", check_stop),
    "connect": ("`/connect`: thread, then an answer", check_connect),
    "connect while it runs": ("`/connect` while a run is in progress", check_connect_while_running),
}
"""The rows of the table: what it says, and the check."""


def judge(seen: Seen, feature: str) -> Losses:
    """Return the losses of a generation in a feature. Raises ``Broken``."""
    if set(seen) == {"thrown"}:
        raise Broken(f"the client stopped: {seen['thrown']}")
    return list(FEATURES[feature][1](seen))


def page(observed: dict[str, dict[str, Seen]]) -> str:
    """Write the table and the losses, as Markdown."""
    notes: dict[str, int] = {}
    rows: list[str] = []
    for feature, (title, _) in FEATURES.items():
        cells: list[str] = []
        for version in observed:
            try:
                losses = judge(observed[version][feature], feature)
            except Broken as broken:
                cells.append(f"**fails**: {' '.join(str(broken).split())[:120]}")
                continue
            numbers = [str(notes.setdefault(loss, len(notes) + 1)) for loss in losses]
            cells.append(f"partly ({', '.join(numbers)})" if numbers else "works")
        rows.append(f"| {title} | {' | '.join(cells)} |")
    lines = [
        "# Versions of clients that were tried",
        "",
        "<!-- written by `make clients`; do not edit -->",
        "",
        "The generations of `@ag-ui/client` that are in use, over every feature of the demo (`aguila serve`), through",
        "HTTP in Node, without a page. *works* means that the client's messages and state are what the agent sent, and",
        "that it can answer. *partly* means that it works, with the loss that the note names.",
        "[What older clients receive](dialects.md) lists what each generation receives.",
        "",
        f"| | {' | '.join(observed)} |",
        f"|---|{'---|' * len(observed)}",
        *rows,
        "",
        "Lost:",
        "",
        *(f"{number}. {loss}" for loss, number in notes.items()),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(observe()))
