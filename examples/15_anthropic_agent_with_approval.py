r"""A model that needs approval to pay: its call is sent, and the run with the answer continues.

The first command ends with `"outcome": {"type": "interrupt", ...}`; answer it with the interrupt's id, in a new run:

    ANTHROPIC_API_KEY=... python examples/15_anthropic_agent_with_approval.py
    curl -N http://127.0.0.1:8000 -H 'content-type: application/json' \
        -d '{"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "Pay the rent"}]}'

    curl -N http://127.0.0.1:8000 -H 'content-type: application/json' \
        -d '{"threadId": "t1", "runId": "r2", "messages": [],
             "resume": [{"interruptId": "int_...", "status": "resolved", "payload": {"approved": true}}]}'

The model is not asked again what it said before, and nothing is paid twice. Other answers are {"approved": false} and
{"approved": true, "editedArgs": {"amount": 850, "to": "the landlord"}}.
"""

import os

import uvicorn
from anthropic import AsyncAnthropic

from aguila import App, tool
from aguila.providers import anthropic

TRANSFERS: list[dict] = []


def balance() -> float:
    """Return the balance of the account."""
    return 1200 - sum(transfer["amount"] for transfer in TRANSFERS)


@tool(needs_approval=lambda arguments: arguments["amount"] > 50)
def transfer(amount: float, to: str) -> str:
    """Transfer an amount to somebody."""
    TRANSFERS.append({"amount": amount, "to": to})
    return f"Transferred {amount} to {to}: transfer {len(TRANSFERS)}."


agent = anthropic.agent(
    AsyncAnthropic(),
    model=os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-5-5"),
    tools=[balance, transfer],
    instructions="You look after an account. The rent is 900, to the landlord.",
)
app = App(agent)

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
