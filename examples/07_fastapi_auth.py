r"""Mounted in FastAPI, with authentication: each user has their own threads, and cannot open those of others.

    python examples/07_fastapi_auth.py
    curl -N http://127.0.0.1:8000/agent -H 'authorization: Bearer ada-token' -H 'content-type: application/json' \
        -d '{"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "Who am I?"}]}'
    curl http://127.0.0.1:8000/agent/threads -H 'authorization: Bearer ada-token'
    curl http://127.0.0.1:8000/agent/threads -H 'authorization: Bearer bob-token'
"""

import os

import uvicorn
from fastapi import FastAPI

from aguila import App, Run
from aguila.server import Principal, Request

USERS = {"ada-token": Principal(scope="ada", name="Ada"), "bob-token": Principal(scope="bob", name="Bob")}


def authenticate(request: Request) -> Principal | None:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return USERS.get(token) if kind == "Bearer" else None


async def agent(run: Run):
    return f"You are {run.principal.name}."


agent_app = App(agent, store="threads.db", authenticate=authenticate)
app = FastAPI(lifespan=agent_app.lifespan)
agent_app.mount_on(app, "/agent")


@app.get("/")
def index() -> dict:
    return {"agent": "/agent"}


if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
