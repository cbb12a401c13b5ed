"""The limits of a request. Sizes and counts are checked before the body is decoded."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Any, Final, Self

import msgspec

from aguila.codec.json.bounded_floats import json_decoder
from aguila.codec.json.text import MAX_SIZE, check_depth
from aguila.errors import DecodeError
from aguila.protocol import RunAgentInput
from aguila.server.config.errors import Rejected
from aguila.server.config.removed import LIMITS, refuse_removed
from aguila.stream.json_values import MAX_JSON_DEPTH

UNLIMITED: Final = sys.maxsize
"""The size limit for stored values: they were checked when they arrived."""

_ABSENT: Final = msgspec.Raw()


MAX_MESSAGES: Final = 10_000
MAX_TOOLS: Final = 1_000
MAX_ANSWERS: Final = 1_000
MAX_ID_LENGTH: Final = 512
"""Counts of a request, and the characters of an id."""

_MOST: Final = {"messages": MAX_MESSAGES, "tools": MAX_TOOLS, "resume": MAX_ANSWERS}

WRITE_SECONDS: Final = 60.0
"""A reader that accepts nothing for so long is disconnected."""


@dataclass(frozen=True, kw_only=True)
class Quota:
    """How much may be stored. None sets no limit."""

    threads: int | None = None
    files: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of an app. Sizes are in bytes.

    ``event`` is the size of one event of an agent. ``buffered`` is the total size of the bodies and uploads of more
    than 1 MiB that are processed at the same time; further ones wait. It is also the total size of the pieces of
    documents and files that are held for readers; further requests are refused (503). ``runs_per_scope`` counts the
    runs in progress of a scope, in all processes that share the store. ``runs`` counts those of this process.
    ``runs_per_address`` counts those that one address without credentials has started there, loopback addresses
    excepted. A run that takes longer than ``run_seconds`` ends with RUN_ERROR ``run_timeout``.

    Quotas of storage refuse a run or an upload (507); a run that has begun is never cut. ``per_scope`` is for each
    scope, ``total`` for all scopes together, ``anonymous`` for the scope that all callers without credentials share.
    ``per_address`` is what one address without credentials may send within an hour (429), loopback addresses excepted.
    """

    body: int = MAX_SIZE
    event: int = MAX_SIZE
    state: int = 2 << 20
    upload: int = 20 << 20
    upload_types: tuple[str, ...] | None = None
    buffered: int = 64 << 20
    runs: int = 10_000
    runs_per_scope: int = 100
    runs_per_address: int = 20
    run_seconds: float | None = None
    per_scope: Quota = Quota()
    total: Quota = Quota()
    anonymous: Quota = Quota(threads=100_000, files=10_000, bytes=4 << 30)
    per_address: Quota = Quota(threads=2_000, bytes=1 << 30)

    def __new__(cls, **given: Any) -> Self:
        """Refuse fields of earlier versions, with their new places."""
        refuse_removed("Limits", given.keys() - cls.__dataclass_fields__.keys(), LIMITS)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        if isinstance(self.upload_types, str):  # a string would be read as a list of letters
            value = self.upload_types
            raise ValueError(f"upload_types is the string {value!r}; use a tuple: upload_types=({value!r},)")
        if self.run_seconds is not None and self.run_seconds <= 0:
            raise ValueError(f"run_seconds is {self.run_seconds!r}; use a positive number, or None for no limit")
        for name in ("per_scope", "total", "anonymous", "per_address"):
            if not isinstance(value := getattr(self, name), Quota):
                raise TypeError(f"{name} is {value!r}; use {name}=Quota(...)")

    def check_raw(
        self,
        *,
        state: msgspec.Raw,
        forwarded_props: msgspec.Raw,
        messages: msgspec.Raw = _ABSENT,
        tools: msgspec.Raw = _ABSENT,
        resume: msgspec.Raw = _ABSENT,
    ) -> None:
        """Check the undecoded members of an input. Raises ``Rejected`` (422) for too many, large or deep ones."""
        for name, raw in (("messages", messages), ("tools", tools), ("resume", resume)):
            # An element takes at least two bytes, with its comma.
            if len(memoryview(raw)) > 2 * _MOST[name]:
                count = _count(raw)
                if count > _MOST[name]:
                    raise _too_many(name, count)
        size = len(memoryview(forwarded_props))
        if size > self.state:
            message = f"forwardedProps has {size} bytes; at most {self.state} are allowed, as of the state"
            raise Rejected(422, "too_large", message, "/forwardedProps")
        size = len(memoryview(state))
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
        for name, elements in (("messages", input.messages), ("tools", input.tools), ("resume", input.resume)):
            if elements is not None and len(elements) > _MOST[name]:
                raise _too_many(name, len(elements))
        if input.thread_id == "" or input.run_id == "":
            path = "/threadId" if input.thread_id == "" else "/runId"
            raise Rejected(422, "malformed_input", "the id is empty", path)
        ids = {"/threadId": input.thread_id, "/runId": input.run_id, "/parentRunId": input.parent_run_id}
        for path, value in ids.items():
            if value is not None and not _PLAIN_ID.fullmatch(value):
                check_id(value, path)


_PLAIN_ID: Final = re.compile(f"[\\x01-\\x7f]{{0,{MAX_ID_LENGTH}}}")


def check_id(value: str, path: str) -> None:
    """Check the length and the encoding of an id. Raises ``Rejected`` (422)."""
    if not value.isascii() and not is_encodable(value):
        raise Rejected(422, "malformed_input", "the id contains lone surrogates, which UTF-8 cannot encode", path)
    if "\0" in value:
        raise Rejected(422, "malformed_input", "the id contains NUL, which not every store can keep", path)
    if len(value) > MAX_ID_LENGTH:
        raise Rejected(
            422, "id_too_long", f"the id has {len(value)} characters; at most {MAX_ID_LENGTH} are allowed", path
        )


def is_encodable(value: str) -> bool:
    """Return whether UTF-8 can encode the text: JSON may escape a lone surrogate."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


_decode_list = json_decoder(list[msgspec.Raw]).decode


def _count(raw: msgspec.Raw) -> int:
    """Return the number of elements; 0 of what is no list."""
    try:
        return len(_decode_list(raw))
    except (msgspec.DecodeError, UnicodeError):
        return 0


def _too_many(name: str, count: int) -> Rejected:
    noun = "answers" if name == "resume" else name
    message = f"the request has {count} {noun}; at most {_MOST[name]} are allowed"
    return Rejected(422, f"too_many_{noun}", message, f"/{name}")
