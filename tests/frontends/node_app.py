"""The demo agent behind a runtime that stops a run only by hanging up."""

import os

from aguila import App
from aguila.cli.demo import agent

app = App(agent, store=os.environ["AGUILA_STORE"], allow_anonymous=True, drain=0, cancel_unwatched_after=1)
