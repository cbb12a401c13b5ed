"""Describe Python functions as tools, and convert their arguments and results."""

from aguila.chat.tools.functions import function_schema, read_arguments
from aguila.chat.tools.pydantic_types import as_json

__all__ = ["as_json", "function_schema", "read_arguments"]
