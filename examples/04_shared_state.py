r"""Shared state: a list that agent and user interface both change. The agent's changes are sent as JSON Patches.

    python examples/04_shared_state.py
    curl -N http://127.0.0.1:8000 -H 'content-type: application/json' \
        -d '{"threadId": "t1", "runId": "r1", "state": {"todos": [{"title": "water the plants", "done": false}]},
             "messages": [{"id": "m1", "role": "user", "content": "buy leeks, cook soup"}]}'
"""

import asyncio
import os

import uvicorn

from aguila import App, Run


async def agent(run: Run):
    todos = run.state.setdefault("todos", [])  # plain lists and dicts: changes are found by comparing
    request = run.user_text
    async with run.text() as text:
        for title in request.split(","):
            todos.append({"title": title.strip(), "done": False})
            await text.write(f"Noted: {title.strip()}. ")
            await asyncio.sleep(0.05)
    run.state["open"] = sum(not todo["done"] for todo in todos)


app = App(agent)

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
