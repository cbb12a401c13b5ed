"""How a run starts: admission, the queue of a busy thread, the first transaction, and what the agent needs."""
