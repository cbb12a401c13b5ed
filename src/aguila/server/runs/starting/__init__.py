"""How a run starts: admission, the queue of a busy thread, the first transaction, and the input of the agent."""
