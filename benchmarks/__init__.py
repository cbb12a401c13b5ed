"""Benchmarks: every figure next to its peer, measured in the same run."""
