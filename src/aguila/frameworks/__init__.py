"""Make agents of other frameworks durable: any AG-UI endpoint, or any iterator of AG-UI events, as an agent.

``upstream`` calls another endpoint; ``from_events`` calls a function. Both send the events that they receive through
``relay``.
"""

from aguila.frameworks.relay.iterator import from_events
from aguila.frameworks.relay.upstream import Upstream, upstream

__all__ = ["Upstream", "from_events", "upstream"]
