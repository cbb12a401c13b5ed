"""The rules of a stream as tables and texts, and their checks: for readers, for producers, for reports."""
