"""Run a target on inputs that a seed and a number determine, so that each can be repeated.

A failure names both: ``python tests/fuzz/run.py --target json --seed 1 --only 4711`` repeats it.
"""

from __future__ import annotations

import faulthandler
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import corpus
import mutations
from targets import fuzz_json, fuzz_sse
from targets_protobuf import fuzz_protobuf

from aguila.errors import AguilaError

SLOWEST = 2.0  # seconds of CPU time that one input may take
BATCH = 500  # inputs between two settings of the watchdog


@dataclass(frozen=True)
class Target:
    name: str
    call: Callable[[bytes], None]
    corpus: Callable[[], list[bytes]]
    mutations: list[mutations.Mutation]

    def input(self, seed: int, number: int) -> bytes:
        rng = Random((seed << 40) + number)
        return mutations.mutate(rng, self.corpus(), self.mutations)


TARGETS = {
    target.name: target
    for target in (
        Target("json", fuzz_json, corpus.json_inputs, mutations.JSON),
        Target("sse", fuzz_sse, corpus.sse_inputs, mutations.SSE),
        Target("protobuf", fuzz_protobuf, corpus.protobuf_inputs, mutations.PROTOBUF),
    )
}


class Found(AssertionError):
    """An input that a decoder does not handle."""


def check(target: Target, seed: int, number: int) -> None:
    """Check one input. Raises ``Found`` unless it gives a result or an ``AguilaError`` in reasonable time."""
    data = target.input(seed, number)
    start = time.thread_time()
    try:
        target.call(data)
    except AguilaError as error:
        raise _found(target, seed, number, data, f"{type(error).__name__} where a result was due: {error}") from error
    except Exception as error:
        raise _found(target, seed, number, data, f"{type(error).__name__}: {error}") from error
    if (taken := time.thread_time() - start) > SLOWEST:
        raise _found(target, seed, number, data, f"{taken:.1f} s")


def _found(target: Target, seed: int, number: int, data: bytes, what: str) -> Found:
    shown = data if len(data) < 2000 else data[:2000] + b"..."
    return Found(f"{what}\n  repeat with: --target {target.name} --seed {seed} --only {number}\n  input: {shown!r}")


def fuzz(target: Target, *, seed: int, first: int = 0, count: int | None = None, seconds: float | None = None) -> int:
    """Check inputs from ``first`` on, until there were ``count`` or the time is up. Return their number."""
    deadline = None if seconds is None else time.monotonic() + seconds
    number, last = first, None if count is None else first + count
    while (last is None or number < last) and (deadline is None or time.monotonic() < deadline):
        end = number + BATCH if last is None else min(number + BATCH, last)
        # A decoder that hangs within C cannot be interrupted: the watchdog ends the process, and leaves a file whose
        # name says which inputs and whose content says where.
        report = Path(tempfile.gettempdir()) / f"aguila-fuzz-hang-{target.name}-seed-{seed}-from-{number}.txt"
        with report.open("w") as file:
            faulthandler.dump_traceback_later(60 * SLOWEST, exit=True, file=file)
            try:
                for one in range(number, end):
                    check(target, seed, one)
            finally:
                faulthandler.cancel_dump_traceback_later()
        report.unlink()
        number = end
    return number - first
