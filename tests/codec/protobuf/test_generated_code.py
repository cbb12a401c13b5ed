"""The generated code is that of agui.proto, and agui.proto has the slots of the protocol."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from google.protobuf import descriptor_pool

from aguila.codec.protobuf._generated import agui_pb2
from aguila.codec.protobuf.schema import EVENTS, MessageFields
from aguila.protocol import BaseEvent, Event
from aguila.protocol._base import struct_fields

ROOT = Path(__file__).resolve().parents[3]


def test_the_committed_code_is_current() -> None:
    script = ROOT / "scripts" / "generate_proto.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr


def test_every_event_has_an_arm_and_a_number_of_its_own() -> None:
    assert len(EVENTS) == len(get_args(Event)) == 31
    assert {arm for _, _, arm, _ in EVENTS} == set(range(1, 32))
    assert {number for _, _, _, number in EVENTS} == set(range(31))


@pytest.mark.parametrize("cls", get_args(Event), ids=lambda cls: cls.__name__)
def test_every_field_of_an_event_has_a_slot(cls: type[BaseEvent]) -> None:
    base = {field.name for field in struct_fields(BaseEvent)}
    own = {field.name for field in struct_fields(cls)} - base
    # The outcome's lists and the parts of a tool result have slots beside the one named after the field.
    beside = {"interrupts", "pending_tool_call_ids", "interrupt_ids", "content_parts", "base_event"}
    assert set(MessageFields(cls.__name__).json_names) - beside == own


def test_the_messages_live_in_a_pool_of_our_own_beside_any_other_package_of_that_name() -> None:
    assert agui_pb2.DESCRIPTOR.package == "ag_ui"
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("ag_ui.Event")
