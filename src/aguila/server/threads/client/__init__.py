"""Match the messages that a client sends with the thread, filter them, and give them to the agent."""
