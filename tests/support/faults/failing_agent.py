"""An agent that fails a given number of times after it has used an answer, and counts its effects."""

from __future__ import annotations

from typing import Any


class Failing:
    """Ask for consent, pay, and then fail ``failures`` times in the middle of a message."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls = 0
        self.paid: list[Any] = []
        self.came_with: list[list[str]] = []
        """``run.resume_input`` of each resumed call."""

    async def __call__(self, run: Any) -> Any:
        self.calls += 1
        async with run.text() as text:  # which goes on after the question
            await text.write(f"{run.messages[-1].content}: ")
            approval = await run.approve("pay", {"amount": 5})
            self.came_with.append([f"{one.role} {one.content}" for one in run.resume_input.messages])
            if approval:
                await run.once("pay", self._pay)
            run.state["paid"] = bool(approval)
            await approval.call.result("paid" if approval else "not paid")
            async with run.reasoning() as thought:
                await thought.write("And now?")
            await run.activity("receipt", {"amount": 5})
            await text.write("that ")
            if self.failures:
                self.failures -= 1
                raise RuntimeError("after the answer was used")
            await text.write("is done.")

    def _pay(self) -> str:
        self.paid.append(5)
        return "receipt"
