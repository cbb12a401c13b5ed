r"""Approval and user input: a run ends with a question, and the run with the answer continues from there.

The first command ends with `"outcome": {"type": "interrupt", ...}`. Answer it with its id, in a new run on the thread.
Without messages the thread keeps those that it has:

    python examples/05_approval_and_input.py
    curl -N http://127.0.0.1:8000 -H 'content-type: application/json' \
        -d '{"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "Pay the rent"}]}'

    curl -N http://127.0.0.1:8000 -H 'content-type: application/json' \
        -d '{"threadId": "t1", "runId": "r2", "messages": [],
             "resume": [{"interruptId": "int_...", "status": "resolved", "payload": {"amount": 900}}]}'

The next interrupt asks for approval of the transfer: answer with {"approved": true}, with {"approved": false}, or with
{"approved": true, "editedArgs": {"amount": 850, "to": "the landlord"}}.
"""

import os

import uvicorn

from aguila import App, Run
from aguila.agent import InterruptCancelled

AMOUNT = {"type": "object", "properties": {"amount": {"type": "number", "minimum": 1}}, "required": ["amount"]}
TRANSFERS: list[dict] = []


def transfer(amount: float, to: str) -> int:
    TRANSFERS.append({"amount": amount, "to": to})
    return len(TRANSFERS)


async def agent(run: Run):
    try:
        answer = await run.ask("How much is it?", schema=AMOUNT)
    except InterruptCancelled:
        return "Then I leave it."
    approval = await run.approve("transfer", {"amount": answer["amount"], "to": "the landlord"})
    if not approval:
        await approval.call.result("refused")
        return "I have not paid."
    # The answer replays the agent from its beginning; `once` prevents that the effect is repeated.
    number = await run.once("transfer", lambda: transfer(**approval.arguments))
    await approval.call.result({"transfer": number})
    return f"Paid {approval.arguments['amount']} to {approval.arguments['to']}: transfer {number}."


app = App(agent)

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
