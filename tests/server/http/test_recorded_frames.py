"""The frames of recorded runs, byte for byte, for every dialect and both transports.

``recorded_frames`` has what the server wrote before issue 28 redesigned the path of a run: live, from the log, after a
cursor, compacted and hydrated. The ``.txt`` files show what the newest client gets as SSE, the ``.json.xz`` files have
all frames. To record again: ``AGUILA_WRITE_FRAMES=1 .venv/bin/pytest -q tests/server/http/test_recorded_frames.py``,
then read the diff of the ``.txt`` files.
"""

from __future__ import annotations

import difflib
import json
import lzma
import os
from pathlib import Path

import pytest
from recorded_runs import AGENTS, NEWEST, VARIANTS, record

FOLDER = Path(__file__).parent / "recorded_frames"
WRITES = "AGUILA_WRITE_FRAMES" in os.environ

Responses = dict[str, dict[str, str]]
"""What a client was sent, by its dialect and transport and by the request. Protobuf is in hexadecimal digits."""


def as_text(variant: tuple[str, str], response: bytes) -> str:
    if variant[1] == "sse":
        return response.decode()
    head, _, body = response.partition(b"\n")
    return f"{head.decode()}\n{body.hex()}"


def newest_text(responses: Responses) -> str:
    shown = {what: sent for what, sent in responses[" ".join(NEWEST)].items() if "log" not in what}
    return "\n".join(f"=== {what}\n{sent}" for what, sent in shown.items())


def differences(expected: Responses, found: Responses) -> list[str]:
    """Return the lines that differ, for the first few responses that do."""
    lines: list[str] = []
    for variant, responses in expected.items():
        for what, sent in responses.items():
            now = found.get(variant, {}).get(what, "")
            if now != sent and len(lines) < 60:
                names = (f"recorded: {variant}, {what}", f"now: {variant}, {what}")
                lines += difflib.unified_diff(sent.splitlines(), now.splitlines(), *names, lineterm="", n=0)
    return [line[:500] for line in lines]


@pytest.mark.anyio
@pytest.mark.parametrize("agent", [*AGENTS, "unstored"])
async def test_a_recorded_run_is_sent_as_the_same_bytes(agent: str) -> None:
    pytest.importorskip("google.protobuf", reason="the extra protobuf is not installed")
    found: Responses = {
        " ".join(variant): {what: as_text(variant, sent) for what, sent in responses.items()}
        for variant, responses in (await record(agent)).items()
    }
    text, file = FOLDER / f"{agent}.txt", FOLDER / f"{agent}.json.xz"
    if WRITES:
        FOLDER.mkdir(exist_ok=True)
        text.write_text(newest_text(found))
        file.write_bytes(lzma.compress(json.dumps(found).encode(), preset=9))
    expected: Responses = json.loads(lzma.decompress(file.read_bytes()))
    assert text.read_text() == newest_text(expected)
    assert differences(expected, found) == []
    assert found == expected


def test_every_dialect_is_recorded() -> None:
    from aguila.codec.dialects.table import GENERATIONS

    def dotted(version: tuple[int, ...]) -> str:
        return ".".join(map(str, version if version[0] == 0 else version[:2]))

    declared = {dialect for dialect, _ in VARIANTS} - {"flatten", "parallel", "subagents", "meta"}
    assert declared == {dotted(version) for version in GENERATIONS}
