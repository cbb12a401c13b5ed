"""Faults for tests: bad agents, hostile requests, cut connections, and servers that can be killed."""
