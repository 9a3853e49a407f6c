"""Sampling of subgraphs around node pairs: subgraphs per second and peak memory, compared with PyG.

    python -m benchmarks.bench_pair_sampler [--graphs pubmed ogbl-ddi collab-size] [--batch_sizes 64 1024]

Writes results/pair_sampler.csv. The graphs are the training graphs of PubMed with (depth, neighbours) of
(2, 16) and of ogbl-ddi with (1, 350), PENCIL's settings, and a random graph of ogbl-collab's size with
heavy-tailed degrees and (1, 75). Half of the pairs in a batch are links, the others are random. Providers:

- `graphzoo`: mode `one_tensor` pads the whole batch to one tensor. Mode `micro_batches` samples at once,
  sorts by size and pads 64 subgraphs at a time, each part freed before the next, as in training.
- `pyg_sampled`: the same sampling in torch, node by node, then PyG's `subgraph`, `Data` and
  `Batch.from_data_list`. It neither hides the target link nor shuffles the nodes.
- `pyg_k_hop`: `k_hop_subgraph` around both endpoints, `Data`, `Batch.from_data_list`. It takes all
  neighbours, so its subgraphs are larger.
- `pyg_shadow`: `ShaDowKHopSampler`, which is compiled, if torch-sparse is installed. It samples around single
  nodes: here around both endpoints of each pair, without their union.

Each figure is measured in a separate process. Memory is the peak minus the memory after loading the graph and
sampling a small batch. Batches that would take more than --max_gib or --max_seconds are left out. CPU time is
that of all threads. On shared cores it is more reliable than wall-clock time; `load` in the table is the
number of running processes.
"""

import argparse
import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import RESULTS, Row, peak_mib, write_rows
from benchmarks.pair_samplers import PROVIDERS, SETTINGS, is_available, load, make_pairs
from graphzoo.system.memory import keep_freed_memory
from graphzoo.system.openmp import shorten_waits

MODES = {
    "graphzoo": ("one_tensor", "micro_batches"),
    "pyg_sampled": ("batch",),
    "pyg_k_hop": ("batch",),
    "pyg_shadow": ("batch",),
}
WARM_UP_PAIRS = 8
# (provider, mode, batch size): result of `measure`
Found = dict[tuple[str, str, int], dict[str, Any]]


def forget_peak() -> None:
    """Reset the peak to the current memory, and return free memory to the system (Linux)."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError as error:
        print(f"the peak of loading is counted too: {error}", file=sys.stderr)


def measure(graph: str, provider: str, mode: str, batch_size: int, seconds: float) -> dict[str, Any]:
    keep_freed_memory()  # for all providers, as in `graphzoo fit`
    edge_index, num_nodes = load(graph)
    work = PROVIDERS[provider](edge_index, num_nodes, *SETTINGS[graph], mode)
    for i in range(2):
        work(make_pairs(edge_index, num_nodes, WARM_UP_PAIRS, -1 - i), -1 - i)
    batches = [make_pairs(edge_index, num_nodes, batch_size, i) for i in range(5)]
    forget_peak()
    before = peak_mib()
    wall: list[float] = []
    cpu: list[float] = []
    nodes = 0
    while not wall or (sum(wall) < seconds and len(wall) < 100):
        start, used = time.perf_counter(), time.process_time()
        nodes += work(batches[len(wall) % len(batches)], len(wall))
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - used)
    depth, num_neighbors = SETTINGS[graph]
    config = (
        f"N={num_nodes} E={edge_index.shape[1]} sampler=({depth},{num_neighbors}) "
        f"mean_nodes={nodes / len(wall) / batch_size:.0f} repeats={len(wall)} "
        f"threads={torch.get_num_threads()} load={os.getloadavg()[0]:.1f}"
    )
    peak = peak_mib()
    return {
        "subgraphs_per_s": quantiles([batch_size / seconds for seconds in wall]),
        "cpu_us": quantiles([seconds / batch_size * 1e6 for seconds in cpu]),
        "memory": peak - before,
        "peak_rss": peak,
        "config": config,
    }


def quantiles(values: list[float]) -> tuple[float, float, float]:
    """Median, 20 % and 80 % quantile; a single value is returned three times."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    p20, _, _, p80 = statistics.quantiles(values, n=5, method="inclusive")
    return statistics.median(values), p20, p80


