"""A thread's messages and state, read from its log, for agents and for clients that attach later."""
