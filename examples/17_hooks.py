r"""Hooks: change the contents of a model before they become events.

    python examples/17_hooks.py
    curl -N http://127.0.0.1:8000 -H 'content-type: application/json' \
        -d '{"threadId": "t1", "runId": "r1", "messages":
             [{"id": "m1", "role": "user", "content": "Write about eagles"}]}'
"""

import json
import os

import uvicorn

from aguila import App, Run
from aguila.chat import (
    ChatMessage,
    ChatUpdate,
    Content,
    FunctionCallContent,
    FunctionResultContent,
    Hooks,
    TextContent,
    UriContent,
)
from aguila.protocol import CustomEvent, Interrupt


class Choice(Content, frozen=True, eq=False):
    """A custom content that the mapping does not know."""

    question: str
    options: list[str]


def show_source(content: Content) -> CustomEvent | None:
    """Turn a link into an event that the user interface shows as a card."""
    return CustomEvent(name="example/source", value={"url": content.uri}) if isinstance(content, UriContent) else None


def ask_choice(content: Content) -> Interrupt | None:
    if not isinstance(content, Choice):
        return None
    schema = {"type": "string", "enum": content.options}
    return Interrupt(id="choice", reason="input_required", message=content.question, response_schema=schema)


HOOKS = (
    Hooks()
    .preview_arguments("write", "text", "draft")  # the draft grows in the state while the call is streamed
    .map_result_as_state_delta("publish")  # the result is a JSON Patch of the state
    .map_result(lambda result: [], "publish")  # and is not shown: the call gets an empty result
    .map_content(show_source)
    .map_interrupt(ask_choice)
)


async def model(question: str):
    """Send what a model would send."""
    yield ChatUpdate(contents=[UriContent("https://example.org/eagles")])
    arguments = json.dumps({"text": "Eagles see very well."})
    for at in range(0, len(arguments), 12):
        yield FunctionCallContent("c1", "write", arguments[at : at + 12], is_complete=False)
    yield FunctionCallContent("c1", "write", arguments)
    yield ChatMessage("tool", [FunctionResultContent("c1", "written")])
    yield FunctionCallContent("c2", "publish", "{}")
    patch = [{"op": "add", "path": "/published", "value": True}]
    yield ChatMessage("tool", [FunctionResultContent("c2", json.dumps(patch))])
    yield TextContent("Done.")
    yield Choice(question="Which picture?", options=["nest", "flight"])


async def agent(run: Run):
    if run.resume:
        yield f"Then the {run.resume[0].payload}."
        return
    run.hooks = HOOKS
    async for update in model("Write about eagles"):
        yield update


app = App(agent)

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