def run_child(graph: str, provider: str, mode: str, batch_size: int, seconds: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.bench_pair_sampler", "--seconds", str(seconds)]
    done = subprocess.run(
        [*command, "--child", graph, provider, mode, str(batch_size)],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graphs", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--providers", nargs="+", choices=PROVIDERS, default=list(PROVIDERS))
    parser.add_argument("--batch_sizes", nargs="+", type=int, default=[64, 256, 1024, 4096])
    parser.add_argument("--seconds", type=float, default=10.0, help="time to spend on each figure")
    parser.add_argument("--max_seconds", type=float, default=180.0, help="time limit of a batch")
    parser.add_argument("--max_gib", type=float, default=6.0, help="memory limit of a figure")
    parser.add_argument("--out", default="pair_sampler.csv", help="file name below results/")
    parser.add_argument(
        "--child", nargs=4, metavar=("GRAPH", "PROVIDER", "MODE", "BATCH"), help=argparse.SUPPRESS
    )
    args = parser.parse_args()
    if args.child:
        graph, provider, mode, batch_size = args.child
        print(json.dumps(measure(graph, provider, mode, int(batch_size), args.seconds)))
        return
    shorten_waits()  # for the child processes: busy-waiting threads would slow down every provider
    wanted = [(p, mode) for p in args.providers if is_available(p) for mode in MODES[p]]
    rows: list[Row] = []
    for graph in args.graphs:
        found: Found = {}
        for provider, mode in wanted:
            for batch_size in sorted(args.batch_sizes):
                if reason := too_much(found, provider, mode, batch_size, args.max_gib, args.max_seconds):
                    print(f"{graph:12} {provider:12} {mode:14} B={batch_size:<5} left out: {reason}")
                    continue
                result = run_child(graph, provider, mode, batch_size, args.seconds)
                found[provider, mode, batch_size] = result
                rows += rows_of(graph, provider, mode, batch_size, result)
                print(
                    f"{graph:12} {provider:12} {mode:14} B={batch_size:<5} "
                    f"{result['subgraphs_per_s'][0]:10.0f} subgraphs/s "
                    f"{result['cpu_us'][0]:9.0f} us of CPU each "
                    f"{result['memory']:7.0f} MiB more, {result['peak_rss']:6.0f} MiB at most",
                    flush=True,
                )
        rows += ratios(graph, found)
    write_rows(RESULTS / args.out, rows)


def too_much(
    found: Found, provider: str, mode: str, batch_size: int, max_gib: float, max_seconds: float
) -> str:
    """Why a batch is not measured, estimated from the next smaller one; empty if it is."""
    smaller = [(b, result) for (p, m, b), result in found.items() if (p, m) == (provider, mode)]
    if not smaller:
        return ""
    size, result = smaller[-1]
    gib, seconds = result["memory"] * batch_size / size / 1024, batch_size / result["subgraphs_per_s"][0]
    if gib > max_gib:
        return f"it would take about {gib:.0f} GiB"
    return f"it would take about {seconds:.0f} s" if seconds > max_seconds else ""


def rows_of(graph: str, provider: str, mode: str, batch_size: int, result: dict[str, Any]) -> list[Row]:
    values = [
        ("rate", "subgraphs/s", *result["subgraphs_per_s"]),
        ("cpu_time", "us/subgraph", *result["cpu_us"]),
        *((metric, "MiB", *[result[metric]] * 3) for metric in ("memory", "peak_rss")),
    ]
    return [
        Row(name="pair_sampler", provider=provider, mode=f"{graph} {mode}", metric=metric, unit=unit,
            x_name="batch_size", x=str(batch_size), p50=p50, p20=p20, p80=p80, config=result["config"])
        for metric, unit, p50, p20, p80 in values
    ]  # fmt: skip


def ratios(graph: str, found: Found) -> list[Row]:
    """Ratios of subgraphs per second and of CPU time to each other provider in this run."""
    rows = []
    for (provider, mode, batch_size), result in found.items():
        for (rival, _, size), other in found.items():
            if provider != "graphzoo" or rival == "graphzoo" or size != batch_size:
                continue
            faster = result["subgraphs_per_s"][0] / other["subgraphs_per_s"][0]
            cheaper = other["cpu_us"][0] / result["cpu_us"][0]
            for metric, ratio in ((f"speedup_over_{rival}", faster), (f"cpu_saving_over_{rival}", cheaper)):
                rows.append(
                    Row(name="pair_sampler", provider="graphzoo", mode=f"{graph} {mode}", metric=metric,
                        unit="x", x_name="batch_size", x=str(batch_size), p50=ratio, p20=ratio, p80=ratio,
                        config=other["config"])
                )  # fmt: skip
            print(
                f"{graph:12} {mode:14} B={batch_size:<5} {faster:6.1f} x {rival}, CPU time {cheaper:6.1f} x, "
                f"memory {result['memory']:.0f} instead of {other['memory']:.0f} MiB"
            )
    return rows


if __name__ == "__main__":
    main()
