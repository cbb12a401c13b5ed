"""``assert_stream``: assert that a stream follows the protocol, and list every violation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from types import NoneType
from typing import Any, Protocol, cast, get_args

from aguila.client.arguments import expect, listed
from aguila.codec.formats import detect_format
from aguila.protocol import AssistantMessage, Message
from aguila.stream import Conversation
from aguila.stream.consumer import Raw
from aguila.stream.conversation import RunOutcome
from aguila.stream.verification.checker import Finding, StreamChecker
from aguila.testing.plurals import counted
from aguila.testing.recordings import read_streams

Body = bytes | bytearray | memoryview
"""The bytes of a response or a file."""


class StreamAssertion(Protocol):
    """The type of the fixture ``assert_stream``: the function of that name."""

    def __call__(
        self,
        stream: Body | Iterable[Raw],
        *,
        messages: Sequence[Message] = (),
        state: Any = None,
        ignore: Collection[str] = (),
        types: Sequence[str] | None = None,
        text: str | None = None,
        outcome: RunOutcome | None = None,
    ) -> Conversation:
        """Assert that a stream follows the protocol."""
        ...


def assert_stream(
    stream: Body | Iterable[Raw],
    *,
    messages: Sequence[Message] = (),
    state: Any = None,
    ignore: Collection[str] = (),
    types: Sequence[str] | None = None,
    text: str | None = None,
    outcome: RunOutcome | None = None,
) -> Conversation:
    """Assert that a stream follows the protocol, obligations of the producer included. Return its conversation.

    ``stream`` is events (JSON, dicts or typed), or the bytes of a response or a file in any format. ``messages`` and
    ``state`` are those that the run started from; pass them for every run of a thread but the first. Rules in
    ``ignore`` may be broken. ``types``, ``text`` and ``outcome`` are what you expect: the event types, the text of the
    assistant, and ``success``, ``interrupt``, ``cancelled`` or ``error``. Raise AssertionError; TypeError or ValueError
    for an invalid argument.
    """
    events = _check_arguments(stream, ignore, types, text, outcome)
    checker = StreamChecker(messages=messages, state=state)
    found: list[Finding] = []
    if isinstance(events, bytes):
        for one in read_streams(events, detect_format(events)):
            found += one.findings
            for event in one.events:
                checker.feed(event.data, event.index)
    else:
        for event in events:
            checker.feed(event)
    found += checker.close()
    broken = [finding for finding in found if finding.level != "note" and finding.rule not in ignore]
    if broken:
        lines = "\n".join(f"  {finding.level}: {finding}" for finding in broken)
        places = counted(len(broken), "place")
        hint = _missing_start(broken, messages, state)
        raise AssertionError(f"the stream breaks the protocol in {places}:\n{lines}{hint}")
    conversation = checker.conversation
    if types is not None:
        _assert_equal("the event types", checker.types, list(types))
    if text is not None:
        known = {message.id for message in messages}
        said = [m.content for m in conversation.messages if isinstance(m, AssistantMessage) and m.id not in known]
        _assert_equal("the text of the assistant", "".join(one for one in said if one is not None), text)
    if outcome is not None:
        last = conversation.last_run
        _assert_equal("the outcome of the run", None if last is None else last.outcome, outcome)
    return conversation


def _check_arguments(stream: Any, ignore: Any, types: Any, text: Any, outcome: Any) -> bytes | Iterable[Raw]:
    """Return the stream. Raise TypeError or ValueError for invalid arguments: a string would pass as a list."""
    expect("text", text, (str, NoneType), "the text of the assistant")
    listed("ignore", ignore, 'rules, such as ["VER-2"]')
    if types is not None:
        listed("types", types, "the types of events")
    if outcome is not None and outcome not in get_args(RunOutcome):
        raise ValueError(f"outcome: expected one of {', '.join(get_args(RunOutcome))}, got {outcome!r}")
    if isinstance(stream, bytes | bytearray | memoryview):
        return bytes(stream)  # type: ignore[reportUnknownArgumentType]
    is_one = isinstance(stream, str | dict)
    expect("stream", stream, () if is_one else Iterable, "a list of events, or the bytes of a body")
    return cast("Iterable[Raw]", stream)


def _missing_start(broken: Sequence[Finding], messages: Sequence[Message], state: Any) -> str:
    """Explain the failure if the test did not say what a later run of a thread started from."""
    if state is None and any(one.rule == "SNAP-9" and one.event == "STATE_DELTA" for one in broken):
        missing = "state=..."
    elif not messages and any(one.rule == "ACT-9" for one in broken):
        missing = "messages=..."
    else:
        return ""
    return (
        "\nA patch did not apply, and the stream was checked from an empty start. If this is not the first run of its"
        f" thread, pass what it started from: assert_stream(events, {missing})"
    )


def _assert_equal(what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise AssertionError(f"{what}: {found!r}, expected {expected!r}")
