"""The strategies that users test with: valid data only, every type covered, and lone surrogates only on request."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis.errors import NoSuchExample
from hypothesis.strategies import SearchStrategy

from aguila.protocol import (
    MAX_SAFE_INTEGER,
    ContentPart,
    CustomEvent,
    Event,
    Message,
    RunFinishedInterruptOutcome,
    RunFinishedOutcome,
    StateDeltaEvent,
    SubagentFinishedOutcome,
    TextMessageStartEvent,
    UserMessage,
    legacy,
)
from aguila.testing import strategies

POINTER = re.compile(r"(/([^/~]|~[01])*)*")  # SNAP-7
# the first example found will do: no shrinking
SEARCH = settings(max_examples=300, deadline=None, database=None, derandomize=True, phases=[Phase.generate])


def is_in(value: Any, wanted: Any) -> bool:
    """Return whether ``wanted`` holds for a value or for anything inside it, keys included."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        return any(is_in(item, wanted) for pair in value.items() for item in pair)
    if isinstance(value, list):
        return any(is_in(item, wanted) for item in value)
    return wanted(value)


def is_half(value: Any) -> bool:
    return isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value)


@pytest.mark.parametrize(
    ("family", "union"),
    [
        (strategies.events(), Event),
        (strategies.messages(), Message),
        (strategies.parts(), ContentPart),
        (strategies.outcomes(), RunFinishedOutcome | SubagentFinishedOutcome),
        (strategies.legacy_events(), legacy.LegacyEvent),
    ],
    ids=["events", "messages", "parts", "outcomes", "legacy events"],
)
def test_every_kind_comes_up_in_its_family(family: SearchStrategy[Any], union: Any) -> None:
    seen: set[type] = set()

    # derandomized: whether a kind comes up in so many examples is not left to chance
    @settings(max_examples=25 * len(get_args(union)), deadline=None, derandomize=True, phases=[Phase.generate])
    @given(family)
    def collect(obj: Any) -> None:
        seen.add(type(obj))

    collect()
    assert seen == set(get_args(union))


@pytest.mark.parametrize("cls", [*get_args(Event), *get_args(legacy.LegacyEvent)], ids=lambda cls: cls.__name__)
def test_events_can_be_asked_for_by_class(cls: type[msgspec.Struct]) -> None:
    assert type(find(strategies.events(cls), lambda event: True, settings=SEARCH)) is cls


@settings(max_examples=100, deadline=None)
@given(strategies.json_values())
def test_json_is_finite_exact_and_whole(value: Any) -> None:
    assert not is_in(value, lambda item: isinstance(item, float) and not math.isfinite(item))
    assert not is_in(value, lambda item: type(item) is int and abs(item) > MAX_SAFE_INTEGER)
    assert not is_in(value, is_half)


def test_half_a_character_comes_up_only_on_request() -> None:
    asked = strategies.events(CustomEvent, surrogates=True)
    assert is_in(find(asked, lambda event: is_in(event, is_half), settings=SEARCH), is_half)
    with pytest.raises(NoSuchExample):
        find(strategies.events(CustomEvent), lambda event: is_in(event, is_half), settings=SEARCH)


def test_opaque_json_can_be_asked_for_without_a_whole_null() -> None:
    assert find(strategies.json_values(), lambda value: value is None, settings=SEARCH) is None
    with pytest.raises(NoSuchExample):
        find(strategies.json_values(null=False), lambda value: value is None, settings=SEARCH)
    inside = find(strategies.json_values(null=False), lambda v: isinstance(v, list) and None in v, settings=SEARCH)
    assert None in inside


@settings(max_examples=100, deadline=None)
@given(strategies.events(StateDeltaEvent))
def test_patches_point_by_the_grammar(event: StateDeltaEvent) -> None:
    for operation in event.delta:
        assert POINTER.fullmatch(operation["path"])
        assert operation["op"] not in ("move", "copy") or POINTER.fullmatch(operation["from"])


def test_some_patch_operations_carry_members_of_their_own() -> None:
    leftover = find(strategies.patch_operations(), lambda op: op["op"] == "remove" and "value" in op, settings=SEARCH)
    assert leftover["op"] == "remove"
    assert find(strategies.patch_operations(), lambda op: set(op) - {"op", "path", "from", "value"}, settings=SEARCH)


@settings(max_examples=100, deadline=None)
@given(strategies.for_type(RunFinishedInterruptOutcome))
def test_interrupts_are_there_and_have_ids_of_their_own(outcome: RunFinishedInterruptOutcome) -> None:
    ids = [interrupt.id for interrupt in outcome.interrupts]
    assert len(ids) == len(set(ids)) >= 1


@settings(max_examples=200, deadline=None)
@given(strategies.for_type(UserMessage))
def test_an_encrypted_value_has_a_type_only_if_it_has_a_value(message: UserMessage) -> None:
    assert message.encrypted_value is not None or message.encrypted_value_type is None


@settings(max_examples=50, deadline=None)
@given(strategies.for_type(legacy.BinaryInputContent))
def test_a_binary_part_says_where_its_bytes_are(part: legacy.BinaryInputContent) -> None:
    assert part.id or part.url or part.data


def test_optional_members_come_up_absent_and_present() -> None:
    starts = strategies.for_type(TextMessageStartEvent)
    for name in ("role", "name", "timestamp", "metadata", "raw_event", "subagent_run_id"):
        assert find(starts, lambda event, name=name: getattr(event, name) is None, settings=SEARCH)
        assert find(starts, lambda event, name=name: getattr(event, name) is not None, settings=SEARCH)


def test_what_is_no_wire_type_has_no_strategy() -> None:
    with pytest.raises(TypeError, match="not a type of the protocol"):
        strategies.for_type(bytes)


def test_every_public_strategy_makes_something() -> None:
    for name in strategies.__all__:
        if name != "for_type":
            find(getattr(strategies, name)(), lambda value: True, settings=SEARCH)


def test_without_hypothesis_the_error_says_what_to_install() -> None:
    code = """
import sys
sys.modules["hypothesis"] = None
from aguila.errors import MissingExtra
try:
    import aguila.testing.strategies
except MissingExtra as error:
    print(error.extra, error.package)
"""
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout.split() == ["testing", "hypothesis"]
