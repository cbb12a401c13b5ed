"""Streams of events for tests: random, broken, complete, official, and as bytes."""
