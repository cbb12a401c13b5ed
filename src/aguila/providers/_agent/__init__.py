"""The loop that asks a model and executes its tool calls."""
