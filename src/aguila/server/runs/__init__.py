"""Runs: how one starts, is owned, watched, ended and recovered."""
