r"""Make another server's agent durable: this app stores its runs, and viewers can leave and come back.

    python examples/18_upstream.py
    curl -N http://127.0.0.1:8000/ -H 'content-type: application/json' \
        -d '{"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "To Oslo"}]}'
    curl -N http://127.0.0.1:8000/ -H 'content-type: application/json' -d '{"threadId": "t1", "runId": "r2",
        "messages": [], "resume": [{"interruptId": "seat-r1", "status": "resolved", "payload": "window"}]}'
    curl -N http://127.0.0.1:8000/threads/t1/events?after=0
"""

import json
import os

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from aguila import App
from aguila.frameworks import upstream

other = FastAPI()  # a server without Aguila: it streams events and keeps nothing


@other.post("/agent")
async def agent(request: Request) -> StreamingResponse:
    body = await request.json()
    ids = {"threadId": body["threadId"], "runId": body["runId"]}
    asked = {"id": f"seat-{body['runId']}", "reason": "input_required", "message": "Window or aisle?"}

    async def stream():
        if body.get("resume"):
            text, outcome = f"Booked: {body['resume'][0]['payload']}.", {"type": "success"}
        else:
            text, outcome = "One question first.", {"type": "interrupt", "interrupts": [asked]}
        for event in (
            {"type": "RUN_STARTED", **ids},
            {"type": "TEXT_MESSAGE_CHUNK", "messageId": f"answer-{body['runId']}", "delta": text},
            {"type": "RUN_FINISHED", **ids, "outcome": outcome},
        ):
            yield f"data: {json.dumps(event)}\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")


# upstream("https://agents.example.com/agent") for a server elsewhere, in any language.
app = App(upstream(other, path="/agent"), store="threads.db")

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
