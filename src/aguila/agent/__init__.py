"""Run agents without HTTP: the ``Run`` that they write through, and the executor that ends their runs.

An agent is any callable that takes a ``Run``; ``agents`` lists the forms.
"""

from aguila.agent.blocking.run import BlockingRun
from aguila.agent.context import Ending, Replay, RunContext, Services, Sink
from aguila.agent.execute import execute
from aguila.agent.interrupts import RunInterrupt
from aguila.agent.questions import Approval, InterruptCancelled, ProposedCall, Question
from aguila.agent.run import Run
from aguila.agent.tool_calls import ToolResult

__all__ = [
    "Approval",
    "BlockingRun",
    "Ending",
    "InterruptCancelled",
    "ProposedCall",
    "Question",
    "Replay",
    "Run",
    "RunContext",
    "RunInterrupt",
    "Services",
    "Sink",
    "ToolResult",
    "execute",
]
