"""The agent behind ``make run``: it shows every feature by a keyword, without a model and without network.

Each function here is an agent with one feature. ``agent`` calls the one whose keyword is in the last message.
"""

from __future__ import annotations

import asyncio
import base64
import struct
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

from aguila.agent import InterruptCancelled, Run
from aguila.agent.handles import ReasoningHandle, TextHandle
from aguila.agent.run_api import RunAPI
from aguila.codec.json.values import is_object
from aguila.protocol import TokenUsage, ToolMessage, UserMessage
from aguila.protocol.messages import parts_of
from aguila.protocol.parts import DataSource, ImagePart, TextPart

PACE = 0.02
"""Seconds between words: about as fast as a model writes."""

A2UI_CATALOG = "https://a2ui.org/specification/v0_9/basic_catalog.json"
"""The catalog of components that A2UI renderers bring along."""

WORDS = {"question": "Do you like eagles?", "purpose": "a picture or a note"}
"""Arguments of the front-end tools that people read, by name."""

FEATURES: dict[str, Callable[[Run], Awaitable[None]]] = {}
"""The features by keyword. The first one that the message mentions is shown."""


async def agent(run: Run) -> None:
    """Show the feature that the last message mentions. Repeat a front end's answer to a tool call."""
    last = run.messages[-1] if run.messages else None
    if isinstance(last, ToolMessage):
        answer = "".join(part.text for part in parts_of(last.content) if isinstance(part, TextPart))
        await say(run, f"Your front end answered: {answer}")
        return
    await FEATURES[keyword_in(question_of(run))](run)


setattr(  # noqa: B010 - a function declares its capabilities by an attribute that type checkers do not know
    agent,
    "capabilities",
    {
        "identity": {
            "name": "Demo",
            "description": "Shows every feature of AG-UI by a keyword, without a model and without network.",
        },
        "custom": {
            "suggestions": [
                "Help: what can I ask for?",
                "Show me tools",
                "Show me reasoning",
                "Ask me for approval",
                "Ask me something: interrupt",
                "Let two subagents work",
                "Use the tools of my frontend",
                "Show me a generative UI",
            ]
        },
    },
)


def keyword_in(text: str) -> str:
    """Return the first keyword that a text mentions, in singular or plural and any case; ``help`` if none."""
    words = {singular(word) for word in text.lower().split()}
    return next((keyword for keyword in FEATURES if singular(keyword) in words), "help")


def singular(word: str) -> str:
    """Return the singular of a word, for the plurals that keywords have."""
    word = word.strip(".,;:!?'\"()")
    return word[:-3] + "y" if word.endswith("ies") else word.removesuffix("s")


def feature(keyword: str) -> Callable[[Callable[[Run], Awaitable[None]]], Callable[[Run], Awaitable[None]]]:
    """Register a function for a keyword."""

    def register(show: Callable[[Run], Awaitable[None]]) -> Callable[[Run], Awaitable[None]]:
        FEATURES[keyword] = show
        return show

    return register


@feature("help")
async def say_help(run: Run) -> None:
    """What can be asked for."""
    lines = [f"- {keyword}: {show.__doc__}" for keyword, show in FEATURES.items()]
    await run.say("I am a demo: no model, no network. Mention one of these.\n" + "\n".join(lines))


@feature("text")
async def show_text(run: Run) -> None:
    """A message, word by word, with the tokens it cost."""
    await say(run, "An agent writes text through its run, piece by piece, and everybody who watches sees it grow.")
    run.add_usage(TokenUsage(provider="demo", model="words", input_tokens=3, output_tokens=19))


@feature("frontend")
async def show_frontend_tools(run: Run) -> None:
    """A call of each tool that your front end offers; the run ends and waits for the answers."""
    if not run.tools:
        await say(run, "Offer me a tool in the `tools` of the input, and I will call it.")
    for tool in run.tools:
        await run.tool_call(tool.name, example_of(tool.parameters))


