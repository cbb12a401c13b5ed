r"""Frontend tools: the agent calls a tool that the user interface offers, and continues with its result.

The run ends with the call pending (`pendingToolCallIds`). The front end does what the tool says and starts the next run
with the result as a tool message: the second command.

    python examples/03_frontend_tools.py
    curl -N http://127.0.0.1:8000 -H 'content-type: application/json' \
        -d '{"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "Book a table"}],
             "tools": [{"name": "pick_time", "description": "Let the user pick a time", "parameters": {}}]}'
    curl -N http://127.0.0.1:8000 -H 'content-type: application/json' \
        -d '{"threadId": "t1", "runId": "r2", "messages": [{"id": "m1", "role": "user", "content": "Book a table"},
             {"id": "m2", "role": "assistant", "toolCalls":
                 [{"id": "c1", "type": "function", "function": {"name": "pick_time", "arguments": "{}"}}]},
             {"id": "m3", "role": "tool", "toolCallId": "c1", "content": "19:30"}]}'
"""

import os

import uvicorn

from aguila import App, Run
from aguila.protocol import ToolMessage


async def agent(run: Run):
    last = run.messages[-1]
    if isinstance(last, ToolMessage):
        await run.say(f"A table at {last.content}: booked.")
    elif any(tool.name == "pick_time" for tool in run.tools):
        await run.say("When would you like to come?")
        await run.tool_call("pick_time", {"from": "18:00", "to": "22:00"})  # no result: the front end sends it
    else:
        await run.say("When? I cannot show you a clock.")


app = App(agent)

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
