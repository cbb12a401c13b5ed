"""Build requests, and read the responses that are not streams."""
