r"""Generative UI: surfaces for the user interface in three formats. The server passes each on unchanged.

A2UI as an activity that grows, Open-JSON-UI as a custom event, MCP-UI as the result of a tool call.

    python examples/08_generative_ui.py
    curl -N http://127.0.0.1:8000 -H 'content-type: application/json' \
        -d '{"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "Flights?"}]}'
"""

import asyncio
import os

import uvicorn

from aguila import App, Run

CATALOG = "https://a2ui.org/specification/v0_9/basic_catalog.json"


def a2ui(*flights: str) -> dict:
    rows = [{"id": f"f{place}", "component": "Text", "text": flight} for place, flight in enumerate(flights)]
    root = {"id": "root", "component": "Column", "children": [row["id"] for row in rows]}
    create = {"version": "v0.9", "createSurface": {"surfaceId": "flights", "catalogId": CATALOG}}
    update = {"version": "v0.9", "updateComponents": {"surfaceId": "flights", "components": [root, *rows]}}
    return {"a2ui_operations": [create, update]}


async def agent(run: Run):
    surface = await run.activity("a2ui-surface", a2ui())
    found: list[str] = []
    for flight in ("LIS 08:10", "OSL 09:45"):
        await asyncio.sleep(0.05)
        found.append(flight)
        await surface.update(a2ui(*found))  # the client gets a patch

    card = {"type": "card", "children": [{"type": "text", "text": "Two flights"}, {"type": "button", "label": "Book"}]}
    await run.custom("flights.card", {"type": "open-json-ui", "spec": card})

    call = await run.tool_call("show_map", {"of": "flights"})
    page = {"uri": "ui://flights/map", "mimeType": "text/html", "text": "<h1>A map</h1>"}
    await call.result({"content": [{"type": "resource", "resource": page}]})


app = App(agent)

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
