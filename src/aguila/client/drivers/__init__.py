"""Perform the effects that the client's logic asks for, with and without asyncio."""
