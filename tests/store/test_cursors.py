"""The tokens of cursors."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from aguila.store.cursors import PATTERN, new_token

FORK = r"""
import os
from aguila.store.cursors import new_token

child = os.fork()
os.write(1, new_token().encode() + b"\n")  # in one piece: both processes write
if child:
    os.waitpid(child, 0)
"""


def test_tokens_differ() -> None:
    tokens = {new_token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert all(re.match(PATTERN, token) for token in tokens)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no processes that begin as copies of others")
def test_a_forked_process_has_tokens_of_its_own() -> None:
    """Servers such as Gunicorn fork their workers after the import of the app."""
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, check=True)
    first, second = done.stdout.split()
    assert first != second
