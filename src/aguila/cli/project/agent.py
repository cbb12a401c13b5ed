"""The agent: ``aguila serve agent`` serves it, and test_agent.py tests it."""

import random

from aguila import Run


async def agent(run: Run) -> str:
    """Answer a message. Replace this with a model, a framework or any code."""
    if "dice" not in run.user_text.lower():
        return "Ask me to roll the dice."
    # This ends the run with a question. The run with the answer continues here.
    approval = await run.approve("roll_dice", {"count": 2})
    if not approval:
        await approval.call.result("refused")
        return "Then not."
    count = approval.arguments["count"]  # the user may have edited the arguments
    rolled = [random.randint(1, 6) for _ in range(count)]
    await approval.call.result(rolled)
    run.state["rolled"] = rolled  # the client receives each change
    return f"You rolled {' and '.join(map(str, rolled))}."
