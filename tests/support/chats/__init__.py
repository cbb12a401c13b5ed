"""Help for tests of the chat mapping."""
