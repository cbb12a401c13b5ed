"""Tools: declare Python functions to a model, check their arguments and convert their results."""

from aguila.chat.tools.function_tool import (
    RUN,
    AnyTool,
    Confirm,
    FunctionTool,
    Toolbox,
    ToolError,
    content_of,
    tool,
)
from aguila.chat.tools.functions import function_schema, read_arguments
from aguila.chat.tools.pydantic_types import as_json

__all__ = [
    "RUN",
    "AnyTool",
    "Confirm",
    "FunctionTool",
    "ToolError",
    "Toolbox",
    "as_json",
    "content_of",
    "function_schema",
    "read_arguments",
    "tool",
]
