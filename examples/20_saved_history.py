r"""Save the events of a thread as a JSON array and as JSONL, restore them, and continue the conversation.

python examples/20_saved_history.py
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from aguila import App, Run
from aguila.codec.jsonl import JSONArrayEncoder, encode_lines, read_events
from aguila.protocol import Event
from aguila.server import Sends
from aguila.store import MemoryStore
from aguila.stream import consume
from aguila.testing import client_for


async def agent(run: Run):
    run.state["turns"] = run.state.get("turns", 0) + 1
    yield f"Turn {run.state['turns']}: I have {len(run.messages)} messages."


def new_app() -> App:
    return App(
        agent, store=MemoryStore(), sends=Sends(echo_input=True)
    )  # RUN_STARTED then has the user's messages, which no other event has


def save_lines(path: Path, events: list[Event]) -> None:
    """Append one line per event: a process that dies leaves a readable file."""
    with path.open("ab") as file:
        file.writelines(encode_lines(events))


def save_array(path: Path, events: list[Event]) -> None:
    """Write one JSON array, which any JSON parser reads."""
    encoder = JSONArrayEncoder()
    with path.open("wb") as file:
        file.writelines(encoder.encode(event) for event in events)
        file.write(encoder.close())


def restore(path: Path) -> list[Event]:
    """Read either format. An invalid line raises DecodeError with its number."""
    with path.open("rb") as file:
        return list(read_events(file))


async def main(folder: Path) -> None:
    lines, array = folder / "history.jsonl", folder / "history.json"
    async with client_for(new_app()) as client:  # AsyncClient(url) for a server elsewhere
        thread = client.thread("t1")
        for text in ("Hello", "And again"):
            save_lines(lines, [event async for event in thread.run(text)])
    save_array(array, restore(lines))
    print("same events:", restore(array) == restore(lines))

    conversation = consume(restore(array))  # verifies the events and applies them
    for message in conversation.messages:
        print(f"{message.role}: {message.content}")

    # Another server, which does not have the thread, receives the messages and the state with the next run.
    async with client_for(new_app()) as client:
        thread = client.thread("t1", messages=conversation.messages, state=conversation.state)
        print("restored:", (await thread.run("Go on")).text)


with TemporaryDirectory() as name:
    asyncio.run(main(Path(name)))
