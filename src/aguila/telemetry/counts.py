"""Count what the instruments measure, in memory that other processes can read.

A series is an instrument with values of its attributes. Its numbers are cells of one block of memory. With a folder,
the block is the beginning of a mapped file that this process has locked, and the names of the series follow as lines of
JSON. So the processes of a server read each other's numbers, and a process that dies loses none: the next one that
starts takes its file over and continues to count in it. The file has its full size from the start, because a full disk
must not stop a run.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Final
from uuid import uuid4
from zlib import crc32

import msgspec

from aguila.codec.json.bounded_floats import decode_json
from aguila.telemetry.instruments import INSTRUMENTS, Instrument

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

OTHER: Final = "_OTHER"
"""The attribute values of what is counted when there is no room for another series."""

_MAX_SERIES: Final = 1000
_BLOCK: Final = 8 * (_MAX_SERIES + len(INSTRUMENTS)) * max(one.size for one in INSTRUMENTS)
_NAMES: Final = 1 << 17
_RESERVED: Final = 1 << 12
"""Bytes of the names that are left for those of ``OTHER``."""
_BY_NAME: Final = {one.name: one for one in INSTRUMENTS}
_SUFFIX: Final = f".{crc32(repr([(one.name, one.size, one.attributes) for one in INSTRUMENTS]).encode()):08x}.counts"
"""The end of the names of files. Processes of versions with other instruments do not read each other's."""

Receiver = Callable[[Instrument, float, tuple[str, ...]], None]
"""Takes the change of a counter or a gauge, or the value of a histogram, and the values of the attributes."""

Series = Mapping[tuple[str, ...], list[float]]
"""The numbers of an instrument for each combination of attribute values."""


class Counts:
    """The numbers of one process. With ``folder``, ``read`` returns the sums of all processes that share it.

    ``forward`` also receives each measurement.
    Call ``add`` and ``record`` from one thread only. Raises ``OSError`` if the folder cannot be used, and
    ``RuntimeError`` on a platform whose processes cannot share it.
    """

    def __init__(self, folder: Path | None = None, forward: Receiver | None = None) -> None:
        self._folder = folder
        self._forward = forward
        self._places: dict[tuple[Instrument, tuple[str, ...]], int] = {}
        self._used = 0
        self._named = 0
        self._file: IO[bytes] | None = None
        if folder is None:
            memory = memoryview(bytearray(_BLOCK + _NAMES))
        else:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = _lock_file(folder)
            memory = memoryview(mmap.mmap(self._file.fileno(), _BLOCK + _NAMES))
        self._cells = memory[:_BLOCK].cast("d")
        self._names = memory[_BLOCK:]
        self._load()
        for instrument in INSTRUMENTS:
            for values in instrument.initial:
                self._find(instrument, values)

    def add(self, instrument: Instrument, amount: float, *values: str) -> None:
        """Add to a counter or a gauge, with the values of its attributes."""
        place, values = self._find(instrument, values)
        self._cells[place] += amount
        if self._forward is not None:
            self._forward(instrument, amount, values)

    def record(self, instrument: Instrument, value: float, *values: str) -> None:
        """Count a value in a histogram, with the values of its attributes."""
        first, values = self._find(instrument, values)
        self._cells[first + bisect_left(instrument.bounds, value)] += 1
        self._cells[first + len(instrument.bounds) + 1] += value
        if self._forward is not None:
            self._forward(instrument, value, values)

    def close(self) -> None:
        """Leave the file to the next process that starts. Nothing is counted after this."""
        self.reset_gauges()
        if self._file is not None:
            self._file.close()

    def reset_gauges(self) -> None:
        """Set the gauges of this process to zero: nothing of what they count exists any more."""
        for (instrument, values), place in self._places.items():
            if instrument.kind == "gauge":
                self.add(instrument, -self._cells[place], *values)

    def read(self) -> dict[Instrument, Series]:
        """Return the numbers of each instrument, summed over the processes that share the folder."""
        totals: dict[Instrument, dict[tuple[str, ...], list[float]]] = {one: {} for one in INSTRUMENTS}
        if self._folder is None:
            _sum(totals, list(self._places.items()), self._cells)
        else:
            for path in self._folder.glob(f"*{_SUFFIX}"):
                with path.open("rb") as file:
                    is_alive = not _try_lock(file, is_shared=True)
                    block, names = file.read(_BLOCK), file.read(_NAMES)
                if len(names) == _NAMES:  # otherwise its process is just making it
                    found = [one for one in _places_of(names).items() if is_alive or one[0][0].kind != "gauge"]
                    _sum(totals, found, memoryview(block).cast("d"))
        return {**totals}

    def _find(self, instrument: Instrument, values: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
        """Return the first cell of a series, and its values: others if there is no room for it."""
        place = self._places.get((instrument, values))
        if place is not None:
            return place, values
        others = (OTHER,) * len(values)
        try:
            line = msgspec.json.encode((instrument.name, values)) + b"\n"
        except UnicodeEncodeError:  # half a surrogate pair, in a name that an agent has sent
            return self._find(instrument, tuple([one.encode(errors="replace").decode() for one in values]))
        is_full = len(self._places) >= _MAX_SERIES or self._named + len(line) > _NAMES - _RESERVED
        if is_full and values != others:
            return self._find(instrument, others)
        end = self._named + len(line)
        self._names[self._named : end - 1] = line[:-1]
        self._names[end - 1] = line[-1]  # last: a line without its end is not read
        self._named = end
        place = self._places[instrument, values] = self._used
        self._used += instrument.size
        return place, values

    def _load(self) -> None:
        """Continue with the numbers of a process that has died, if the file has any."""
        names = bytes(self._names)
        self._named = names.rfind(b"\n") + 1
        self._places = _places_of(names)
        for (instrument, _), place in self._places.items():
            self._used += instrument.size
            if instrument.kind == "gauge":
                self._cells[place] = 0.0


def _lock_file(folder: Path) -> IO[bytes]:
    """Lock the file of a process that has died, or a new one. The kernel drops the lock when this process dies."""
    if fcntl is None:
        raise RuntimeError("processes cannot share metrics on this platform: it has no flock")
    found = list(folder.glob(f"*{_SUFFIX}"))
    while True:
        path = found.pop() if found else folder / f"{uuid4().hex}{_SUFFIX}"
        file = path.open("ab+", buffering=0)
        if _try_lock(file):
            if file.seek(0, os.SEEK_END) < _BLOCK + _NAMES:
                file.truncate(0)
                file.write(bytes(_BLOCK + _NAMES))
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


def _places_of(names: bytes) -> dict[tuple[Instrument, tuple[str, ...]], int]:
    """Read the names of series; return the first cell of each."""
    places: dict[tuple[Instrument, tuple[str, ...]], int] = {}
    used = 0
    for line in names[: names.rfind(b"\n") + 1].splitlines():
        name, values = decode_json(line, tuple[str, tuple[str, ...]])
        instrument = _BY_NAME[name]
        places[instrument, values] = used
        used += instrument.size
    return places


def _sum(
    totals: dict[Instrument, dict[tuple[str, ...], list[float]]],
    places: list[tuple[tuple[Instrument, tuple[str, ...]], int]],
    cells: memoryview[float],
) -> None:
    for (instrument, values), place in places:
        found = [*cells[place : place + instrument.size]]
        known = totals[instrument].get(values)
        totals[instrument][values] = found if known is None else [a + b for a, b in zip(known, found, strict=True)]
