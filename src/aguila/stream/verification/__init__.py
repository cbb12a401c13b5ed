"""The rules of a stream as tables and texts, and what checks them: for readers, for producers, for reports."""
