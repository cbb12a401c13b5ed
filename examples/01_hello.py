r"""Hello: the text that an agent yields is streamed. Runs are kept in memory.

    python examples/01_hello.py
    curl -N http://127.0.0.1:8000 -H 'content-type: application/json' \
        -d '{"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "Hi"}]}'
"""

import os

import uvicorn

from aguila import App


async def agent(run):
    yield "Hello, "
    yield "world!"


app = App(agent)

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
