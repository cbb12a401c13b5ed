"""Ports for servers that a test starts in a process of their own."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """Return a port of the loopback address that nothing listens on.

    It is below those that the system gives to connections, which could take it before the server has it, or while the
    server is restarted.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
