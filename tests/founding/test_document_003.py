"""The event and lifecycle rules of document 003 (AGENTS.md for AGUI.Protocol), as executable cases."""

from __future__ import annotations

import pytest

from aguila.codec import EventDecoder, Notice, decode_event
from aguila.errors import DecodeError
from aguila.protocol import ReasoningMessageStartEvent

REASONING_START = {"type": "REASONING_MESSAGE_START", "messageId": "m", "role": "assistant"}


@pytest.mark.parametrize("version", [None, "0.0.57"])
def test_a_reasoning_message_of_the_role_assistant_is_read_from_a_peer_before_1_0(version: str | None) -> None:
    notices: list[Notice] = []
    decoder = EventDecoder(warn=notices.append)
    declared = {} if version is None else {"protocolVersion": version}
    decoder.feed({"type": "RUN_STARTED", "threadId": "t", "runId": "r", **declared})
    assert decoder.feed(REASONING_START) == [ReasoningMessageStartEvent(message_id="m")]
    assert [notice.rule for notice in notices] == ["reasoning-role"]


def test_a_reasoning_message_of_the_role_assistant_is_read_alone() -> None:
    data = b'{"type":"REASONING_MESSAGE_START","messageId":"m","role":"assistant"}'
    assert decode_event(data, warn=[].append) == ReasoningMessageStartEvent(message_id="m")
    with pytest.raises(DecodeError):
        decode_event(data, strict=True)


@pytest.mark.parametrize("version", ["1.0", "1.1", "2.0", "draft"])
def test_a_reasoning_message_of_the_role_assistant_is_fatal_from_1_0_on(version: str) -> None:
    decoder = EventDecoder()
    decoder.feed({"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": version})
    with pytest.raises(DecodeError, match="role"):
        decoder.feed(REASONING_START)


def test_each_run_of_a_stream_declares_its_own_version() -> None:
    decoder = EventDecoder(warn=[].append)
    decoder.feed({"type": "RUN_STARTED", "threadId": "t", "runId": "r1", "protocolVersion": "1.1"})
    decoder.feed({"type": "RUN_FINISHED", "threadId": "t", "runId": "r1"})
    decoder.feed({"type": "RUN_STARTED", "threadId": "t", "runId": "r2"})
    assert decoder.feed(REASONING_START) == [ReasoningMessageStartEvent(message_id="m")]
