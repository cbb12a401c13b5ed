"""Stores with content for tests, and PostgreSQL servers."""
