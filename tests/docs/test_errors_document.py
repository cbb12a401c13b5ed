"""docs/errors.md has every code that the server sends, with its statuses, and no other."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import msgspec

from aguila.agent import ending

ROOT = Path(__file__).parents[2]
SOURCE = "".join(path.read_text() for path in (ROOT / "src" / "aguila").rglob("*.py"))
TEXT = (ROOT / "docs" / "errors.md").read_text()
HTTP, _, RUN_ERROR = TEXT.partition("## Codes of RUN_ERROR")
SECTION = re.compile(r"^### (\w+)\n\n(.+?)(?=\n\n#|\n\Z)", re.MULTILINE | re.DOTALL)
DERIVED = {
    "too_many_messages": {422},  # f"too_many_{noun}"
    "too_many_tools": {422},
    "too_many_answers": {422},
    "bad_json": {422},  # of two, by the rule of the DecodeError
    "malformed_input": {422},
    "forbidden": {403},  # by the status of an HTTPException
    "too_many_requests": {429},
    "refused": set[int](),
}
"""Codes that are not written beside their status."""


def refusals() -> dict[str, set[int]]:
    """The statuses of each code of a ``Rejected``."""
    found: dict[str, set[int]] = defaultdict(set) | DERIVED
    for status, code in re.findall(r'\bRejected\(\s*(\d+),\s*"(\w+)"', SOURCE):
        found[code].add(int(status))
    return found


def test_every_refusal_is_explained_with_its_statuses() -> None:
    documented = {
        code: {int(one) for one in re.findall(r"\*\*(\d+)\*\*", text)} for code, text in SECTION.findall(HTTP)
    }
    assert documented == refusals()


def test_the_codes_of_run_error_are_explained() -> None:
    written = set(ending._MESSAGES)
    written |= set(re.findall(r'\bRunErrorEvent\([^)]*code="(\w+)"', SOURCE))
    runs = "".join(path.read_text() for path in (ROOT / "src" / "aguila" / "server" / "runs").glob("*.py"))
    written |= set(re.findall(r'(?:\.fail|_encode_error)\b[^)]*, "(\w+)"\)', runs))
    shared = {code for code, text in SECTION.findall(HTTP) if "RUN_ERROR" in text}
    assert {code for code, _ in SECTION.findall(RUN_ERROR)} | shared == written | {"run_not_stored"}


def test_the_example_is_what_the_server_sends() -> None:
    from aguila.server.config.errors import Rejected

    (example,) = re.findall(r"```json\n(.*?)\n```", TEXT, re.DOTALL)
    error = msgspec.json.decode(example)["error"]
    sent = Rejected(409, error["code"], error["message"], error["path"]).body()
    assert msgspec.json.decode(sent) == {"error": error}
    assert error["message"] in SOURCE


def test_every_section_says_what_it_means_in_one_paragraph() -> None:
    sections = SECTION.findall(TEXT)
    assert len(sections) == TEXT.count("\n### ")
    assert [code for code, text in sections if not text.endswith(".")] == []
