"""The examples of events, saved histories, parts, branches and compaction, as real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes.forked import run_script
from serving import REPOSITORY

NAMES = ["19_events.py", "20_saved_history.py", "21_multimodal.py", "22_branching.py", "23_compaction.py"]


def run_example(name: str, folder: Path) -> list[str]:
    lines = run_script(REPOSITORY / "examples" / name, folder).splitlines()
    return [line.rstrip() for line in lines]


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_short_and_says_how_to_run_it(name: str) -> None:
    source = (REPOSITORY / "examples" / name).read_text()
    assert len(source.splitlines()) <= 70
    assert f"python examples/{name}\n" in source


def test_19_an_event_is_sent_in_three_ways_and_inspected(tmp_path: Path) -> None:
    assert run_example("19_events.py", tmp_path) == [
        '{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"Hello"}',
        "Bye Hello",
        "decoded TEXT_MESSAGE_CONTENT: m1 Hello",
        "application/ag-ui.custom+json True CustomEvent(name='confetti', value={'colour': 'red'})",
        "None",
        "RunStartedEvent",
        "TextMessageStartEvent",
        "TextMessageContentEvent Text becomes a message.",
        "custom: confetti red",
        "custom: confetti red",
        "custom: confetti red",
        "state: {'done': True}",
        "TextMessageEndEvent",
        "RunFinishedEvent",
    ]


def test_20_a_history_is_saved_in_both_formats_and_continued(tmp_path: Path) -> None:
    assert run_example("20_saved_history.py", tmp_path) == [
        "same events: True",
        "user: Hello",
        "assistant: Turn 1: I have 1 messages.",
        "user: And again",
        "assistant: Turn 2: I have 3 messages.",
        "restored: Turn 3: I have 5 messages.",
    ]


def test_21_parts_are_converted_to_chat_types_and_back(tmp_path: Path) -> None:
    image = '{"type":"image","source":{"type":"data","value":"iVBORw0KGgo=","mimeType":"image/png"}}'
    assert run_example("21_multimodal.py", tmp_path) == [
        "TextContent",
        "data: image/png 8 bytes {'filename': 'a.png'}",
        "uri: image/webp https://example.org/b.webp",
        "file: audio/wav upload-1 {'ag_ui_requires_resolution': True, 'ag_ui_content_id': 'upload-1'}",
        "file: video/mp4 file-2 {'ag_ui_provider': 'gemini', 'ag_ui_content_id': 'file-2'}",
        "uri: application/pdf https://example.org/report.pdf",
        "unchanged: True",
        "['image', 'audio', 'video', 'document', 'document']",
        '{"role":"user","id":"m3","content":"Hello"}',
        "notice: binary-part /content/0",
        '{"role":"user","id":"m4","content":[' + image + "]}",
    ]


def test_22_a_run_with_a_parent_starts_a_branch(tmp_path: Path) -> None:
    assert run_example("22_branching.py", tmp_path) == [
        "r1 continues None - children: ['r2', 'r3']",
        "r2 continues r1 - children: []",
        "r3 continues r1 - children: ['r4']",
        "r4 continues r3 - children: []",
        "r2 ['r1', 'r2'] {'cities': ['Lisbon', 'Oslo']}",
        "  user: Lisbon",
        "  assistant: So far: Lisbon.",
        "  user: Oslo",
        "  assistant: So far: Lisbon, Oslo.",
        "r4 ['r1', 'r3', 'r4'] {'cities': ['Lisbon', 'Rome', 'Cairo']}",
        "  user: Lisbon",
        "  assistant: So far: Lisbon.",
        "  user: Rome",
        "  assistant: So far: Lisbon, Rome.",
        "  user: Cairo",
        "  assistant: So far: Lisbon, Rome, Cairo.",
    ]


def test_23_a_compacted_run_has_one_event_per_content_and_the_same_meaning(tmp_path: Path) -> None:
    assert run_example("23_compaction.py", tmp_path) == [
        "19 events became 10; smaller: True",
        "  RUN_STARTED: 1 -> 1",
        "  STATE_SNAPSHOT: 1 -> 1",
        "  TOOL_CALL_START: 1 -> 1",
        "  TOOL_CALL_ARGS: 3 -> 1",
        "  TOOL_CALL_END: 1 -> 1",
        "  TOOL_CALL_RESULT: 1 -> 1",
        "  TEXT_MESSAGE_START: 1 -> 1",
        "  TEXT_MESSAGE_CONTENT: 4 -> 1",
        "  STATE_DELTA: 4 -> 0",
        "  TEXT_MESSAGE_END: 1 -> 1",
        "  RUN_FINISHED: 1 -> 1",
        "same messages: True same state: True",
        "compacted again: True",
    ]
