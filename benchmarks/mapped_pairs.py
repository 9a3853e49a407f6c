"""Sampling of subgraphs around pairs by several processes from a graph of 100 million edges on disk.

    python -m benchmarks.mapped_pairs [--edges 100000000] [--workers 2]

Writes results/mapped_pairs.csv: CPU time per subgraph and private memory per worker, for this graph and for
one of 100 thousand edges. If the graph were copied, the memory would differ by its size. Every node has 20
neighbours, spread over the whole graph, so subgraphs hardly share pages. Workers are spawned, not forked,
so that they inherit nothing. Needs Linux and about 18 bytes of disk per edge. Not part of `python -m
benchmarks`, because it takes minutes.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.common import RESULTS, Row, write_rows
from graphzoo.sampling import PairSubgraphSampler

NUM_OFFSETS = 10
BATCH = 1024
CHUNK = 1 << 18


def write_graph(folder: Path, num_edges: int) -> Path:
    """Write a symmetric CSR graph in chunks; node i is linked to i + o and i - o for ten random o."""
    num_nodes = num_edges // NUM_OFFSETS
    degree = 2 * NUM_OFFSETS
    generator = np.random.default_rng(0)
    offset = 1 + generator.choice(num_nodes // 2 - 1, NUM_OFFSETS, replace=False)
    both = np.concatenate([offset, num_nodes - offset])
    col = np.memmap(folder / "col", np.int32, "w+", shape=(num_nodes * degree,))
    for start in range(0, num_nodes, CHUNK):
        rows = np.arange(start, min(start + CHUNK, num_nodes))
        neighbors = (rows[:, None] + both) % num_nodes
        neighbors.sort(axis=1)
        col[start * degree : (start + len(rows)) * degree] = neighbors.ravel()
    rowptr = np.arange(0, num_nodes * degree + 1, degree, dtype=np.int64)
    sampler = PairSubgraphSampler.from_csr(rowptr, col, depth=1, num_neighbors=1, check=False)
    path = folder / f"{num_edges}.graph"
    sampler.save(path)
    (folder / "col").unlink()
    return path


class Batches(Dataset[list[float]]):
    """Samples batches of random pairs; items are process id, its CPU seconds and its private MiB."""

    def __init__(self, sampler: PairSubgraphSampler, num_batches: int) -> None:
        self.sampler, self.num_batches = sampler, num_batches

    def __len__(self) -> int:
        return self.num_batches

    def __getitem__(self, number: int) -> list[float]:
        torch.set_num_threads(1)
        generator = torch.Generator().manual_seed(number)
        source = torch.randint(self.sampler.num_nodes, (BATCH,), generator=generator)
        target = (source + torch.randint(1, self.sampler.num_nodes, (BATCH,), generator=generator)) % (
            self.sampler.num_nodes
        )
        self.sampler.sample(torch.stack([source, target], dim=1), seed=0)
        return [os.getpid(), time.process_time(), own_mib()]


def own_mib() -> float:
    """Private MiB of this process, without pages of mapped files, which the system can share or drop."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty")) / 1024


def sample(path: Path, workers: int, num_batches: int) -> tuple[float, float]:
    """CPU microseconds per subgraph without compilation, and the memory of the largest worker."""
    sampler = PairSubgraphSampler.from_file(path, depth=2, num_neighbors=10)
    loader = DataLoader(
        Batches(sampler, num_batches),
        batch_size=None,
        num_workers=workers,
        multiprocessing_context="spawn",
    )
    rows = [[float(value) for value in row] for row in loader]
    seconds, batches = 0.0, 0
    for process in {row[0] for row in rows}:
        own = [row[1] for row in rows if row[0] == process]
        # its first batch compiles the kernels
        seconds, batches = seconds + own[-1] - own[0], batches + len(own) - 1
    return seconds / batches / BATCH * 1e6, max(row[2] for row in rows)


def main() -> None:
    """Write both graphs, sample from them, write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--edges", type=int, default=100_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--folder", type=Path, help="existing folder for the temporary graphs")
    parser.add_argument("--out", type=Path, default=RESULTS / "mapped_pairs.csv")
    args = parser.parse_args()
    if args.edges < 1000 or args.workers < 1 or args.batches < 10 * args.workers:
        parser.error("--edges must be at least 1000, --workers 1, --batches 10 times the workers")
    if args.folder is not None and not args.folder.is_dir():
        parser.error(f"--folder {args.folder}: no such folder")
    rows = []
    for num_edges in (100_000, args.edges):
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            path = write_graph(Path(folder), num_edges)
            mib = path.stat().st_size / 2**20
            spent, own = sample(path, args.workers, args.batches)
        for metric, unit, value in (
            ("file", "MiB", mib),
            ("processor time of a subgraph", "us", spent),
            ("memory of a worker's own", "MiB", own),
        ):
            print(f"{num_edges:,} edges: {metric} {value:,.0f} {unit}")
            config = f"depth 2, 10 neighbours, {args.workers} workers, batches of {BATCH}"
            what = ("mapped pairs", "graphzoo", "sample", metric, unit, "edges", str(num_edges))
            rows.append(Row(*what, value, value, value, config))
    write_rows(args.out, rows)


if __name__ == "__main__":
    main()
