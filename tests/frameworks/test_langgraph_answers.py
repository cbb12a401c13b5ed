"""Answers to a graph that does not wait for them. The rest of the adapter is tested by `make peers`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aguila.frameworks.langgraph.interrupts import read_answers
from aguila.protocol import ResumeEntry

PAST = SimpleNamespace(values={"messages": ["Hi"]}, interrupts=(), next=("tools",))
EMPTY = SimpleNamespace(values={}, interrupts=(), next=())


@pytest.mark.parametrize(
    ("snapshot", "problem"),
    [
        (PAST, "the graph is past the answered interrupts i1: .* cancel them to continue the thread"),
        (EMPTY, "does not have the answered interrupts i1; compile the graph with a checkpointer that outlives"),
        (None, "does not have the answered interrupts i1; compile the graph with a checkpointer that outlives"),
    ],
    ids=["used", "lost", "no checkpointer"],
)
def test_an_answer_that_the_graph_does_not_wait_for_is_refused_with_the_reason(snapshot: Any, problem: str) -> None:
    entry = ResumeEntry(interrupt_id="i1", status="resolved", payload={"approved": True})
    with pytest.raises(LookupError, match=problem):
        read_answers(snapshot, [entry])
