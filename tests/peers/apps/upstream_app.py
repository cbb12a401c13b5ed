"""Another server behind ``upstream``. PEER_URL is its endpoint; PEER_OPTIONS are options as JSON."""

from __future__ import annotations

import json
import os
import sys

import script

from aguila import App
from aguila.frameworks import upstream

given = json.loads(os.environ["PEER_OPTIONS"])
client = {"protobuf": given["protobuf"], "options": {"trust_env": False}}
app = App(upstream(os.environ["PEER_URL"], client=client, state_keys=given["state_keys"]), **script.app_options())

if __name__ == "__main__":
    script.serve_app(app, int(sys.argv[1]))
