"""``python -m aguila``: says what is installed and what it can do."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from aguila import __version__
from aguila.protocol import PROTOCOL_VERSION, EventType

_LAYERS = ("protocol", "codec", "stream", "store", "chat", "agent", "client", "server", "providers", "cli", "testing")


def main() -> int:
    """Print the version and the layers that exist."""
    present = [name for name in _LAYERS if find_spec(f"aguila.{name}") is not None]
    sys.stdout.write(
        f"aguila {__version__}, speaking AG-UI {PROTOCOL_VERSION} ({len(EventType)} event types)\n"
        f"layers: {', '.join(present)}\n"
        "try: README.md has examples to paste; make test runs everything\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
