"""What the OpenAPI document says about TanStack AI's requests to the root."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from aguila.server.http.openapi.operation import EVENTS, JSON, Answer, Operation, Parameter, number, text
from aguila.server.http.openapi.operations import CURSOR


class HydratedChat(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A thread in the form of TanStack AI's client."""

    messages: list[dict[str, Any]]
    active_run: dict[str, Any] | None
    interrupts: dict[str, Any] | None
    page: dict[str, Any]


ROOT: Final = Operation(
    summary="Answer TanStack AI",
    answers={
        200: Answer(
            description="A thread or a run in the form of TanStack AI's client",
            content={JSON: HydratedChat, **EVENTS.content},
        )
    },
    parameters={
        "threadId": text("Hydrate this thread"),
        "limit": number("The messages of a page", 1, 1000),
        "before": text("The cursor of the page before"),
        "runId": text("Join this run; needs `offset`"),
        "offset": Parameter(description="A run is joined from its first event", schema={"enum": ["-1"]}),
        **CURSOR,
    },
)
