"""Time from a folder of own triples to answers with the pretrained weights.

    python -m benchmarks.first_answer [--repeats 3]

Each repeat runs `graphzoo predict --model knowformer-any` twice: `cold` has an empty cache of kernels, as
after installation, and `warm` has a full one. The graph has 5,000 triples, 1,000 entities and 20 relations;
there are 20 queries. Writes wall-clock and CPU seconds to results/first_answer.csv; other jobs on the
machine disturb the CPU time less.
"""

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import RESULTS, Row, write_rows

TRIPLES, ENTITIES, RELATIONS, QUERIES = 5_000, 1_000, 20, 20


def write_triples(folder: Path) -> None:
    """Write triples in which some entities have many facts and most have few."""
    draw = random.Random(0)
    facts: dict[tuple[int, int, int], None] = {}
    while len(facts) < TRIPLES:
        head, tail = (int(ENTITIES * draw.random() ** 2) for _ in range(2))
        facts[head, (7 * head + tail) % RELATIONS, tail] = None
    asked = [f"entity{head}\trelation{relation}\t" for head, relation, _ in facts]
    lines = [f"{query}entity{fact[2]}" for query, fact in zip(asked, facts, strict=True)]
    (folder / "mine").mkdir()
    (folder / "mine" / "train.tsv").write_text("\n".join(lines) + "\n")
    (folder / "queries.tsv").write_text("\n".join(asked[:: TRIPLES // QUERIES]) + "\n")


def ask(folder: Path, cache: Path) -> tuple[float, float]:
    """Wall-clock and CPU seconds of one call."""
    command = "-m graphzoo.cli predict --model knowformer-any --data.path mine --queries queries.tsv"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    environment["PYTHONPATH"] = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *command.split()], cwd=folder, env=environment, check=True, stdout=subprocess.PIPE
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stdout.count(b"\n") >= QUERIES
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    seconds: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_triples(folder)
        for repeat in range(repeats):
            for mode in ("cold", "warm"):
                found = ask(folder, folder / f"cache{repeat}")
                print(f"{mode}: {found[0]:.1f} s, {found[1]:.1f} s of the processor", flush=True)
                for metric, value in zip(("time", "processor time"), found, strict=True):
                    seconds.setdefault((mode, metric), []).append(value)
    write_rows(
        RESULTS / "first_answer.csv",
        [
            Row(
                name="first_answer", provider="graphzoo", mode=mode, metric=metric, unit="s",
                x_name="num_triples", x=str(TRIPLES), p50=statistics.median(values), p20=min(values),
                p80=max(values), config=f"{repeats} repeats; p20 and p80 are the least and the most",
            )
            for (mode, metric), values in seconds.items()
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
