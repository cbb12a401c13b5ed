"""Layer: testing. ``assert_stream``: that a stream follows the protocol, with everything that is wrong in the failure.

Below: ``stored`` and ``judging``. Above: the fixture of the same name; a test may also import it from here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from types import NoneType
from typing import Any, Protocol, cast, get_args

from aguila.client.arguments import expect, listed
from aguila.codec.formats import detect
from aguila.protocol import AssistantMessage, Message
from aguila.stream import Conversation
from aguila.stream.consumer import Raw
from aguila.stream.conversation import RunOutcome
from aguila.testing.checker import Finding, StreamChecker
from aguila.testing.plurals import counted
from aguila.testing.recordings import read_streams

Body = bytes | bytearray | memoryview
"""A stream as it is on the wire or in a file."""


class StreamAssertion(Protocol):
    """What the fixture ``assert_stream`` gives: see the function of that name."""

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
        """Hold a stream to the protocol."""
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
    """Hold a stream to the protocol, the producer's duties included, and give the conversation that it makes.

    ``stream`` is events (JSON, plain objects or typed), or the bytes of a body or a file in any form. ``messages`` and
    ``state`` are what the run started from; rules in ``ignore`` may be broken. ``types`` are the types of its events,
    ``text`` is what the assistant said in it, ``outcome`` how it ended: ``success``, ``interrupt``, ``cancelled`` or
    ``error``. Raises AssertionError, and TypeError or ValueError, with the argument's name, for what it cannot be.
    """
    events = _checked(stream, ignore, types, text, outcome)
    judge = StreamChecker(messages=messages, state=state)
    found: list[Finding] = []
    if isinstance(events, bytes):
        for one in read_streams(events, detect(events)):
            found += one.findings
            for event in one.events:
                judge.feed(event.data, event.index)
    else:
        for event in events:
            judge.feed(event)
    found += judge.close()
    broken = [finding for finding in found if finding.level != "note" and finding.rule not in ignore]
    if broken:
        lines = "\n".join(f"  {finding.level}: {finding}" for finding in broken)
        places = counted(len(broken), "place")
        hint = _missing_start(broken, messages, state)
        raise AssertionError(f"the stream breaks the protocol in {places}:\n{lines}{hint}")
    conversation = judge.conversation
    if types is not None:
        _same("the types of the events", judge.types, list(types))
    if text is not None:
        known = {message.id for message in messages}
        said = [m.content for m in conversation.messages if isinstance(m, AssistantMessage) and m.id not in known]
        _same("what the assistant said", "".join(one for one in said if one is not None), text)
    if outcome is not None:
        last = conversation.last_run
        _same("how the run ended", None if last is None else last.outcome, outcome)
    return conversation


def _checked(stream: Any, ignore: Any, types: Any, text: Any, outcome: Any) -> bytes | Iterable[Raw]:
    """The stream, if everything is what it can be: a text is a list of its characters, and would be judged as one."""
    expect("text", text, (str, NoneType), "what the assistant said, as text")
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


def _same(what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise AssertionError(f"{what}: {found!r}, expected {expected!r}")
