"""Time and memory of a training epoch of GALiT and NodeFormer, and of PyG's SGFormer, Polynormer and GCN.

    python -m benchmarks.bench_node_models [--graphs cora pubmed arxiv ...] [--providers galit sgformer ...]
    python -m benchmarks.bench_node_models --device cuda --dtype bfloat16
    python -m benchmarks.bench_node_models --plot

Writes results/node_models.csv row by row. After a stop, the same command continues; finished figures are not
measured again, except with `--fresh`. `--plot` draws docs/figures/node-models-DEVICE.png and prints tables.

An epoch is forward, backward and Adam on the whole graph. All models have width 64, depth 2 (two layers of
each kind) and one head; PyG's models are called as in its documentation. `cora` and `pubmed` are the data
sets; if they are missing, a message says so. `arxiv` is a random graph of ogbn-arxiv's size: 169,343 nodes,
1,166,243 pairs linked in both directions, 128 features, 40 classes; `arxiv-double-edges` has twice the pairs.
`10k` to `1000k` have 14 entries of `edge_index` per node.

Modes: `epoch` has the C library's default allocation, as in a script. `epoch-kept` has
`graphzoo.system.memory.keep_freed_memory` for all providers, as in the graphzoo command; graphs of growing
size are measured in this mode only. `denoise` is GALiT's preprocessing. Each figure is measured in a separate
process. `cpu_time` is the CPU time of all threads, which is more reliable than wall-clock time on shared
cores. `did_not_fit` gives the limit in GiB.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.common import RESULTS, Row, append_row, in_process, peak_mib, step_parser
from benchmarks.node_models import GPU_SIZES, PROVIDERS, REAL, SCALING, SIZES, epoch, galit, load

DTYPES = ("float32", "bfloat16")
PLAIN_NODES = 40_000  # above, the plain NodeFormer needs several GiB
Figure = tuple[str, str, str, str, str]  # graph, provider, mode, device, dtype


def quantiles(times: list[float]) -> list[float]:
    cuts = statistics.quantiles(times, n=5, method="inclusive")
    return [statistics.median(times), cuts[0], cuts[3]]


def repeat(call: Callable[[], object], seconds: float) -> tuple[list[float], list[float]]:
    """Wall-clock and CPU seconds, after two warm-up calls, or one if it is long."""
    wall: list[float] = []
    cpu: list[float] = []
    warm = 2
    while len(wall) < warm + 3 or (sum(wall[warm:]) < seconds and len(wall) < 200):
        clock, spent = time.perf_counter(), time.process_time()
        call()
        wall.append(time.perf_counter() - clock)
        cpu.append(time.process_time() - spent)
        if wall[0] > seconds:
            warm = 1
    return wall[warm:], cpu[warm:]


def limit_memory(gib: float) -> None:
    """Make allocations above the limit fail, so that the system does not kill a process."""
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (int(gib * 2**30),) * 2)


def measure(figure: Figure, seconds: float, limit: float) -> dict[str, object]:
    graph, provider, mode, device, dtype = figure
    from graphzoo.system.memory import is_out_of_memory, keep_freed_memory

    if mode != "epoch":
        keep_freed_memory()
    if device == "cpu" and limit:
        limit_memory(limit)
    try:
        # The first step imports and compiles, which is not memory of the graph.
        tiny = torch.randn(20, 8, device=device), torch.randint(20, (2, 50), device=device)
        epoch(provider, *tiny, torch.arange(20, device=device) % 3, dtype == "bfloat16")()
        x, edge_index, y = (tensor.to(device) for tensor in load(graph))
        problem = f"N={x.shape[0]} F={x.shape[1]} E={edge_index.shape[1]} C={int(y.max()) + 1}"
        before = peak_mib()
        if mode == "denoise":
            encoder = galit(x)
            synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
            times = repeat(lambda: (encoder.precompute(x, edge_index), synchronize()), seconds)
        else:
            times = repeat(epoch(provider, x, edge_index, y, dtype == "bfloat16"), seconds)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return {"rows": [("did_not_fit", "GiB", *[limit or -1.0] * 3)], "problem": ""}
    rows = [(name, "s", *quantiles(found)) for name, found in zip(("time", "cpu_time"), times, strict=True)]
    peak = peak_mib()
    rows += [(n, "MiB", m, m, m) for n, m in (("peak_memory", peak), ("step_memory", peak - before))]
    settings = f"n={len(times[0])} threads={torch.get_num_threads()} load={os.getloadavg()[0]:.1f}"
    return {"rows": rows, "problem": f"{problem} D=64 L=2 {settings}"}


def run_figure(figure: Figure, seconds: float, limit: float) -> dict[str, object]:
    try:
        return in_process("bench_node_models", (*figure, limit), seconds=seconds, plain=figure[2] == "epoch")
    except subprocess.CalledProcessError as error:
        if error.returncode != -9:
            raise
        return {"rows": [("did_not_fit", "GiB", *[limit or -1.0] * 3)], "problem": "killed by the system"}


def finished(path: Path) -> set[Figure]:
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    # the last row of a figure: an incomplete figure is measured again
    return {
        (row["x"], row["provider"], row["mode"], *row["config"].split()[:2])
        for row in rows
        if row["metric"] in ("step_memory", "did_not_fit")
    }


def wanted(args: argparse.Namespace) -> list[Figure]:
    figures: list[Figure] = []
    for graph in args.graphs:
        for provider in args.providers:
            if provider == "nodeformer-plain" and graph in SIZES and SIZES[graph].num_nodes > PLAIN_NODES:
                continue
            modes = ["epoch"] if args.device == "cuda" else ["epoch", "epoch-kept"]
            if graph in SCALING:
                modes = modes[-1:]
            if provider == "galit":
                modes.append("denoise")
            figures += [(graph, provider, mode, args.device, args.dtype) for mode in modes]
    return figures


def available(graph: str) -> bool:
    from graphzoo.errors import UsageError

    if graph not in REAL:
        return True
    try:
        load(graph)
    except (UsageError, OSError) as error:
        print(f"{graph} is left out: {str(error).splitlines()[0]}", file=sys.stderr)
        return False
    return True


def main() -> None:
    parser = step_parser(__doc__, out="node_models.csv", seconds=10.0)
    parser.add_argument("--graphs", nargs="+", choices=[*REAL, *SIZES, *GPU_SIZES])
    parser.add_argument("--providers", nargs="+", choices=PROVIDERS, default=list(PROVIDERS))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="bfloat16: under autocast")
    parser.add_argument(
        "--limit_gib", type=float, help="memory limit of a process on the CPU; default: the free memory"
    )
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    parser.add_argument("--plot", action="store_true", help="only draw and print the kept results")
    args = parser.parse_args()
    path = RESULTS / args.out
    if args.child:
        *figure, limit = args.child
        print(json.dumps(measure(tuple(figure), args.seconds, float(limit))))
        return
    if args.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a new process, because peak memory is that of a process
    if args.plot:
        from benchmarks.node_models_report import report

        report(path, args.device)
        return
    if args.graphs is None:
        args.graphs = [*REAL, *SIZES, *(GPU_SIZES if args.device == "cuda" else ())]
    args.graphs = [graph for graph in args.graphs if available(graph)]
    if args.fresh:
        path.unlink(missing_ok=True)
    done = finished(path)
    for figure in wanted(args):
        if figure in done:
            continue
        from graphzoo.system.memory import available_bytes

        free = available_bytes(torch.device("cpu"))
        limit = args.limit_gib or (0.0 if free is None else round(0.8 * free / 2**30, 1))
        result = run_figure(figure, args.seconds, limit)
        graph, provider, mode, device, dtype = figure
        for metric, unit, p50, p20, p80 in result["rows"]:
            row = Row(
                name="node_models",
                provider=provider,
                mode=mode,
                metric=metric,
                unit=unit,
                x_name="graph",
                x=graph,
                p50=p50,
                p20=p20,
                p80=p80,
                config=f"{device} {dtype} {result['problem']}".strip(),
            )
            append_row(path, row)
        shown = "  ".join(f"{metric} {p50:.4g} {unit}" for metric, unit, p50, _, _ in result["rows"])
        print(f"{graph:18} {provider:16} {mode:10} {shown}  {result['problem']}", flush=True)


if __name__ == "__main__":
    main()
