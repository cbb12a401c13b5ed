"""Building requests and reading the responses that are not streams."""
