"""Feeds damaged files to every reader for some minutes.

    python -m tests.fuzz_readers --minutes 5 --seed 0

A reader must read the file, or refuse it in at most six lines that name it. It must not raise another error,
hang, or use more than a gigabyte. Hypothesis shrinks a file that breaks a reader; it is kept in
tests/fuzz_found, and tests/test_fuzz_readers.py reads it in every run of the tests.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import hypothesis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from helpers.fuzz_cases import READERS, bound_memory, check, good, spoiled  # noqa: E402  # found beside this file

FOUND = Path(__file__).parent / "fuzz_found"
GIGABYTE = 1 << 30


def fuzz(reader: str, seed: int, count: int, outcomes: Counter[str]) -> tuple[str, bytes, Exception] | None:
    """Fuzz one reader; return the smallest file that breaks it as (name, content, error), or None."""
    failures: list[tuple[str, bytes, Exception]] = []
    names = sorted(READERS[reader][1])

    @hypothesis.seed(seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(st.data())
    def attempt(data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(names))
        content = data.draw(spoiled([good(reader, other) for other in names]))
        outcomes["examples"] += 1
        with tempfile.TemporaryDirectory() as folder:
            try:
                outcomes[check(reader, name, content, Path(folder))] += 1
            except Exception as error:
                failures.append((name, content, error))
                raise

    try:
        attempt()
    except Exception:
        if not failures:
            raise
        return failures[-1]  # Hypothesis runs the smallest one last
    return None


def main() -> int:
    """Fuzz the readers in turn until the time is up."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz_readers", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first round, each next round adds 1")
    parser.add_argument("--readers", default=",".join(READERS), help="which of them, separated by commas")
    arguments = parser.parse_args()
    if unknown := set(arguments.readers.split(",")) - set(READERS):
        parser.error(f"--readers: unknown {', '.join(sorted(unknown))}; there are: {', '.join(READERS)}")
    if arguments.minutes <= 0:
        parser.error(f"--minutes must be above 0, got {arguments.minutes}")
    logging.disable(logging.CRITICAL)
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="graphzoo-fuzz-")
    warnings.simplefilter("ignore")
    readers = arguments.readers.split(",")
    for reader in readers:
        for name in READERS[reader][1]:
            with tempfile.TemporaryDirectory() as folder:
                # The first call of a reader also imports its libraries.
                outcome = check(reader, name, good(reader, name), Path(folder), seconds=600)
                assert outcome == "read", (reader, name)
    bound_memory(GIGABYTE)
    began, counted, found, seed = time.monotonic(), Counter(), 0, arguments.seed
    broken: set[str] = set()
    while time.monotonic() - began < arguments.minutes * 60 and len(broken) < len(readers):
        for reader in readers:
            if reader in broken or time.monotonic() - began >= arguments.minutes * 60:
                continue
            failure = fuzz(reader, seed, 100, counted)
            if failure is None:
                continue
            name, content, error = failure
            broken.add(reader)
            found += 1
            folder = FOUND / reader.replace(" ", "-")
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{hashlib.sha256(content).hexdigest()[:8]}-{name}"
            path.write_bytes(content)
            print(f"{reader}, seed {seed}: kept {path.relative_to(FOUND.parent)} ({len(content)} bytes)")
            error.__notes__ = []  # Hypothesis adds the whole input there
            print("".join(traceback.format_exception(error, limit=-4))[-1500:], flush=True)
        seed += 1
    minutes = (time.monotonic() - began) / 60
    print(
        f"{counted['examples']:,} files in {minutes:.1f} minutes, seeds {arguments.seed} to {seed - 1}: "
        f"{counted['read']:,} read, {counted['refused']:,} refused, {found} that broke a reader"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
