"""Agents that are a model with tools, for the SDKs of model providers.

One module per provider: ``openai`` (Chat Completions and Responses, and every compatible server), ``anthropic``,
``gemini``. An SDK is imported only if a client has to be made.

Each module has the same three functions: ``request`` makes the arguments of the SDK's call from a ``Prompt``,
``updates`` converts the SDK's stream to chat updates, and ``agent`` runs both in a loop with tools.
"""

from aguila.chat.tools import FunctionTool, ToolError, tool
from aguila.providers._request.prompt import Prompt, prompt_of

__all__ = ["FunctionTool", "Prompt", "ToolError", "prompt_of", "tool"]
