"""The limits of a request. Sizes and counts are checked before the body is decoded."""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from aguila.codec.json.bounded_floats import json_decoder
from aguila.codec.json.text import MAX_SIZE, check_depth, count_up_to
from aguila.errors import DecodeError
from aguila.protocol import RunAgentInput
from aguila.server.errors import Rejected
from aguila.stream.json_values import MAX_JSON_DEPTH

UNLIMITED: Final = sys.maxsize
"""The size limit for stored values: they were checked when they arrived."""

_ABSENT: Final = msgspec.Raw()


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of an app. Sizes are in bytes.

    ``event`` is the size of one event of an agent. ``at_once`` is the total size of the bodies and uploads of more than
    1 MiB that are processed at the same time; further ones wait. ``runs_per_scope`` counts the runs in progress of a
    scope, in all processes that share the store. ``runs`` counts those of this process. ``runs_per_peer`` counts those
    that one address without credentials has started there, loopback addresses excepted. ``held`` is what one
    response may hold back to send one text and one tool call at a time. ``unsent`` is the total size of the pieces of
    documents and files that are held for readers; further requests are refused (503). A reader that accepts nothing for
    ``write_seconds`` is disconnected. A run that takes longer than ``run_seconds`` ends with RUN_ERROR ``run_timeout``.

    Quotas of storage refuse a run or an upload (507); a run that has begun is never cut. ``threads_per_scope``,
    ``files_per_scope`` and ``bytes_per_scope`` are for each scope, ``threads``, ``files`` and ``bytes`` for all scopes
    together. ``anonymous_threads``, ``anonymous_files`` and ``anonymous_bytes`` are for the scope that all callers
    without credentials share. ``bytes_per_peer`` and ``threads_per_peer`` are what one address without credentials may
    send within an hour (429), loopback addresses excepted. None sets no limit.
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
    runs_per_peer: int = 20
    held: int = 256 * 1024
    unsent: int = 64 * 1024 * 1024
    write_seconds: float = 60.0
    run_seconds: float | None = None
    threads_per_scope: int | None = None
    files_per_scope: int | None = None
    bytes_per_scope: int | None = None
    threads: int | None = None
    files: int | None = None
    bytes: int | None = None
    anonymous_threads: int | None = 100_000
    anonymous_files: int | None = 10_000
    anonymous_bytes: int | None = 4 * 1024 * 1024 * 1024
    threads_per_peer: int | None = 2_000
    bytes_per_peer: int | None = 1024 * 1024 * 1024

    def __post_init__(self) -> None:
        if isinstance(self.upload_types, str):  # a string would be read as a list of letters
            value = self.upload_types
            raise ValueError(f"upload_types is the string {value!r}; use a tuple: upload_types=({value!r},)")
        if self.run_seconds is not None and self.run_seconds <= 0:
            raise ValueError(f"run_seconds is {self.run_seconds!r}; use a positive number, or None for no limit")

    def may_exceed(self, size: int) -> bool:
        """Return whether a body of this size needs ``check_raw``. A shorter one is checked after it is decoded."""
        return size > min(2 * MAX_JSON_DEPTH, self.state, 2 * self.messages, 2 * self.tools, 2 * self.resume)

    def check_raw(
        self,
        *,
        messages: msgspec.Raw = _ABSENT,
        tools: msgspec.Raw = _ABSENT,
        resume: msgspec.Raw = _ABSENT,
        state: msgspec.Raw = _ABSENT,
        state_size: int | None = None,
        text: bytes | None = None,
    ) -> None:
        """Check the undecoded members of an input. Raises ``Rejected`` (422) for too many, too large or too deep ones.

        ``state_size`` is the full size of a state from which large strings were excised. ``text`` is the JSON of all
        members, if there is one.
        """
        _check_count(self.messages, messages, text, "messages", "/messages")
        _check_count(self.tools, tools, text, "tools", "/tools")
        _check_count(self.resume, resume, text, "resume", "/resume")
        size = len(memoryview(state)) if state_size is None else state_size
        if size > self.state:
            raise Rejected(
                422, "state_too_large", f"the state has {size} bytes; at most {self.state} are allowed", "/state"
            )
        if len(memoryview(state)) > 2 * MAX_JSON_DEPTH:
            try:
                check_depth(bytes(state), most=MAX_JSON_DEPTH)
            except DecodeError as error:
                raise Rejected(422, "malformed_input", error.message, "/state") from None

    def check(self, input: RunAgentInput) -> None:  # noqa: A002 - the protocol's word for it
        """Check the counts and ids of an input. Raises ``Rejected`` (422)."""
        if len(input.messages) > self.messages:
            raise _too_many(len(input.messages), self.messages, "messages", "/messages")
        if input.tools is not None and len(input.tools) > self.tools:
            raise _too_many(len(input.tools), self.tools, "tools", "/tools")
        if input.resume is not None and len(input.resume) > self.resume:
            raise _too_many(len(input.resume), self.resume, "resume", "/resume")
        if input.thread_id == "" or input.run_id == "":
            path = "/threadId" if input.thread_id == "" else "/runId"
            raise Rejected(422, "malformed_input", "the id is empty", path)
        self.check_id(input.thread_id, "/threadId")
        self.check_id(input.run_id, "/runId")
        if input.parent_run_id is not None:
            self.check_id(input.parent_run_id, "/parentRunId")

    def check_id(self, value: str, path: str) -> None:
        """Check the length and the encoding of an id. Raises ``Rejected`` (422)."""
        if not value.isascii() and not is_encodable(value):
            raise Rejected(422, "malformed_input", "the id contains lone surrogates, which UTF-8 cannot encode", path)
        if "\0" in value:
            raise Rejected(422, "malformed_input", "the id contains NUL, which not every store can keep", path)
        if len(value) > self.id_length:
            raise Rejected(
                422, "id_too_long", f"the id has {len(value)} characters; at most {self.id_length} are allowed", path
            )


def is_encodable(value: str) -> bool:
    """Return whether UTF-8 can encode the text: JSON may escape a lone surrogate."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_count(most: int, raw: msgspec.Raw, text: bytes | None, what: str, path: str) -> None:
    # An element takes at least two bytes, with its comma, and every valid element is an object.
    if len(memoryview(raw)) <= 2 * most:
        return
    # Commas: the other elements may be no objects, and reporting each of them takes longer than counting.
    if text is not None and count_up_to(text, b"{", most) <= most and text.count(b",") <= 4 * most:
        return
    try:
        count = len(_decode_list(raw))
    except (msgspec.DecodeError, UnicodeError):
        return
    if count > most:
        raise _too_many(count, most, what, path)


_decode_list = json_decoder(list[msgspec.Raw]).decode


def _too_many(count: int, most: int, what: str, path: str) -> Rejected:
    noun = "answers" if what == "resume" else what
    return Rejected(422, f"too_many_{noun}", f"the request has {count} {noun}; at most {most} are allowed", path)
