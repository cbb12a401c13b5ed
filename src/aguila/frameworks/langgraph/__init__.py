"""Use a LangGraph graph as an agent: ``App(langgraph.agent(graph))``."""

from aguila.frameworks.langgraph.adapter import agent, frontend_tools
from aguila.frameworks.langgraph.messages import from_langchain, to_langchain

__all__ = ["agent", "from_langchain", "frontend_tools", "to_langchain"]
