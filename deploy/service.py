"""The App that the files of this folder serve: the agent of ``aguila init``, for users with a token.

Change the host, and replace ``authenticate`` by the check of your login.
"""

import json
import os

from agent import agent
from aguila import App
from aguila.server import Limits, Principal, Request

TOKENS: dict[str, str] = json.loads(os.environ["TOKENS"])
"""The name of each user by token: ``{"a-long-random-token": "ada"}``."""


def authenticate(request: Request) -> Principal | None:
    """Return the user whose token the request has; None refuses it (401)."""
    name = TOKENS.get(request.headers.get("authorization", "").removeprefix("Bearer "))
    return None if name is None else Principal(scope=name)


app = App(
    agent,
    store=os.environ["AGUILA_STORE"],
    authenticate=authenticate,
    allowed_hosts=["agents.example.com"],
    limits=Limits(run_seconds=60),  # no run is longer
    drain=60,  # so each one ends before the process does
)
