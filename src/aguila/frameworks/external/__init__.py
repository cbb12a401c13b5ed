"""Helpers that the adapters of frameworks share: imports, the input of a run, and iterators in tasks of their own."""