@feature("tools")
async def show_tools(run: Run) -> None:
    """Two calls of tools that the agent has itself, at the same time, and their results."""

    async def look_up(city: str, degrees: int) -> None:
        async with run.stream_tool_call("get_weather") as call:
            for piece in ('{"city": ', f'"{city}"', "}"):
                await call.args(piece)
                await asyncio.sleep(PACE)
        await call.result({"city": city, "degrees": degrees})

    async with asyncio.TaskGroup() as both:
        both.create_task(look_up("Lisbon", 24))
        both.create_task(look_up("Oslo", 11))
    run.add_usage(TokenUsage(provider="demo", model="words", input_tokens=3, output_tokens=12))
    await say(run, "It is 24 degrees in Lisbon and 11 in Oslo.")
    run.add_usage(TokenUsage(provider="demo", model="words", input_tokens=24, output_tokens=10))


@feature("state")
async def show_state(run: Run) -> None:
    """A state shared with your front end: changes go out as patches, and once as a whole."""
    ingredients: list[str] = []
    recipe = {"title": "Soup", "ingredients": ingredients}
    run.state = {**run.state, "recipe": recipe} if is_object(run.state) else {"recipe": recipe}
    await run.state_snapshot()
    for ingredient in ("leek", "potato", "thyme"):
        ingredients.append(ingredient)
        await say(run, f"Now with {ingredient}.")


@feature("reasoning")
async def show_reasoning(run: Run) -> None:
    """A thought before the answer, with a sealed part that only the agent can read."""
    async with run.reasoning() as thought:
        await write(thought, "Six times seven: six sevens are forty-two.")
        await thought.encrypted(base64.b64encode(b"sealed").decode())
    await say(run, "The answer is 42.")


@feature("activity")
async def show_activity(run: Run) -> None:
    """Structured progress that changes while you look at it."""
    steps = [{"title": title, "done": False} for title in ("search", "read", "write")]
    plan = await run.activity("PLAN", {"steps": steps})
    for step in steps:
        await asyncio.sleep(PACE * 5)
        step["done"] = True
        await plan.update({"steps": steps})
    await say(run, "The plan is done.")


@feature("steps")
async def show_steps(run: Run) -> None:
    """Steps within a step, with how they went."""
    async with run.step("research") as research:
        for number, title in enumerate(("search", "read"), start=1):
            async with run.step(title, parent=research) as step:
                await say(run, f"I {title}.")
                step.result = {"found": number}
        research.result = "two sources"


@feature("subagents")
async def show_subagents(run: Run) -> None:
    """Two subagents at work at the same time."""

    async def delegate(name: str, words: str) -> None:
        async with run.subagent(name, f"The {name} of the team") as subagent:
            await say(subagent, words)
            subagent.result = {"words": len(words.split())}

    async with asyncio.TaskGroup() as team:
        team.create_task(delegate("researcher", "I found two papers about eagles."))
        team.create_task(delegate("critic", "One of them is about golf."))
    await say(run, "My team has spoken.")


@feature("interrupt")
async def show_interrupt(run: Run) -> None:
    """A question to you; the run ends and continues when you answer."""
    await say(run, "Let me ask you something.")
    schema = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
    try:
        answer = await run.ask("Which colour shall it have?", schema=schema)
    except InterruptCancelled:
        await say(run, "Then I choose for you: blue.")
        return
    await say(run, f"It will be {answer['colour']}.")


@feature("approval")
async def show_approval(run: Run) -> None:
    """A tool call that waits for your consent; you may edit its arguments."""
    try:
        approval = await run.approve("send_mail", {"to": "ada@example.com", "subject": "Eagles"})
    except InterruptCancelled as given_up:  # no answer is no consent
        (approval,) = given_up.answers
    if not approval:
        await approval.call.result("The user refused.")
        await say(run, "Nothing was sent.")
        return
    sent = await run.once("send", lambda: {"sent": True, **approval.arguments})  # never twice, however often we resume
    await approval.call.result(sent)
    await say(run, f"Sent to {sent.get('to')}.")


@feature("image")
async def show_image(run: Run) -> None:
    """What your image is, inline or uploaded; and an image as the result of a tool."""
    for image in images_of(run):
        data = await run.file(image)
        found = "an image that I cannot read" if data is None else describe_image(data)
        await say(run, f"You sent {found}.")
    call = await run.tool_call("draw", {"colour": "blue"})
    drawing = base64.b64encode(png(16, 16, (0, 0, 255))).decode()
    await call.result([TextPart(text="A square."), ImagePart(source=DataSource(value=drawing, mime_type="image/png"))])
    await say(run, "I drew a blue square.")


