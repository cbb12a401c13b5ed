"""``python tests/fuzz/run.py --target json|sse|protobuf|all [--count N] [--seconds S] [--seed K] [--only I]``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "support"))

from driver import TARGETS, Found, check, fuzz


def work(name: str, seed: int, first: int, count: int | None, seconds: float | None) -> int:
    return fuzz(TARGETS[name], seed=seed, first=first, count=count, seconds=seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the decoders.")
    parser.add_argument("--target", choices=[*TARGETS, "all"], default="all")
    parser.add_argument("--count", type=int, help="inputs for each target")
    parser.add_argument("--seconds", type=float, help="time for each target")
    parser.add_argument("--seed", type=int, default=time.time_ns() & 0xFFFFFFFF, help="default: a new one")
    parser.add_argument("--only", type=int, help="just this input, in this process")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.count is None and options.seconds is None:
        options.count = 200_000
    names = list(TARGETS) if options.target == "all" else [options.target]
    for name in names:
        if options.only is not None:
            print(TARGETS[name].input(options.seed, options.only))
            check(TARGETS[name], options.seed, options.only)
            continue
        start = time.monotonic()
        share = None if options.count is None else -(-options.count // options.jobs)
        with ProcessPoolExecutor(options.jobs) as pool:
            jobs = [
                pool.submit(work, name, options.seed, i * (share or 1 << 36), share, options.seconds)
                for i in range(options.jobs)
            ]
            try:
                done = sum(job.result() for job in jobs)
            except Found as found:
                pool.shutdown(cancel_futures=True)
                print(f"{name}: {found}", file=sys.stderr)
                return 1
        print(
            f"{name}: {done} inputs, seed {options.seed}, {time.monotonic() - start:.0f} s, nothing found", flush=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
