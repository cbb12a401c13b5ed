r"""Durable threads: runs continue without a viewer, survive a restart of the server, and can be joined and branched.

With `history="server"` a client sends only new messages. Start a run, disconnect with Ctrl-C, and join it again:

    python examples/06_durable_threads.py
    curl -N http://127.0.0.1:8000 -H 'content-type: application/json' \
        -d '{"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "Count to 20"}]}'
    curl -N 'http://127.0.0.1:8000/threads/t1/events?protocolVersion=1.1' -H 'last-event-id: 3'

Continue the thread, branch off after the first run, and compare both branches:

    curl -N http://127.0.0.1:8000 -H 'content-type: application/json' \
        -d '{"threadId": "t1", "runId": "r2", "messages": [{"id": "m2", "role": "user", "content": "Count to 3"}]}'
    curl -N http://127.0.0.1:8000 -H 'content-type: application/json' \
        -d '{"threadId": "t1", "runId": "r3", "parentRunId": "r1",
             "messages": [{"id": "m3", "role": "user", "content": "Count to 5"}]}'
    curl http://127.0.0.1:8000/threads
    curl http://127.0.0.1:8000/threads/t1?run=r2
    curl http://127.0.0.1:8000/threads/t1?run=r3
"""

import asyncio
import os
import re

import uvicorn

from aguila import App, Run
from aguila.protocol import UserMessage


async def agent(run: Run):
    asked = [message for message in run.messages if isinstance(message, UserMessage)]
    run.session["turns"] = run.session.get("turns", 0) + 1  # private to the agent, stored with the thread
    yield f"You have asked {len(asked)} times here, {run.session['turns']} in all."
    request = asked[-1].content
    assert isinstance(request, str)
    for number in range(1, int(re.sub(r"\D", "", request) or 3) + 1):
        await asyncio.sleep(0.1)
        yield f" {number}"


# Without authentication everyone who reaches the server reads and deletes all threads, so this is allowed explicitly.
app = App(agent, store="threads.db", history="server", allow_anonymous=True)

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
