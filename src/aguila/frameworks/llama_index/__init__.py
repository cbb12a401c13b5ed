"""Use a LlamaIndex agent or workflow as an agent: ``App(llama_index.agent(workflow))``."""

from aguila.frameworks.llama_index.adapter import agent

__all__ = ["agent"]
