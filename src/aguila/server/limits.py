"""Layer: server. How much a request may ask for. Sizes are checked before anything is parsed, counts before it is run.

Below: ``rejection``. Above: ``inputs``, ``files``, ``runs``.
"""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from aguila.codec import encode
from aguila.codec.text import MAX_SIZE
from aguila.protocol import RunAgentInput
from aguila.server.rejection import Rejected

STORED: Final = sys.maxsize
"""The size cap for what is read from the store: it was checked when it came."""

LARGE: Final = 1 << 20
"""Bytes from which on work is taken off the event loop, or done in slices: it would be held for milliseconds."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of an app. Sizes are in bytes. ``event`` is for one event that an agent sends.

    ``runs_per_scope`` and ``runs`` count runs that are on in this process, for one scope and for all.
    """

    body: int = MAX_SIZE
    event: int = MAX_SIZE
    messages: int = 10_000
    tools: int = 1_000
    state: int = 2 * 1024 * 1024
    upload: int = 20 * 1024 * 1024
    upload_types: tuple[str, ...] | None = None
    id_length: int = 512
    runs_per_scope: int = 100
    runs: int = 10_000

    def check(self, input: RunAgentInput, size: int) -> None:  # noqa: A002 - the protocol's word for it
        """Raise ``Rejected`` (422) for an input, of ``size`` bytes, with too much of something."""
        _at_most(self.messages, len(input.messages), "messages", "/messages")
        _at_most(self.tools, 0 if input.tools is None else len(input.tools), "tools", "/tools")
        for value, path in (
            (input.thread_id, "/threadId"),
            (input.run_id, "/runId"),
            (input.parent_run_id, "/parentRunId"),
        ):
            if value is None:
                continue
            if value == "" and path != "/parentRunId":
                raise Rejected(422, "malformed_input", "an id must not be empty", path)
            if not value.isascii() and not _is_text(value):
                raise Rejected(422, "malformed_input", "an id must be text, without lone surrogates", path)
            if len(value) > self.id_length:
                raise Rejected(422, "id_too_long", f"an id may have {self.id_length} characters", path)
        if size > self.state and input.state is not None and len(encode(input.state)) > self.state:
            raise Rejected(422, "state_too_large", f"the state may have {self.state} bytes", "/state")


def _is_text(value: str) -> bool:
    """Whether UTF-8 can hold it: JSON can escape half a character, which no store and no event can."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _at_most(most: int, count: int, what: str, path: str) -> None:
    if count > most:
        raise Rejected(422, f"too_many_{what}", f"{count} {what}, more than the {most} allowed", path)
