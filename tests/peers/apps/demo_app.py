"""The demo agent behind ``App``, for the clients of others."""

from __future__ import annotations

import sys

import script

from aguila import App
from aguila.cli.demo import agent

app = App(agent, allow_anonymous=True, **script.app_options())

if __name__ == "__main__":
    script.serve_app(app, int(sys.argv[1]))
