"""Perform the actions that the client's logic asks for, with and without asyncio."""
