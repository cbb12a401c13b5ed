"""Make an agent of a model's name, MCP servers and modules of tools, for ``aguila serve --model``."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import ModuleType
from typing import Any, cast

from opentelemetry import trace
from opentelemetry.metrics import NoOpMeterProvider
from pydantic_ai import AbstractToolset, Agent, FunctionToolset, Tool
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import infer_model
from pydantic_ai.models.instrumented import InstrumentationSettings

from aguila.chat.tools.function_tool import FunctionTool
from aguila.frameworks.pydantic_ai.adapter import RunAgent, agent
from aguila.telemetry import load_spans
from aguila.telemetry.contents import has_contents


def make_chat(
    model: str, *, instructions: str | None = None, mcp: Sequence[str] = (), tools: Sequence[ModuleType] = ()
) -> RunAgent:
    """Make an agent that answers with a model. Raises ``ValueError`` for a model or server that cannot be used."""
    try:
        found = infer_model(model)
    except (UserError, ImportError) as error:  # an unknown vendor, a missing key, a package that is not installed
        hint = "" if ":" in model else "; name its vendor, too, such as openai:gpt-5.4-mini"
        raise ValueError(f"cannot use the model {model}: {error}{hint}") from error
    toolsets = [toolset_of(module) for module in tools]
    if mcp:
        from aguila.frameworks.pydantic_ai.mcp import MCPServer  # its packages need not be installed

        try:
            toolsets = [*map(MCPServer, mcp), *toolsets]
        except ValueError as error:
            raise ValueError(f"cannot use --mcp {' --mcp '.join(map(repr, mcp))}: {error}") from error
    traced = [] if load_spans() is None else [_make_instrumentation()]
    return agent(Agent(found, instructions=instructions, toolsets=toolsets, capabilities=traced))


def _make_instrumentation() -> Instrumentation:
    """Let pydantic-ai make spans of models and tools, with contents if Aguila's spans have them."""
    settings = InstrumentationSettings(
        tracer_provider=trace.get_tracer_provider(),
        meter_provider=NoOpMeterProvider(),  # the metrics of the server count the tokens
        include_binary_content=False,
        include_content=has_contents(),
    )
    return Instrumentation(settings=settings)


def toolset_of(module: ModuleType) -> AbstractToolset[Any]:
    """Return the tools of a module: its pydantic-ai ``Tool`` objects, and the public functions that it defines."""
    own: FunctionToolset[Any] = FunctionToolset()
    for name, value in vars(module).items():
        if isinstance(value, FunctionTool):
            problem = "use pydantic_ai.Tool, or a plain function"
            raise TypeError(f"{module.__name__}.{name} is a tool of a client, which has no place here; {problem}")
        if isinstance(value, Tool):
            own.add_tool(cast("Tool[Any]", value))
        elif inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_"):
            own.add_tool(Tool(value))
    if not own.tools:
        raise ValueError(f"the module {module.__name__} defines no public functions that a model could call")
    return own
