r"""A model that needs approval to pay: its call is sent, and the run with the answer continues.

The first command ends with `"outcome": {"type": "interrupt", ...}`; answer it with the interrupt's id, in a new run:

    ANTHROPIC_API_KEY=... python examples/15_model_with_approval.py
    curl -N http://127.0.0.1:8000 -H 'content-type: application/json' \
        -d '{"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "Pay the rent"}]}'

    curl -N http://127.0.0.1:8000 -H 'content-type: application/json' \
        -d '{"threadId": "t1", "runId": "r2", "messages": [],
             "resume": [{"interruptId": "int_...", "status": "resolved", "payload": {"approved": true}}]}'

The model is not asked again what it said before, and nothing is paid twice. Other answers are {"approved": false} and
{"approved": true, "editedArgs": {"amount": 850, "to": "the landlord"}}. MODEL names a model of any other vendor.
"""

import os

import uvicorn
from pydantic_ai import Agent, ApprovalRequired, RunContext

from aguila import App, Run
from aguila.frameworks import pydantic_ai

TRANSFERS: list[float] = []
bank = Agent(
    os.environ.get("MODEL", "anthropic:claude-sonnet-5-5"),
    deps_type=Run,
    instructions="You look after an account. The rent is 900, to the landlord.",
)


@bank.tool_plain
def balance() -> float:
    """Return the balance of the account."""
    return 1200 - sum(TRANSFERS)


@bank.tool
def transfer(ctx: RunContext[Run], amount: float, to: str) -> str:
    """Transfer an amount to somebody."""
    if amount > 50 and not ctx.tool_call_approved:
        raise ApprovalRequired
    TRANSFERS.append(amount)
    return f"Transferred {amount} to {to}: transfer {len(TRANSFERS)}."


app = App(pydantic_ai.agent(bank))

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
