"""Count what the instruments measure, in memory that other processes can read.

A series is an instrument with values of its attributes. Its numbers are cells of one block of memory. With a folder,
the block is the beginning of a file that this process has locked, and the names of the series follow as lines of JSON.
So the processes of a server read each other's numbers, and a process that dies loses none: the next one that starts
takes its file over and continues to count in it.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final
from uuid import uuid4

import msgspec

from aguila.telemetry.instruments import INSTRUMENTS, Instrument

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

OTHER: Final = "_OTHER"
"""The attribute values of what is counted when there is no room for another series."""

_CELLS: Final = 1 << 14
_BLOCK: Final = 8 * _CELLS
_RESERVED: Final = sum(one.size for one in INSTRUMENTS)
_SUFFIX: Final = ".counts"
_BY_NAME: Final = {one.name: one for one in INSTRUMENTS}

Series = Mapping[tuple[str, ...], list[float]]
"""The numbers of an instrument for each combination of attribute values."""


class _Line(msgspec.Struct, array_like=True):
    """The name of a series in a file. A process of another version may give the instrument another size."""

    instrument: str
    values: tuple[str, ...]
    size: int


class Counts:
    """The numbers of one process. With ``folder``, ``read`` returns the sums of all processes that share it.

    Call ``add`` and ``record`` from one thread only. Raises ``OSError`` if the folder cannot be used, and
    ``RuntimeError`` on a platform whose processes cannot share it.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._places: dict[tuple[Instrument, tuple[str, ...]], int] = {}
        self._used = 0
        self._file: IO[bytes] | None = None
        if folder is None:
            self._cells = memoryview(bytearray(_BLOCK)).cast("d")
        else:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = _lock_file(folder)
            self._cells = memoryview(mmap.mmap(self._file.fileno(), _BLOCK)).cast("d")
            self._load(self._file)
        for instrument in INSTRUMENTS:
            for values in instrument.initial:
                self._find(instrument, values)

    def add(self, instrument: Instrument, amount: float, *values: str) -> None:
        """Add to a counter or a gauge, with the values of its attributes."""
        self._cells[self._find(instrument, values)] += amount

    def record(self, instrument: Instrument, value: float, *values: str) -> None:
        """Count a value in a histogram, with the values of its attributes."""
        first = self._find(instrument, values)
        self._cells[first + bisect_left(instrument.bounds, value)] += 1
        self._cells[first + len(instrument.bounds) + 1] += value

    def close(self) -> None:
        """Leave the file to the next process that starts. Nothing is counted after this."""
        self.reset_gauges()
        if self._file is not None:
            self._file.close()

    def reset_gauges(self) -> None:
        """Set the gauges of this process to zero: nothing of what they count exists any more."""
        for (instrument, _), place in self._places.items():
            if instrument.kind == "gauge":
                self._cells[place] = 0.0

    def read(self) -> dict[Instrument, Series]:
        """Return the numbers of each instrument, summed over the processes that share the folder."""
        totals: dict[Instrument, dict[tuple[str, ...], list[float]]] = {one: {} for one in INSTRUMENTS}
        if self._folder is None:
            _sum(totals, list(self._places.items()), self._cells)
        else:
            for path in self._folder.glob(f"*{_SUFFIX}"):
                with path.open("rb") as file:
                    is_alive = not _try_lock(file, is_shared=True)
                    block, lines = file.read(_BLOCK), file.read()
                if len(block) == _BLOCK:  # otherwise its process is just making it
                    found = [one for one in _places_of(lines)[0].items() if is_alive or one[0][0].kind != "gauge"]
                    _sum(totals, found, memoryview(block).cast("d"))
        return {**totals}

    def _find(self, instrument: Instrument, values: tuple[str, ...]) -> int:
        """Return the first cell of a series."""
        place = self._places.get((instrument, values))
        if place is not None:
            return place
        others = (OTHER,) * len(values)
        if self._used + instrument.size > _CELLS - _RESERVED and values != others:
            return self._find(instrument, others)
        if self._file is not None:
            line = msgspec.json.encode(_Line(instrument.name, values, instrument.size))
            self._file.write(line + b"\n")
        place = self._places[instrument, values] = self._used
        self._used += instrument.size
        return place

    def _load(self, file: IO[bytes]) -> None:
        """Continue with the numbers of a process that has died."""
        file.seek(_BLOCK)
        self._places, self._used = _places_of(file.read())
        self.reset_gauges()


def _lock_file(folder: Path) -> IO[bytes]:
    """Lock the file of a process that has died, or a new one. The kernel drops the lock when this process dies."""
    if fcntl is None:
        raise RuntimeError("processes cannot share metrics on this platform: it has no flock")
    found = list(folder.glob(f"*{_SUFFIX}"))
    while True:
        path = found.pop() if found else folder / f"{uuid4().hex}{_SUFFIX}"
        file = path.open("ab+", buffering=0)
        if _try_lock(file):
            if file.seek(0, os.SEEK_END) < _BLOCK:
                file.truncate(_BLOCK)
            return file
        file.close()


def _try_lock(file: IO[bytes], *, is_shared: bool = False) -> bool:
    """Lock a file unless another process has locked it; return whether it is locked now. Closing it unlocks it."""
    assert fcntl is not None  # noqa: S101 - checked when the folder was opened
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _places_of(lines: bytes) -> tuple[dict[tuple[Instrument, tuple[str, ...]], int], int]:
    """Read the names of series; return the first cell of each, and how many cells are used."""
    places: dict[tuple[Instrument, tuple[str, ...]], int] = {}
    used = 0
    for text in lines.splitlines(keepends=True):
        if not text.endswith(b"\n"):  # it is being written
            break
        line = msgspec.json.decode(text, type=_Line)
        instrument = _BY_NAME.get(line.instrument)
        if instrument is not None and (instrument.size, len(instrument.attributes)) == (line.size, len(line.values)):
            places[instrument, line.values] = used
        used += line.size
    return places, used


def _sum(
    totals: dict[Instrument, dict[tuple[str, ...], list[float]]],
    places: list[tuple[tuple[Instrument, tuple[str, ...]], int]],
    cells: memoryview[float],
) -> None:
    for (instrument, values), place in places:
        found = [*cells[place : place + instrument.size]]
        known = totals[instrument].get(values)
        totals[instrument][values] = found if known is None else [a + b for a, b in zip(known, found, strict=True)]
