"""The HTTP surface: routes, request bodies and responses."""
