"""Layer: stream. What a stream of events means, without I/O, clock or randomness.

Below: ``aguila.codec`` and ``aguila.protocol``. Above: store, chat, agent, client, server. The same code serves all of
them, so that nobody ever sees two answers.
"""

from aguila.stream.chunks import ChunkExpander, expand_chunks
from aguila.stream.compact import compact
from aguila.stream.consume import Consumer, consume
from aguila.stream.conversation import Conversation
from aguila.stream.lineage import Lineage
from aguila.stream.patch import apply_patch, make_patch
from aguila.stream.reduce import Reducer, reduce
from aguila.stream.usage import aggregate_token_usage
from aguila.stream.verify import Verifier, verify
from aguila.stream.write import EventWriter

__all__ = [
    "ChunkExpander",
    "Consumer",
    "Conversation",
    "EventWriter",
    "Lineage",
    "Reducer",
    "Verifier",
    "aggregate_token_usage",
    "apply_patch",
    "compact",
    "consume",
    "expand_chunks",
    "make_patch",
    "reduce",
    "verify",
]
