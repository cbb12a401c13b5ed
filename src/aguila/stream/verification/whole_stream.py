"""Check a whole stream in one call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from aguila.errors import SequenceError
from aguila.protocol import Event
from aguila.protocol.legacy import MetaEvent
from aguila.stream.chunks import ChunkExpander
from aguila.stream.verification.verifier import End, Verifier


class Verdict(NamedTuple):
    """The result of ``verify``."""

    end: End
    findings: list[SequenceError]


def verify(events: Iterable[Event | MetaEvent], *, producer: bool = False, collect: bool = False) -> Verdict:
    """Check a whole stream, chunks included, as ``Verifier`` does. Errors name the index of the event passed in.

    META, a retired event, may occur anywhere. Raises ``SequenceError`` for the first violation, unless
    ``collect=True``, and TypeError for an object that is not an event.
    """
    expander = ChunkExpander()
    verifier = Verifier(producer=producer, collect=collect)
    index = -1
    for index, event in enumerate(events):
        try:
            expanded = expander.feed(event)  # type: ignore[arg-type]
        except SequenceError as error:
            error.index = index
            if not collect:
                raise
            verifier.findings.append(error)
            continue
        for part in expanded:
            verifier.index = index
            verifier.feed(part)
    verifier.index = index + 1
    return Verdict(verifier.close(), verifier.findings)
