"""Layer: providers. Chat to and from the SDKs of model providers, and agents that are a model with tools.

Below: ``aguila.agent`` (``Run``) and ``aguila.chat``, the neutral model. Above: applications. One module per provider:
``openai`` (Chat Completions and Responses, and every server that speaks the former), ``anthropic``, ``gemini``. An SDK
is imported only when a client is to be made; a client that is given brings its own.

Each module has the same three functions: ``request`` makes the arguments of the SDK's call from a ``Prompt``,
``updates`` makes chat updates of what the SDK streams, and ``agent`` puts them into a loop with tools.
"""

from aguila.chat.tools import FunctionTool, ToolError, tool
from aguila.providers._prompt import Prompt, prompt_of

__all__ = ["FunctionTool", "Prompt", "ToolError", "prompt_of", "tool"]
