"""A buffer that joins bytes received in pieces."""

from __future__ import annotations

from pathlib import Path

import pytest

from aguila.codec.json.buffer import PresizedBuffer

MIB = 1 << 20


def resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise LookupError("VmRSS")


@pytest.mark.parametrize("size", [None, 0, 3, 6, 9])
def test_it_gives_what_was_written_whatever_size_was_announced(size: int | None) -> None:
    whole = PresizedBuffer(size)
    whole.write(b"abc")
    whole.write(b"def")
    assert whole.getvalue() == b"abcdef"


def test_what_was_written_is_given_away_and_not_copied() -> None:
    whole = PresizedBuffer(6)
    whole.write(b"abcdef")
    assert whole.getvalue() is whole.getvalue()


def test_memory_is_not_touched_before_it_is_written_to() -> None:
    before = resident()
    whole = PresizedBuffer(64 * MIB)  # more than an allocator ever takes from freed memory
    whole.write(b"x" * MIB)
    assert resident() - before < 16 * MIB