@feature("generative")
async def show_generative_ui(run: Run) -> None:
    """User interfaces as payloads: A2UI in an activity, Open-JSON-UI in a custom event, MCP-UI in a tool result."""
    components = [
        {"id": "root", "component": "Column", "children": ["title", "ok"]},
        {"id": "title", "component": "Text", "text": "Book the flight?"},
        {"id": "label", "component": "Text", "text": "Book"},
        {"id": "ok", "component": "Button", "child": "label", "action": {"event": {"name": "book"}}},
    ]
    create = {"version": "v0.9", "createSurface": {"surfaceId": "flight", "catalogId": A2UI_CATALOG}}
    fill = {"version": "v0.9", "updateComponents": {"surfaceId": "flight", "components": components}}
    await run.activity("a2ui-surface", {"a2ui_operations": [create, fill]})
    card = {"type": "card", "children": [{"type": "text", "text": "Lisbon, 24 degrees"}]}
    await run.custom("demo.open-json-ui", {"type": "open-json-ui", "spec": card})
    call = await run.tool_call("show_chart", {"of": "eagles"})
    resource = {"uri": "ui://demo/chart", "mimeType": "text/html", "text": "<h1>Eagles</h1>"}
    await call.result({"content": [{"type": "resource", "resource": resource}]})
    await say(run, "Three ways to say what to draw.")


@feature("error")
async def show_error(run: Run) -> None:
    """An agent that fails: you get a reference, the log gets the reason."""
    await say(run, "I am about to fail.")
    raise RuntimeError("the demo fails when it is asked to")


@feature("slow")
async def show_slow(run: Run) -> None:
    """A long answer: disconnect and return, or cancel it."""
    await say(run, " ".join(str(number) for number in range(1, 301)), pace=0.1)


# Functions that the features share


def question_of(run: Run) -> str:
    """Return the text of the last user message."""
    for message in reversed(run.messages):
        if isinstance(message, UserMessage):
            return " ".join(part.text for part in parts_of(message.content) if isinstance(part, TextPart))
    return ""


def images_of(run: Run) -> list[ImagePart]:
    """Return the images of the last message."""
    last = run.messages[-1]
    content = last.content if isinstance(last, UserMessage) else ""
    return [part for part in parts_of(content) if isinstance(part, ImagePart)]


async def say(writer: RunAPI, words: str, pace: float = PACE) -> None:
    """Send a message word by word."""
    async with writer.text() as text:
        await write(text, words, pace)


async def write(handle: TextHandle | ReasoningHandle, words: str, pace: float = PACE) -> None:
    """Write words to an open message."""
    for place, word in enumerate(words.split(" ")):
        await handle.write(word if place == 0 else f" {word}")
        await asyncio.sleep(pace)


def example_of(schema: Any) -> Any:
    """Return a value that matches a simple JSON Schema."""
    if not is_object(schema):
        return {}
    if "enum" in schema:
        return schema["enum"][0]
    simple: dict[Any, Any] = {"string": "demo", "integer": 1, "number": 1.5, "boolean": True, "array": []}
    if schema.get("type") in simple:
        return simple[schema["type"]]
    return {name: WORDS.get(name) or example_of(each) for name, each in schema.get("properties", {}).items()}


def describe_image(data: bytes) -> str:
    """Describe an image by its first bytes."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24])
        return f"a PNG image, {width} by {height}, of {len(data)} bytes"
    for start, name in ((b"\xff\xd8\xff", "JPEG"), (b"GIF8", "GIF"), (b"RIFF", "WebP")):
        if data.startswith(start):
            return f"a {name} image of {len(data)} bytes"
    return f"{len(data)} bytes of something else"


def png(width: int, height: int, colour: tuple[int, int, int]) -> bytes:
    """Return a PNG image in one colour."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = (b"\0" + bytes(colour) * width) * height
    chunks = [chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
