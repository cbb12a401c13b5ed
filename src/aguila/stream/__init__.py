"""The meaning of an event stream: expand, verify, reduce, write, patch and compact. No I/O, clock or randomness."""

from aguila.stream.chunks import ChunkExpander, expand_chunks
from aguila.stream.compact import compact
from aguila.stream.consumer import Consumer, consume
from aguila.stream.conversation import Conversation
from aguila.stream.lineage import Lineage
from aguila.stream.patch import apply_patch, make_patch
from aguila.stream.reducer import Reducer, reduce
from aguila.stream.steps import StepDetails, step_details
from aguila.stream.usage import aggregate_token_usage
from aguila.stream.verification.verifier import Verifier, verify
from aguila.stream.writer import EventWriter

__all__ = [
    "ChunkExpander",
    "Consumer",
    "Conversation",
    "EventWriter",
    "Lineage",
    "Reducer",
    "StepDetails",
    "Verifier",
    "aggregate_token_usage",
    "apply_patch",
    "compact",
    "consume",
    "expand_chunks",
    "make_patch",
    "reduce",
    "step_details",
    "verify",
]
