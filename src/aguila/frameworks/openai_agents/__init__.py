"""Use an agent of the OpenAI Agents SDK as an agent: ``App(openai_agents.agent(agent))``."""

from aguila.frameworks.openai_agents.adapter import agent
from aguila.frameworks.openai_agents.items import from_items, to_items

__all__ = ["agent", "from_items", "to_items"]
