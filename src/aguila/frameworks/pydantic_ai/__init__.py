"""pydantic-ai agents with models of any vendor: ``App(pydantic_ai.agent(Agent("openai:...")))``.

The agent runs natively, through pydantic-ai's public hooks. Added here are durability (questions, approvals, records of
answers and calls), the protocol's stream, the front end's tools, context and state, and masked errors.
"""

from aguila.errors import MissingExtra

try:
    from aguila.frameworks.pydantic_ai.adapter import agent
    from aguila.frameworks.pydantic_ai.history import from_model_messages, to_model_messages
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("pydantic", "pydantic_ai", "pydantic_core"):
        raise
    raise MissingExtra("models", "pydantic-ai-slim") from error

__all__ = ["agent", "from_model_messages", "to_model_messages"]
