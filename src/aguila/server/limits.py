"""Layer: server. How much a request may ask for. Sizes and counts are checked before anything is decoded.

Below: ``rejection``. Above: ``inputs``, ``files``, ``runs``.
"""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from aguila.codec.json.text import MAX_SIZE, check_depth
from aguila.errors import DecodeError
from aguila.offload import LARGE
from aguila.protocol import RunAgentInput
from aguila.server.errors import Rejected
from aguila.stream.json_values import MAX_JSON_DEPTH

UNLIMITED: Final = sys.maxsize
"""The size limit for stored values: they were checked when they arrived."""

_NONE: Final = msgspec.Raw()


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of an app. Sizes are in bytes. ``event`` is for one event that an agent sends.

    ``at_once`` is for bodies and uploads of more than 1 MiB, together: while they would be more, the next ones wait.
    ``runs_per_scope`` counts the runs of a scope that are on, in all processes that share the store; ``runs`` all that
    are on in this process. ``held`` is for what one run holds back with ``App(one_text_at_a_time=True)``.
    """

    body: int = MAX_SIZE
    event: int = MAX_SIZE
    messages: int = 10_000
    tools: int = 1_000
    resume: int = 1_000
    state: int = 2 * 1024 * 1024
    upload: int = 20 * 1024 * 1024
    upload_types: tuple[str, ...] | None = None
    at_once: int = 64 * 1024 * 1024
    id_length: int = 512
    runs_per_scope: int = 100
    runs: int = 10_000
    held: int = 256 * 1024

    def __post_init__(self) -> None:
        if isinstance(self.upload_types, str):  # which would be taken letter by letter
            raise ValueError(f"upload_types is a tuple: ({self.upload_types!r},)")

    def may_exceed(self, size: int) -> bool:
        """Whether ``check_raw`` has to look at a body of this size; what is shorter is counted when it is decoded."""
        return size > min(2 * MAX_JSON_DEPTH, self.state, 2 * self.messages, 2 * self.tools, 2 * self.resume)

    def check_raw(
        self,
        *,
        messages: msgspec.Raw = _NONE,
        tools: msgspec.Raw = _NONE,
        resume: msgspec.Raw = _NONE,
        state: msgspec.Raw = _NONE,
        state_size: int | None = None,
    ) -> None:
        """Raise ``Rejected`` (422) for members of an input, not decoded yet, that are too many, too large, too deep.

        ``state_size`` is for a state from which something was cut out.
        """
        _at_most(self.messages, messages, "messages", "/messages")
        _at_most(self.tools, tools, "tools", "/tools")
        _at_most(self.resume, resume, "resume", "/resume")
        if (len(memoryview(state)) if state_size is None else state_size) > self.state:
            raise Rejected(422, "state_too_large", f"the state may have {self.state} bytes", "/state")
        if len(memoryview(state)) > 2 * MAX_JSON_DEPTH:
            try:
                check_depth(bytes(state), most=MAX_JSON_DEPTH)
            except DecodeError as error:
                raise Rejected(422, "malformed_input", error.message, "/state") from None

    def check(self, input: RunAgentInput) -> None:  # noqa: A002 - the protocol's word for it
        """Raise ``Rejected`` (422) for an input with too much of something, or ids that cannot be any."""
        if len(input.messages) > self.messages:
            raise _too_many(len(input.messages), self.messages, "messages", "/messages")
        if input.tools is not None and len(input.tools) > self.tools:
            raise _too_many(len(input.tools), self.tools, "tools", "/tools")
        if input.resume is not None and len(input.resume) > self.resume:
            raise _too_many(len(input.resume), self.resume, "resume", "/resume")
        if input.thread_id == "" or input.run_id == "":
            path = "/threadId" if input.thread_id == "" else "/runId"
            raise Rejected(422, "malformed_input", "an id must not be empty", path)
        self.check_id(input.thread_id, "/threadId")
        self.check_id(input.run_id, "/runId")
        if input.parent_run_id is not None:
            self.check_id(input.parent_run_id, "/parentRunId")

    def check_id(self, value: str, path: str) -> None:
        """Raise ``Rejected`` (422) for an id that is too long, or that nothing can hold."""
        if not value.isascii() and not _is_text(value):
            raise Rejected(422, "malformed_input", "an id must be text, without lone surrogates", path)
        if len(value) > self.id_length:
            raise Rejected(422, "id_too_long", f"an id may have {self.id_length} characters", path)


def _is_text(value: str) -> bool:
    """Whether UTF-8 can hold it: JSON can escape half a character, which no store and no event can."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _at_most(most: int, found: msgspec.Raw, what: str, path: str) -> None:
    size = len(memoryview(found))
    if size <= 2 * most:  # each takes two bytes at least, with its comma
        return
    # And each is an object, else the decoder will not have it; but to copy what is large takes as long as to read it.
    if size <= LARGE and bytes(found).count(b"{") <= most:
        return
    try:
        count = len(_decode_list(found))
    except (msgspec.DecodeError, UnicodeError):
        return
    if count > most:
        raise _too_many(count, most, what, path)


_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _too_many(count: int, most: int, what: str, path: str) -> Rejected:
    noun = "answers" if what == "resume" else what
    return Rejected(422, f"too_many_{noun}", f"{count} {noun}, more than the {most} allowed", path)
