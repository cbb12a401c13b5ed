"""Additions to the protocol for TanStack AI's client."""
