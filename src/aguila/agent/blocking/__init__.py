"""``BlockingRun`` and its handles, for agents that run in a thread."""
