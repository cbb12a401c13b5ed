"""What becomes of the messages that a client sends: matched with the thread, filtered, and given to the agent."""
