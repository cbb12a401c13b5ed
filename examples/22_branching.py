r"""Continue a thread from an earlier run: parentRunId starts a branch, Lineage reads the tree of runs.

python examples/22_branching.py
"""

import asyncio

from aguila import App, AsyncClient, Run
from aguila.protocol import Event
from aguila.server import Sends
from aguila.store import MemoryStore
from aguila.stream import Lineage
from aguila.testing import client_for


async def agent(run: Run):
    run.state["cities"] = [*run.state.get("cities", []), run.user_text]
    yield f"So far: {', '.join(run.state['cities'])}."


async def visit(client: AsyncClient, city: str, run_id: str, parent: str | None = None) -> list[Event]:
    """Run the agent in the thread "trip". A new client thread sends only the new message: the server has the rest."""
    return [event async for event in client.thread("trip").run(city, run_id=run_id, parent_run_id=parent)]


async def main() -> None:
    app = App(agent, store=MemoryStore(), history="server", sends=Sends(echo_input=True))
    async with client_for(app) as client:
        log = await visit(client, "Lisbon", "r1")
        log += await visit(client, "Oslo", "r2")
        log += await visit(client, "Rome", "r3", parent="r1")  # edit: as if r2 had not been
        log += await visit(client, "Cairo", "r4")  # without a parent: continues the latest run, r3

    lineage = Lineage(log)
    for run in lineage.runs:
        print(run.run_id, "continues", run.parent_run_id, "- children:", run.children)
    for leaf, path in lineage.branches().items():
        conversation = lineage.reduce_along(leaf)  # only the runs of this branch
        print(leaf, path, conversation.state)
        for message in conversation.messages:
            print(f"  {message.role}: {message.content}")


asyncio.run(main())
