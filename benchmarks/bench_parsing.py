"""Reading 1,079,040 triples, as many as in YAGO3-10: four copies of YAGO3-10-quarter with other relations.

    GRAPHZOO_DATA=... python -m benchmarks.bench_parsing [--repeats 5]

Writes results/parsing.csv, the seconds from file to ids. `graphzoo` checks every line, name and duplicate and
hashes the result. `pandas` only splits and numbers. `loop` is the usual Python loop over lines with
dictionaries.
"""

import argparse
import csv
import gzip
import os
import platform
import statistics
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.common import RESULTS, Row, write_rows
from graphzoo.datasets import GraphzooDataWarning, data_root, from_files
from graphzoo.datasets.files import cache as store


def write_files(folder: Path) -> int:
    source = data_root() / "kg" / "YAGO3-10-quarter"
    triples = gzip.decompress((source / "train.txt.gz").read_bytes()).decode().rstrip("\n").split("\n")
    copies = [line.replace("\t", f"\t{copy}:", 1) for copy in range(4) for line in triples]
    text = "\n".join(copies).encode() + b"\n"
    for name, content in (("plain/train.txt", text), ("gzip/train.txt.gz", gzip.compress(text, 6))):
        path = folder / name
        path.parent.mkdir()
        path.write_bytes(content)
        for split in ("valid", "test"):
            lines = (source / f"{split}.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")
            renamed = "\n".join(line.replace("\t", "\t0:", 1) for line in lines)
            (path.parent / f"{split}.txt").write_text(renamed + "\n", encoding="utf-8")
    return len(copies)


def with_graphzoo(folder: Path) -> None:
    store._MIN_BYTES = 1 << 62
    from_files(folder)


def from_cache(folder: Path) -> None:
    store._MIN_BYTES = 0
    from_files(folder)


def with_pandas(folder: Path) -> None:
    frame = pd.read_csv(
        folder / "train.txt", sep="\t", header=None, dtype=str, quoting=csv.QUOTE_NONE, keep_default_na=False
    )
    pd.factorize(pd.concat([frame[0], frame[2]]))
    pd.factorize(frame[1])


def with_loop(folder: Path) -> None:
    entities, relations, rows = {}, {}, []
    with (folder / "train.txt").open(encoding="utf-8") as file:
        for line in file:
            head, relation, tail = line.rstrip("\n").split("\t")
            rows.append(
                (
                    entities.setdefault(head, len(entities)),
                    relations.setdefault(relation, len(relations)),
                    entities.setdefault(tail, len(entities)),
                )
            )
    np.array(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    # warns that some valid and test entities of the quarter have no training triple
    warnings.simplefilter("ignore", GraphzooDataWarning)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["XDG_CACHE_HOME"] = temporary
        folder = Path(temporary)
        num_triples = write_files(folder)
        cases = [
            ("graphzoo", "plain text", with_graphzoo, folder / "plain"),
            ("graphzoo", "gzip", with_graphzoo, folder / "gzip"),
            ("graphzoo", "cached", from_cache, folder / "gzip"),
            ("pandas", "plain text", with_pandas, folder / "plain"),
            ("loop", "plain text", with_loop, folder / "plain"),
        ]
        from_cache(folder / "gzip")
        times: dict[tuple[str, str], list[float]] = {case[:2]: [] for case in cases}
        # in turns, so that other load on the machine affects all of them
        for _ in range(repeats):
            for provider, mode, function, path in cases:
                start = time.perf_counter()
                function(path)
                times[provider, mode].append(time.perf_counter() - start)
    rows = []
    for (provider, mode), seconds in times.items():
        p20, p80 = np.quantile(seconds, [0.2, 0.8]).tolist()
        rows.append(
            Row(
                name="parsing",
                provider=provider,
                mode=mode,
                metric="time",
                unit="s",
                x_name="num_triples",
                x=str(num_triples),
                p50=statistics.median(seconds),
                p20=p20,
                p80=p80,
                config=f"python {platform.python_version()}",
            )
        )
        print(f"{provider:9} {mode:11} {rows[-1].p50:.3f} s")
    write_rows(RESULTS / "parsing.csv", rows)


if __name__ == "__main__":
    main()
